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
        has_rivals: false,
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
        waits: None,
    }]);
    facts
}

#[test]
fn a_stored_push_is_told_with_what_became_of_its_message() {
    let text = |outcome, waits| {
        let mut facts = pushed(facts(Connection::Here(session())), outcome);
        let pushes = facts.pushes.as_mut().expect("there is a push");
        pushes[0].waits = waits;
        crate::operate::inspect::text::of(&facts)
    };
    let gone =
        "stored; since then it was delivered, replaced by one of its topic, deleted or has expired";
    for (waits, expected) in [
        (Some(true), "stored; it waits"),
        (Some(false), gone),
        (None, "stored; whether it was delivered since is not known here"),
    ] {
        let text = text("stored", waits);
        assert!(text.contains(&format!("TTL 60 s, normal: {expected}\n")), "{text}");
    }
    assert!(text("delivered", None).contains("TTL 60 s, normal: delivered\n"));
}

#[test]
fn the_outcome_of_the_last_push_is_a_reason_unless_the_agent_has_it_or_gets_it() {
    for outcome in OUTCOMES.into_iter().chain([OVER_LIMIT]) {
        let found = of(&pushed(facts(Connection::Here(session())), outcome));
        assert!(
            ["delivered", STORED].contains(&outcome) || outcome_text(outcome, None) != outcome,
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
    let why = "the last push, 60 minutes ago, was refused with 401, errno 109: why (request r-1)";
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
        (facts(Connection::Bridge { bridge: "fcm".into() }), "the user agent is reached over fcm"),
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
    assert!(found[1].starts_with("the move from 2026_10 to 2026_11 is unfinished"), "{found:?}");

    let mut slow = session();
    (slow.unacked, slow.overdue, slow.unacked_since_ms) = (5, 3, Some(NOW - 2 * HOUR));
    let found = of(&facts(Connection::Here(slow)));
    assert!(
        found[0]
            .ends_with("; the oldest was sent 2 hours ago; 3 of them are overdue (ack_wait_ms)"),
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
    assert!(found[0].starts_with("the endpoint is of another origin: it begins with https://old."));
    assert!(found[1].starts_with("subscription_pushes_per_minute_max refuses further requests"));
    assert!(found[2].starts_with("the message ab does not wait: it was delivered"));
    facts.waiting.is_partial = true;
    assert!(of(&facts)[2].ends_with("is not among those that were read"));
    facts.message.as_mut().unwrap().is_waiting = true;
    assert_eq!(of(&facts).len(), 2);
}
