//! Why a push may not arrive: sentences that follow from the facts alone.

use std::time::Duration;

use indicatif::HumanDuration;

use super::facts::{Connection, Inspection, PushFacts, RecordFacts, SessionFacts};
use crate::push::push_history::{OVER_LIMIT, REASONS, STORED};
use crate::push::refusals::Refusal;
use crate::system::printable::count;

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
            all.extend(rivals(facts));
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

fn rivals(facts: &Inspection) -> Option<String> {
    facts.has_rivals.then(|| {
        "two programs use this uaid: each of them closes the connection of the other, and messages reach either; give \
         one of them a new profile"
            .to_owned()
    })
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
         and its pushes arrive nevertheless; correct that clock, and the command kalends users repair sets the record to now"
    ))
}

fn connection(facts: &Inspection, record: &RecordFacts) -> Option<String> {
    let waits = waiting(facts);
    let since = ago(facts, record.connected_at_ms);
    match &facts.connection {
        Connection::Here(session) if session.unacked >= session.unacked_max => Some(format!(
            "the user agent is connected and has not acked {}: it is busy, and further messages are stored{}{waits}",
            count(session.unacked as u64, "message"),
            unacked_for(facts, session)
        )),
        Connection::Here(session) if !session.is_ready => Some(format!(
            "the user agent is connected and in the phase {}: pushes are stored until it is ready{waits}",
            session.phase
        )),
        Connection::Here(session) if session.unacked > 0 => Some(format!(
            "the user agent is connected and has not acked {}: a message that it acks late is stored and sent again{}",
            count(session.unacked as u64, "message"),
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
        false => format!("the message {id} does not wait: it was {GONE}"),
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
        "delivered" | STORED => return None,
        outcome => outcome_text(outcome, None),
    };
    Some(format!("the last push, {}, was {why}", ago(facts, last?.at_ms)))
}

/// A refusal in words, behind what was refused.
pub fn refusal_text(facts: &Inspection, refusal: &Refusal) -> String {
    let Refusal { message, request, .. } = refusal;
    let (at, code) = (ago(facts, refusal.last_ms), refusal.code());
    format!("{at}, was refused with {code}: {message} (request {request})")
}

/// How a push ended, and what has become since of a message that was stored.
pub fn push_text(push: &PushFacts) -> String {
    let text = outcome_text(&push.outcome, push.reason.as_deref());
    if push.outcome != STORED {
        return text;
    }
    match push.waits {
        Some(true) => format!("{text}; it waits"),
        Some(false) => format!("{text}; since then it was {GONE}"),
        None => format!("{text}; whether it was delivered since is not known here"),
    }
}

/// What may have become of a message that does not wait any more. Nothing is kept of it, but the receipt if there is one.
const GONE: &str = "delivered, replaced by one of its topic, deleted or has expired";

/// An outcome in words, with the reason why it was stored.
pub fn outcome_text(outcome: &str, reason: Option<&str>) -> String {
    let known = REASONS.iter().find(|(name, _)| Some(*name) == reason);
    let text = match outcome {
        "delivered" => "delivered",
        STORED => return known.map_or("stored".to_owned(), |(_, why)| format!("stored: {why}")),
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
    format!("; {} {verb}, the oldest for {oldest}", count(messages, "message"))
}

pub fn ago(facts: &Inspection, time_ms: u64) -> String {
    span(facts.at_ms.saturating_sub(time_ms)) + " ago"
}

fn span(millis: u64) -> String {
    HumanDuration(Duration::from_millis(millis)).to_string()
}

#[cfg(test)]
mod tests;
