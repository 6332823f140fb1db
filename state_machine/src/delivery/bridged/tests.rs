use super::*;
use crate::bridge::BridgeName;
use crate::bridge::BridgeRecipient;
use crate::delivery::{Delivery, PushParams};
use crate::ids::NodeId;
use crate::time::{Span, Time};

fn month(text: &str) -> Month {
    text.parse().unwrap()
}

fn recipient(token: &str) -> Box<BridgeRecipient> {
    let (bridge, app, token) = (BridgeName::Fcm, "app".into(), token.into());
    Box::new(BridgeRecipient { bridge, app, token, aps: None })
}

fn route(curmonth: &str, oldmonth: Option<&str>, token: &str) -> Option<Route> {
    let (recipient, oldmonth) = (recipient(token), oldmonth.map(month));
    let bridged = Some(BridgedRoute { recipient, oldmonth });
    Some(Route { node: None, connected_at: Time(5), curmonth: month(curmonth), bridged })
}

fn read(curmonth: &str, oldmonth: Option<&str>, token: &str) -> Is {
    Is::RecordRead(Ok(route(curmonth, oldmonth, token)))
}

fn this_month() -> Is {
    read("2026_11", None, "one")
}

fn confirmed(is_registered: bool) -> Is {
    Is::ChannelConfirmed(Ok(is_registered))
}

fn confirm(name: &str) -> Vec<Do> {
    vec![Do::ConfirmChannel { month: month(name) }]
}

fn send(token: &str) -> Vec<Do> {
    vec![Do::SendToBridge { recipient: recipient(token) }]
}

fn drop_recipient(token: &str) -> Vec<Do> {
    vec![Do::DropRecipient { recipient: recipient(token) }]
}

/// The effects of each event, after the first read of the record. The message has a TTL of zero or not: that changes
/// nothing.
fn run<const N: usize>(events: &[Is; N]) -> Vec<Vec<Do>> {
    let (this_month, message_month) = (month("2026_12"), month("2026_11"));
    let [with, without] = [false, true].map(|ttl_is_zero| {
        let params = PushParams { ttl_is_zero, stores_first: false, this_month, message_month };
        let (mut delivery, first) = Delivery::begin(params);
        assert_eq!(first, Do::ReadRecord);
        let effects: Vec<_> = events.iter().map(|event| delivery.step(event.clone())).collect();
        let is_answered = matches!(effects.last().unwrap().last(), Some(Do::Answer(_)));
        assert_eq!(delivery.is_done(), is_answered);
        effects
    });
    assert_eq!(with, without);
    with
}

fn last<const N: usize>(events: &[Is; N]) -> Vec<Do> {
    run(events).pop().unwrap()
}

#[test]
fn an_accepted_push_costs_two_reads_and_no_write() {
    let accepted = Is::BridgeAnswered(BridgeOutcome::Accepted);
    let effects = run(&[this_month(), confirmed(true), accepted]);
    assert_eq!(effects, [confirm("2026_11"), send("one"), answer(Outcome::Delivered)]);
}

#[test]
fn a_refusal_of_the_bridge_is_the_answer() {
    for outcome in [
        BridgeOutcome::TooLarge { max_bytes: 4000 },
        BridgeOutcome::Busy { retry_after: Some(Span(7000)) },
        BridgeOutcome::UnknownApp,
        BridgeOutcome::Misconfigured,
        BridgeOutcome::Unauthorized,
        BridgeOutcome::Unavailable,
        BridgeOutcome::TimedOut,
    ] {
        let refused = Is::BridgeAnswered(outcome);
        let effects = last(&[this_month(), confirmed(true), refused]);
        assert_eq!(effects, answer(Outcome::Bridge(outcome)));
    }
}

#[test]
fn an_agent_of_another_month_is_moved_before_its_channel_is_confirmed() {
    for (curmonth, oldmonth) in [("2026_10", None), ("2026_11", Some("2026_10"))] {
        let moved = Is::AgentMoved(Ok(route("2026_11", None, "one")));
        let effects = run(&[read(curmonth, oldmonth, "one"), moved]);
        assert_eq!(effects, [vec![Do::MoveAgent], confirm("2026_11")]);
    }
    let effects = last(&[read("2026_10", None, "one"), Is::AgentMoved(Ok(None))]);
    assert_eq!(effects, answer(Outcome::NoSuchUser));
}

#[test]
fn a_push_goes_on_in_the_months_of_the_record_if_the_move_fails() {
    let failed = || Is::AgentMoved(Err(StoreFailed));
    let effects = run(&[read("2026_10", None, "one"), failed(), confirmed(true)]);
    assert_eq!(effects, [vec![Do::MoveAgent], confirm("2026_10"), send("one")]);
    let moving = read("2026_11", Some("2026_10"), "one");
    let effects = run(&[moving, failed(), confirmed(false), confirmed(true)]);
    assert_eq!(effects[1..], [confirm("2026_11"), confirm("2026_10"), send("one")]);
}

#[test]
fn a_missing_channel_is_answered_only_after_the_record_was_read_again() {
    let again = this_month();
    let effects = run(&[this_month(), confirmed(false), again]);
    assert_eq!(effects[1..], [vec![Do::ReadRecord], answer(Outcome::NoSuchChannel)]);
    let effects =
        run(&[this_month(), confirmed(false), read("2026_12", None, "two"), confirmed(true)]);
    assert_eq!(effects[2..], [confirm("2026_12"), send("two")]);
    for gone in [
        Is::RecordRead(Ok(None)),
        Is::RecordRead(Ok(Some(Route {
            node: Some(NodeId::new("a")),
            connected_at: Time(6),
            curmonth: month("2026_11"),
            bridged: None,
        }))),
    ] {
        let effects = last(&[this_month(), confirmed(false), gone]);
        assert_eq!(effects, answer(Outcome::NoSuchUser));
    }
}

#[test]
fn a_record_that_moves_at_each_read_makes_the_push_unavailable() {
    let other = |name| read(name, None, "one");
    let effects = last(&[
        this_month(),
        confirmed(false),
        other("2026_12"),
        confirmed(false),
        other("2027_01"),
        confirmed(false),
        other("2027_02"),
        confirmed(false),
    ]);
    assert_eq!(effects, answer(Outcome::Unavailable));
}

#[test]
fn a_recipient_that_is_gone_is_dropped_before_the_answer() {
    let gone = BridgeOutcome::RecipientGone;
    let dropped = Is::RecipientDropped(Ok(true));
    let effects = run(&[this_month(), confirmed(true), Is::BridgeAnswered(gone), dropped]);
    assert_eq!(effects[2..], [drop_recipient("one"), answer(Outcome::Bridge(gone))]);
}

#[test]
fn a_recipient_that_was_replaced_meanwhile_gets_the_message() {
    let gone = || Is::BridgeAnswered(BridgeOutcome::RecipientGone);
    let other = || Is::RecipientDropped(Ok(false));
    let start = || [this_month(), confirmed(true), gone(), other()];
    let [a, b, c, d] = start();
    let replaced = read("2026_11", None, "two");
    let effects = run(&[a, b, c, d, replaced, confirmed(true)]);
    assert_eq!(effects[3..], [vec![Do::ReadRecord], confirm("2026_11"), send("two")]);
    let [a, b, c, d] = start();
    let effects = last(&[a, b, c, d, Is::RecordRead(Ok(None))]);
    assert_eq!(effects, answer(Outcome::Bridge(BridgeOutcome::RecipientGone)));
}

#[test]
fn a_store_that_fails_makes_the_push_unavailable() {
    let unavailable = answer(Outcome::Unavailable);
    let failed = || Is::ChannelConfirmed(Err(StoreFailed));
    assert_eq!(last(&[this_month(), failed()]), unavailable);
    let moving = read("2026_11", Some("2026_10"), "one");
    let not_moved = Is::AgentMoved(Err(StoreFailed));
    assert_eq!(last(&[moving, not_moved, confirmed(false), failed()]), unavailable);
    let reread = Is::RecordRead(Err(StoreFailed));
    assert_eq!(last(&[this_month(), confirmed(false), reread.clone()]), unavailable);
    let gone = || Is::BridgeAnswered(BridgeOutcome::RecipientGone);
    let not_dropped = Is::RecipientDropped(Err(StoreFailed));
    assert_eq!(last(&[this_month(), confirmed(true), gone(), not_dropped]), unavailable);
    let other = Is::RecipientDropped(Ok(false));
    assert_eq!(last(&[this_month(), confirmed(true), gone(), other, reread]), unavailable);
}

#[test]
fn an_event_of_another_state_changes_nothing() {
    let effects = run(&[
        this_month(),
        Is::BridgeAnswered(BridgeOutcome::Accepted),
        Is::NodeCleared,
        confirmed(true),
        confirmed(true),
    ]);
    assert_eq!(effects, [confirm("2026_11"), vec![], vec![], send("one"), vec![]]);
}
