//! Why a push may not arrive: sentences that follow from the facts alone.

use std::time::Duration;

use indicatif::HumanDuration;

use super::facts::{Connection, Inspection, RecordFacts, SessionFacts};
use crate::push::push_history::{OVER_LIMIT, REASONS};
use crate::push::refusals::Refusal;

/// The reasons, the most important first. Without a reason, one sentence that says so.
pub fn of(facts: &Inspection) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(ended_access(facts));
    all.extend(other_origin(facts));
    match &facts.record {
        None => all.push(
            "there is no record of the user agent: it was dropped, or it is of another installation; pushes are \
             answered 410"
                .to_owned(),
        ),
        Some(record) => {
            all.extend(channel(facts, record));
            all.extend(future(facts, record));
            all.extend(connection(facts, record));
            all.extend(unfinished_move(facts, record));
        }
    }
    for limit in &facts.limits_reached {
        all.push(format!("{limit} refuses further requests now, with 429"));
    }
    all.extend(last_push(facts));
    all.extend(message(facts));
    if all.is_empty() {
        all.push(
            "nothing hinders a push: the user agent is connected and takes messages".to_owned(),
        );
    }
    all
}

fn ended_access(facts: &Inspection) -> Option<String> {
    let access = facts.access.as_ref().filter(|access| access.has_ended)?;
    Some(format!(
        "the access token {} was revoked or has expired: pushes are answered 410, and the user agent cannot connect \
         with it",
        access.name
    ))
}

fn other_origin(facts: &Inspection) -> Option<String> {
    let endpoint = facts.endpoint.as_ref()?;
    let (origin, ours) = (endpoint.origin.as_ref()?, endpoint.other_origin.as_ref()?);
    Some(format!(
        "the endpoint is of another origin: it begins with {origin}, and the public_url of this server is {ours}; \
         senders sign for the origin of the endpoint"
    ))
}

fn channel(facts: &Inspection, record: &RecordFacts) -> Option<String> {
    let month = facts.months.iter().find(|month| month.month == record.curmonth)?;
    if !month.has_table {
        let month = month.month;
        return Some(format!(
            "there is no message table of {month}, which the user agent is on: it gets a new id when it connects"
        ));
    }
    match (month.channels, month.has_channel) {
        (_, Some(false)) => Some(
            "the channel is not registered: it was unregistered, and pushes are answered 410"
                .to_owned(),
        ),
        (None | Some(0), None) => Some("the user agent has no channels".to_owned()),
        _ => None,
    }
}

fn future(facts: &Inspection, record: &RecordFacts) -> Option<String> {
    let ahead = record.connected_at_ms.checked_sub(facts.at_ms).filter(|ahead| *ahead > 60_000)?;
    let ahead = span(ahead);
    Some(format!(
        "the record is of a connection {ahead} in the future: the clock of a node was wrong; the user agent connects \
         and its pushes arrive nevertheless; correct that clock, and `kalends users repair` sets the record to now"
    ))
}

fn connection(facts: &Inspection, record: &RecordFacts) -> Option<String> {
    let waits = waiting(facts);
    let since = ago(facts, record.connected_at_ms);
    match &facts.connection {
        Connection::Here(session) if session.unacked >= session.unacked_max => Some(format!(
            "the user agent is connected and has not acked {}: it is busy, and further messages are stored{}{waits}",
            count(session.unacked as u64),
            unacked_for(facts, session)
        )),
        Connection::Here(session) if !session.is_ready => Some(format!(
            "the user agent is connected and in the phase {}: pushes are stored until it is ready{waits}",
            session.phase
        )),
        Connection::Here(session) if session.unacked > 0 => Some(format!(
            "the user agent is connected and has not acked {}: a message that it acks late is stored and sent again{}",
            count(session.unacked as u64),
            unacked_for(facts, session)
        )),
        Connection::Here(_) if facts.waiting.messages > 0 => Some(format!(
            "the user agent is connected, and is about to be sent what is stored{waits}"
        )),
        Connection::Here(_) => None,
        Connection::HereAndBusy => Some(
            "the user agent is connected, and its connection is too busy to be observed: try again"
                .to_owned(),
        ),
        Connection::OnNode { node } if facts.waiting.messages > 0 => Some(format!(
            "the user agent is connected to {node}, and messages wait for it: it is busy, or acks too late{waits}"
        )),
        Connection::OnNode { .. } => None,
        Connection::Ended { .. } | Connection::None => Some(format!(
            "the user agent is not connected; it connected last {since}{waits}; a push with a TTL of 0 is dropped"
        )),
        Connection::NodeDown { node, why } => Some(format!(
            "the user agent connected to {node} {since}, and that node does not answer: {why}; pushes are stored \
             until the user agent reconnects{waits}"
        )),
        Connection::Unknown { node } => Some(format!(
            "the user agent connected to {node} {since}; whether it is still connected is known there only{waits}"
        )),
        Connection::Stopped => Some(format!("no server runs on this store{waits}")),
        Connection::Bridge { bridge } => Some(format!(
            "the user agent is reached over {bridge}: this server stores none of its messages; a push that was \
             answered 201 waits there"
        )),
    }
}

fn unfinished_move(facts: &Inspection, record: &RecordFacts) -> Option<String> {
    let (from, to) = (record.oldmonth?, record.curmonth);
    let since = ago(facts, record.connected_at_ms);
    Some(format!(
        "the move from {from} to {to} is unfinished since the connection of {since}: the next connection continues it"
    ))
}

fn message(facts: &Inspection) -> Option<String> {
    let message = facts.message.as_ref().filter(|message| !message.is_waiting)?;
    let id = &message.id;
    let pushed = facts.pushes.as_ref().and_then(|pushes| pushes.first());
    if let Some(push) = pushed.filter(|push| push.outcome == "delivered") {
        let (at, took) = (ago(facts, push.at_ms), push.took_ms);
        return Some(format!("the message {id} was delivered {at}, in {took} ms"));
    }
    Some(match facts.waiting.is_partial {
        true => format!("the message {id} is not among those that were read"),
        false => format!(
            "the message {id} does not wait: it was delivered, replaced by one of its topic, deleted or has expired"
        ),
    })
}

/// How long the acks are missing.
fn unacked_for(facts: &Inspection, session: &SessionFacts) -> String {
    let mut text = String::new();
    if let Some(since) = session.unacked_since_ms {
        text += &format!("; the oldest was sent {}", ago(facts, since));
    }
    if session.overdue > 0 {
        text += &format!("; {} of them are overdue (ack_wait_ms)", session.overdue);
    }
    text
}

/// How the last push ended, if the agent got nothing of it.
fn last_push(facts: &Inspection) -> Option<String> {
    let last = facts.pushes.as_ref().and_then(|pushes| pushes.first());
    // A push is in the history from its outcome on; what it lacks is refused before.
    let before = |refusal: &&Refusal| matches!(refusal.status, 400 | 401 | 403 | 413);
    let refusal = facts.refusals.iter().find(before);
    let refusal = refusal.filter(|it| last.is_none_or(|push| push.at_ms < it.last_ms));
    if let Some(refusal) = refusal {
        return Some(format!("the last push, {}", refusal_text(facts, refusal)));
    }
    let why = match last?.outcome.as_str() {
        "delivered" | "stored" => return None,
        outcome => outcome_text(outcome, None),
    };
    Some(format!("the last push, {}, was {why}", ago(facts, last?.at_ms)))
}

/// A refusal in words, behind what was refused.
pub fn refusal_text(facts: &Inspection, refusal: &Refusal) -> String {
    let Refusal { status, errno, message, request, .. } = refusal;
    let at = ago(facts, refusal.last_ms);
    format!("{at}, was refused with {status}, errno {errno}: {message} (request {request})")
}

/// An outcome in words, with the reason why it was stored.
pub fn outcome_text(outcome: &str, reason: Option<&str>) -> String {
    let known = REASONS.iter().find(|(name, _)| Some(*name) == reason);
    let text = match outcome {
        "delivered" => "delivered",
        "stored" => return known.map_or("stored".to_owned(), |(_, why)| format!("stored: {why}")),
        "dropped" => "dropped: its TTL was 0 and the user agent could not take it at once",
        "user_gone" => "refused with 410: the user agent was unknown",
        "no_such_channel" => "refused with 410: the channel was not registered",
        "full" => "refused with 429: too many messages wait for the user agent or channel",
        "bridge" => "refused by the bridge",
        "other_protocol" => {
            "refused: it was not of the protocol of the user agent (Web Push or SimplePush)"
        }
        "unavailable" => "refused with 503: the store was overloaded, without space or down",
        OVER_LIMIT => "refused with 429: a limit by sender was reached",
        other => other,
    };
    text.to_owned()
}

fn waiting(facts: &Inspection) -> String {
    let messages = facts.waiting.messages;
    let Some(oldest) = facts.waiting.oldest_ms.filter(|_| messages > 0) else {
        return String::new();
    };
    let (verb, oldest) =
        (if messages == 1 { "waits" } else { "wait" }, span(facts.at_ms.saturating_sub(oldest)));
    format!("; {} {verb}, the oldest for {oldest}", count(messages))
}

fn count(messages: u64) -> String {
    if messages == 1 { "1 message".to_owned() } else { format!("{messages} messages") }
}

pub fn ago(facts: &Inspection, time_ms: u64) -> String {
    span(facts.at_ms.saturating_sub(time_ms)) + " ago"
}

fn span(millis: u64) -> String {
    HumanDuration(Duration::from_millis(millis)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::inspect::facts::{
        AccessFacts, EndpointFacts, MessageFacts, MonthFacts, PushFacts, Waiting,
    };
    use crate::push::push_counters::OUTCOMES;
    use state_machine::Uaid;

    const NOW: u64 = 1_795_000_000_000;
    const HOUR: u64 = 3_600_000;

    fn session() -> SessionFacts {
        SessionFacts {
            phase: "Ready".into(),
            is_ready: true,
            unacked: 0,
            overdue: 0,
            unacked_since_ms: None,
            unacked_max: 16,
            pushes_waiting: 0,
            deadline_ms: None,
            deadline_of: None,
        }
    }

    fn facts(connection: Connection) -> Inspection {
        let curmonth = "2026_11".parse().unwrap();
        Inspection {
            at_ms: NOW,
            uaid: Uaid([7; 16]),
            endpoint: None,
            message: None,
            access: None,
            record: Some(RecordFacts {
                router_type: "webpush".into(),
                bridge_app: None,
                curmonth,
                oldmonth: None,
                connected_at_ms: NOW - 2 * HOUR,
                last_connect: 0,
                node: Some("local".into()),
            }),
            months: vec![MonthFacts {
                month: curmonth,
                has_table: true,
                channels: Some(2),
                has_channel: Some(true),
            }],
            waiting: Waiting::default(),
            connection,
            pushes: None,
            refusals: Vec::new(),
            limits_reached: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn waits(mut facts: Inspection, messages: u64) -> Inspection {
        facts.waiting = Waiting { messages, oldest_ms: Some(NOW - 3 * HOUR), ..Waiting::default() };
        facts
    }

    fn node() -> String {
        "http://10.0.0.2:8081".into()
    }

    fn pushed(mut facts: Inspection, outcome: &str) -> Inspection {
        facts.pushes = Some(vec![PushFacts {
            at_ms: NOW - 2 * HOUR,
            took_ms: 7,
            channel: "a channel".into(),
            message: Some("m1".into()),
            ttl_s: 60,
            urgency: "normal".into(),
            outcome: outcome.into(),
            reason: None,
        }]);
        facts
    }

    #[test]
    fn the_outcome_of_the_last_push_is_a_reason_unless_the_agent_has_it_or_gets_it() {
        for outcome in OUTCOMES.into_iter().chain([OVER_LIMIT]) {
            let found = of(&pushed(facts(Connection::Here(session())), outcome));
            assert!(
                ["delivered", "stored"].contains(&outcome)
                    || outcome_text(outcome, None) != outcome,
                "{outcome} has words"
            );
            match outcome {
                "delivered" | "stored" => assert!(found[0].starts_with("nothing hinders a push")),
                _ => assert!(found[0].starts_with("the last push, 2 hours ago, was "), "{found:?}"),
            }
        }
    }

    #[test]
    fn a_stored_push_has_one_reason() {
        for (name, words) in REASONS {
            assert_eq!(outcome_text("stored", Some(name)), format!("stored: {words}"));
        }
        assert_eq!(outcome_text("stored", Some("of a later version")), "stored");
    }

    #[test]
    fn a_refusal_before_the_delivery_is_the_reason_unless_a_later_push_got_there() {
        let refusal = |status, last_ms| Refusal {
            status,
            errno: 109,
            message: "why".into(),
            method: "POST".into(),
            route: None,
            uaid: None,
            chid: None,
            count: 2,
            first_ms: 0,
            last_ms,
            request: "r-1".into(),
        };
        let mut facts = pushed(facts(Connection::Here(session())), "stored");
        facts.refusals = vec![refusal(410, NOW), refusal(401, NOW - HOUR)];
        let why =
            "the last push, 60 minutes ago, was refused with 401, errno 109: why (request r-1)";
        assert_eq!(of(&facts), [why]);
        assert!(
            crate::operate::inspect::text::of(&facts).contains("2 times, last 60 minutes ago, was")
        );
        facts.refusals.remove(1);
        facts.refusals.push(refusal(401, NOW - 3 * HOUR));
        assert!(of(&facts)[0].starts_with("nothing hinders a push"));
    }

    #[test]
    fn a_message_that_was_delivered_has_its_time() {
        let mut facts = pushed(facts(Connection::Here(session())), "delivered");
        facts.message =
            Some(MessageFacts { id: "m1".into(), channel: "a channel".into(), is_waiting: false });
        assert_eq!(of(&facts), ["the message m1 was delivered 2 hours ago, in 7 ms"]);
    }

    /// Exactly one reason, which begins so.
    fn finds(facts: &Inspection, expected: &str) {
        let found = of(facts);
        assert!(found[0].starts_with(expected), "{found:?}\n{expected}");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn each_state_of_the_connection_has_its_sentence() {
        let here = |change: fn(&mut SessionFacts)| {
            let mut session = session();
            change(&mut session);
            facts(Connection::Here(session))
        };
        for (facts, expected) in [
            (
                facts(Connection::Here(session())),
                "nothing hinders a push: the user agent is connected and takes",
            ),
            (
                waits(facts(Connection::None), 3),
                "the user agent is not connected; it connected last 2 hours ago; 3 messages wait, the oldest for 3 \
                 hours; a push with a TTL of 0 is dropped",
            ),
            (
                waits(facts(Connection::Ended { node: node() }), 1),
                "the user agent is not connected; it connected last 2 hours ago; 1 message waits",
            ),
            (
                here(|session| session.unacked = 16),
                "the user agent is connected and has not acked 16 messages: it is busy",
            ),
            (
                here(|session| session.unacked = 1),
                "the user agent is connected and has not acked 1 message: a message",
            ),
            (
                here(|session| {
                    session.is_ready = false;
                    session.phase = "DrainingOldMonth".into();
                }),
                "the user agent is connected and in the phase DrainingOldMonth: pushes are stored",
            ),
            (
                waits(here(|_| ()), 2),
                "the user agent is connected, and is about to be sent what is stored; 2",
            ),
        ] {
            finds(&facts, expected);
        }
    }

    #[test]
    fn each_state_elsewhere_has_its_sentence() {
        for (facts, expected) in [
            (
                facts(Connection::HereAndBusy),
                "the user agent is connected, and its connection is too busy",
            ),
            (facts(Connection::OnNode { node: node() }), "nothing hinders a push"),
            (
                waits(facts(Connection::OnNode { node: node() }), 2),
                "the user agent is connected to http://10.0.0.2:8081, and messages wait",
            ),
            (
                facts(Connection::NodeDown { node: node(), why: "no answer in 500 ms".into() }),
                "the user agent connected to http://10.0.0.2:8081 2 hours ago, and that node does not answer: no \
                 answer in 500 ms; pushes are stored",
            ),
            (
                facts(Connection::Unknown { node: node() }),
                "the user agent connected to http://10.0.0.2:8081 2 hours ago; whether",
            ),
            (waits(facts(Connection::Stopped), 2), "no server runs on this store; 2 messages wait"),
            (
                facts(Connection::Bridge { bridge: "fcm".into() }),
                "the user agent is reached over fcm",
            ),
        ] {
            finds(&facts, expected);
        }
    }

    #[test]
    fn what_is_wrong_with_the_endpoint_or_the_record_comes_first() {
        let mut gone = facts(Connection::None);
        gone.record = None;
        assert!(of(&gone)[0].starts_with("there is no record of the user agent"));

        let mut ended = gone;
        ended.access = Some(AccessFacts { name: "alice".into(), has_ended: true });
        assert!(of(&ended)[0].starts_with("the access token alice was revoked or has expired"));
        ended.access = Some(AccessFacts { name: "alice".into(), has_ended: false });
        assert!(of(&ended)[0].starts_with("there is no record of the user agent"));

        let mut unregistered = facts(Connection::None);
        unregistered.months[0].has_channel = Some(false);
        assert!(of(&unregistered)[0].starts_with("the channel is not registered"));
        unregistered.months[0] =
            MonthFacts { channels: None, has_channel: None, ..unregistered.months[0].clone() };
        assert_eq!(of(&unregistered)[0], "the user agent has no channels");
        unregistered.months[0].has_table = false;
        assert!(of(&unregistered)[0].starts_with("there is no message table of 2026_11"));

        let mut moving = facts(Connection::None);
        moving.record.as_mut().unwrap().oldmonth = Some("2026_10".parse().unwrap());
        let found = of(&moving);
        assert!(
            found[1].starts_with("the move from 2026_10 to 2026_11 is unfinished"),
            "{found:?}"
        );

        let mut slow = session();
        (slow.unacked, slow.overdue, slow.unacked_since_ms) = (5, 3, Some(NOW - 2 * HOUR));
        let found = of(&facts(Connection::Here(slow)));
        assert!(
            found[0].ends_with(
                "; the oldest was sent 2 hours ago; 3 of them are overdue (ack_wait_ms)"
            ),
            "{found:?}"
        );

        let mut ahead = facts(Connection::None);
        ahead.record.as_mut().unwrap().connected_at_ms = NOW + 2 * HOUR;
        assert!(of(&ahead)[0].starts_with("the record is of a connection 2 hours in the future"));
    }

    #[test]
    fn another_origin_a_limit_and_a_message_that_is_gone_are_named() {
        let mut facts = facts(Connection::Here(session()));
        facts.endpoint = Some(EndpointFacts {
            kind: "short".into(),
            channel: String::new(),
            restricted_to: None,
            crypto_key: 1,
            crypto_key_fingerprint: String::new(),
            origin: Some("https://old.example.net".into()),
            other_origin: Some("https://push.example.net".into()),
        });
        facts.limits_reached = vec!["subscription_pushes_per_minute_max".into()];
        facts.message =
            Some(MessageFacts { id: "ab".into(), channel: String::new(), is_waiting: false });
        let found = of(&facts);
        assert!(
            found[0].starts_with("the endpoint is of another origin: it begins with https://old.")
        );
        assert!(
            found[1].starts_with("subscription_pushes_per_minute_max refuses further requests")
        );
        assert!(found[2].starts_with("the message ab does not wait: it was delivered"));
        facts.waiting.is_partial = true;
        assert!(of(&facts)[2].ends_with("is not among those that were read"));
        facts.message.as_mut().unwrap().is_waiting = true;
        assert_eq!(of(&facts).len(), 2);
    }
}
