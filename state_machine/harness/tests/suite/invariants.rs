//! Each rule is broken once by an invented connection, to prove that its checker reports it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod nodes;

use std::collections::BTreeSet;
use std::sync::Arc;

use harness::invariants::{Broken, ConnectionChecker, Invariant, StepRecord, waits_until};
use harness::transcript::{Bindings, Input, Transcript};
use state_machine::broadcast::{BroadcastRefusal, BroadcastUpdate, Versions};
use state_machine::connection::{CloseReason, Effect, Event, Limits, PhaseName, PushAnswer, Wait};
use state_machine::feed::{FeedKey, FeedSyncId, FeedValue};
use state_machine::store::StoreOp;
use state_machine::wire::{ClientMessage, ServerMessage, status};
use state_machine::{Chid, Message, Month, OpId, PushId, Span, Time, Uaid, Urgency};

/// A connection that consists of its checker alone.
struct Story {
    checker: ConnectionChecker,
    phase: PhaseName,
    now: Time,
    unacked: usize,
}

impl Story {
    /// A ready connection of `U1`, with a window for two messages that remembers one ack.
    fn ready() -> Self {
        let limits = Limits {
            unacked_max: 2,
            remembered_acks_max: 1,
            ..harness::transcript::default_limits()
        };
        let config = harness::transcript::default_config(limits);
        let checker = ConnectionChecker::new(Arc::new(config));
        let phase = PhaseName::AwaitingHello;
        let mut story = Self { checker, phase, now: Time(0), unacked: 0 };
        let effects = [Effect::Register { uaid: uaid() }, hello()];
        story.goes_on(PhaseName::Ready, &said("hello"), &effects).unwrap();
        story
    }

    fn step(&mut self, event: &Event, effects: &[Effect]) -> Result<(), Broken<Invariant>> {
        self.goes_on(self.phase, event, effects)
    }

    fn goes_on(
        &mut self,
        after: PhaseName,
        event: &Event,
        effects: &[Effect],
    ) -> Result<(), Broken<Invariant>> {
        let is_closed = after == PhaseName::Closed;
        let deadline = (!is_closed).then_some((self.now + Span(1), Wait::Keepalive));
        self.ends(after, event, effects, deadline)
    }

    fn ends(
        &mut self,
        after: PhaseName,
        event: &Event,
        effects: &[Effect],
        deadline: Option<(Time, Wait)>,
    ) -> Result<(), Broken<Invariant>> {
        let Self { now, unacked, phase: before, .. } = *self;
        self.phase = after;
        self.checker.observe(&StepRecord { now, event, effects, before, after, unacked, deadline })
    }

    /// A push arrives and is sent.
    fn push(&mut self, push: &str) -> Result<(), Broken<Invariant>> {
        let event = arrived(push);
        let sent = send(&event);
        self.unacked += 1;
        self.step(&event, &[sent])
    }

    fn closes(&mut self, effects: &[Effect]) -> Result<(), Broken<Invariant>> {
        self.unacked = 0;
        self.goes_on(PhaseName::Closed, &Event::SocketClosed, effects)
    }

    fn ends_with(&mut self, event: &Event, reason: CloseReason) -> Result<(), Broken<Invariant>> {
        let end = Self::end(reason);
        self.goes_on(PhaseName::Closed, event, &end)
    }

    /// The last effects of a connection of `U1`.
    fn end(reason: CloseReason) -> [Effect; 2] {
        [Effect::Deregister { uaid: uaid() }, Effect::Close(reason)]
    }
}

#[track_caller]
fn breaks(invariant: Invariant, result: Result<(), Broken<Invariant>>) {
    assert_eq!(result.unwrap_err().rule, invariant);
}

#[test]
fn the_rules_are_named_once() {
    let names: BTreeSet<&str> = Invariant::ALL.iter().map(|invariant| invariant.name()).collect();
    assert_eq!(names.len(), Invariant::ALL.len());
    assert!(Invariant::ALL.iter().all(|invariant| invariant.sentence().ends_with('.')));
}

#[test]
fn a_push_has_one_answer_and_it_fits() {
    use Invariant::{AcceptedMeansAcked, BusyMeansNotSent, PushAnsweredOnce, UnconfirmedMeansSent};
    let push = "7 M1 C1 ttl=60s";
    for (answer, invariant) in
        [(PushAnswer::Accepted, AcceptedMeansAcked), (PushAnswer::Busy, BusyMeansNotSent)]
    {
        let mut story = Story::ready();
        story.push(push).unwrap();
        breaks(invariant, story.step(&Event::PeerActive, &[answered(push, answer)]));
    }
    let unsent = [answered(push, PushAnswer::Unconfirmed)];
    breaks(UnconfirmedMeansSent, Story::ready().step(&arrived(push), &unsent));
    let twice = [answered(push, PushAnswer::Busy), answered(push, PushAnswer::Busy)];
    breaks(PushAnsweredOnce, Story::ready().step(&arrived(push), &twice));
    let mut story = Story::ready();
    story.push(push).unwrap();
    let close = [Effect::Deregister { uaid: uaid() }, Effect::Close(CloseReason::SocketClosed)];
    breaks(PushAnsweredOnce, story.closes(&close));
}

#[test]
fn a_push_waits_for_no_more_than_an_ack() {
    let push = "7 M1 C1 ttl=60s";
    breaks(Invariant::PushAnsweredInTime, Story::ready().step(&arrived(push), &[]));
    let mut story = Story::ready();
    story.push(push).unwrap();
    story.now = Time(1000);
    breaks(Invariant::PushAnsweredInTime, story.step(&Event::TimePassed, &[]));
}

#[test]
fn a_message_is_sent_again_only_when_its_ack_is_long_forgotten() {
    let fleeting = "7 M1 C1 ttl=0ms";
    let accepted = answered(fleeting, PushAnswer::Accepted);
    let mut story = Story::ready();
    story.unacked = 1;
    let sent = [send(&arrived(fleeting)), accepted];
    story.step(&arrived(fleeting), &sent).unwrap();
    breaks(Invariant::SentOnce, story.step(&arrived(fleeting), &sent));

    let mut story = Story::ready();
    story.step(&acked("M1"), &[]).unwrap();
    story.unacked = 1;
    breaks(Invariant::AckedNeverSent, story.step(&arrived(fleeting), &sent));

    let mut story = Story::ready();
    story.step(&acked("M1"), &[]).unwrap();
    story.step(&acked("M2"), &[]).unwrap();
    story.unacked = 1;
    story.step(&arrived(fleeting), &sent).unwrap();
}

#[test]
fn a_message_that_waits_for_its_ack_is_not_deleted() {
    let push = "7 M1 C1 ttl=60s";
    let mut story = Story::ready();
    story.push(push).unwrap();
    breaks(Invariant::UnackedNeverDeleted, story.step(&Event::PeerActive, &[delete(0, push)]));
}

/// The answer to its push is lost, so the endpoint stores it: its row is deleted, though the message was sent again.
#[test]
fn a_message_that_was_acked_before_it_was_sent_again_may_be_deleted() {
    let [first, second] = ["1 M1 C1 ttl=60s", "2 M2 C1 ttl=60s"];
    let mut story = Story::ready();
    for (push, message) in [(first, "M1"), (second, "M2")] {
        story.push(push).unwrap();
        story.unacked = 0;
        story.step(&acked(message), &[answered(push, PushAnswer::Accepted)]).unwrap();
    }
    story.unacked = 1;
    story.step(&Event::PeerActive, &[send(&arrived(first))]).unwrap();
    let lost = Event::AckReplyLost(brought(&arrived(first)).1.key());
    story.step(&lost, &[delete(0, first)]).unwrap();
}

/// A repeated ack is not remembered for longer than the first.
#[test]
fn a_message_acked_twice_long_ago_may_be_sent_again() {
    let mut story = Story::ready();
    for message in ["M1", "M2", "M1"] {
        story.step(&acked(message), &[]).unwrap();
    }
    story.unacked = 1;
    story.step(&Event::PeerActive, &[send(&arrived("7 M1 C1 ttl=60s"))]).unwrap();
}

#[test]
fn the_window_is_bounded_and_counted() {
    let mut story = Story::ready();
    story.push("1 M1 C1 ttl=60s").unwrap();
    story.push("2 M2 C1 ttl=60s").unwrap();
    breaks(Invariant::WindowBounded, story.push("3 M3 C1 ttl=60s"));
    let mut story = Story::ready();
    story.unacked = 1;
    breaks(Invariant::WindowCounted, story.step(&Event::PeerActive, &[]));
}

#[test]
fn numbers_of_orders_only_grow() {
    let mut story = Story::ready();
    story.step(&Event::PeerActive, &[delete(4, "7 M1 C1 ttl=60s")]).unwrap();
    breaks(
        Invariant::OrdersNumbered,
        story.step(&Event::PeerActive, &[delete(4, "7 M1 C1 ttl=60s")]),
    );
}

#[test]
fn commands_are_answered_in_their_time_and_order() {
    let urgency = |status| Effect::Send(ServerMessage::UrgencySet { status });
    let mut story = Story::ready();
    story.phase = PhaseName::Identified;
    story.step(&said("low"), &[urgency(status::UNAVAILABLE)]).unwrap();
    let too_soon = story.step(&said("low"), &[urgency(status::OK)]);
    breaks(Invariant::CommandsWaitForReady, too_soon);

    let mut story = Story::ready();
    story.step(&said("register"), &[]).unwrap();
    breaks(Invariant::CommandsInOrder, story.step(&said("low"), &[urgency(status::OK)]));
    breaks(
        Invariant::CommandsInOrder,
        Story::ready().step(&Event::PeerActive, &[urgency(status::OK)]),
    );
}

#[test]
fn hello_is_answered_once_and_first_and_with_the_right_uaid() {
    breaks(Invariant::HelloFirst, Story::ready().step(&said("hello"), &[hello()]));
    let other =
        Effect::Send(ServerMessage::Registered { uaid: Uaid([1; 16]), chid: chid(), key: None });
    breaks(Invariant::HelloFirst, Story::ready().step(&said("register"), &[other]));
}

#[test]
fn a_connection_is_found_under_one_name_until_it_closes() {
    let enter = Effect::Register { uaid: uaid() };
    let leave = Effect::Deregister { uaid: Uaid([1; 16]) };
    let close = Effect::Close(CloseReason::SocketClosed);
    for result in [
        Story::ready().step(&Event::PeerActive, &[enter]),
        Story::ready().step(&Event::PeerActive, &[leave]),
        Story::ready().closes(&[close]),
    ] {
        breaks(Invariant::FoundUnderOneName, result);
    }
}

#[test]
fn what_is_less_urgent_than_wanted_is_held_back() {
    let mut story = Story::ready();
    let set = Effect::Send(ServerMessage::UrgencySet { status: status::OK });
    story.step(&said("low"), &[set]).unwrap();
    breaks(Invariant::UrgencyRespected, story.push("7 M1 C1 ttl=60s urgency=very-low"));
}

#[test]
fn nothing_follows_the_close() {
    let leave = Effect::Deregister { uaid: uaid() };
    let close = Effect::Close(CloseReason::SocketClosed);
    let more = [leave.clone(), close.clone(), Effect::Ping];
    breaks(Invariant::SilentAfterClose, Story::ready().closes(&more));
    let still_open = Story::ready().step(&Event::PeerActive, &[leave.clone(), close.clone()]);
    breaks(Invariant::SilentAfterClose, still_open);
    breaks(Invariant::SilentAfterClose, Story::ready().closes(std::slice::from_ref(&leave)));

    let push = "7 M1 C1 ttl=60s";
    let mut story = Story::ready();
    story.closes(&[leave, close]).unwrap();
    story.step(&arrived(push), &[answered(push, PushAnswer::Busy)]).unwrap();
    breaks(Invariant::SilentAfterClose, story.step(&arrived(push), &[]));
    breaks(Invariant::SilentAfterClose, story.step(&Event::PeerActive, &[Effect::Ping]));
}

#[test]
fn a_deadline_lies_ahead_and_there_is_one() {
    for deadline in [None, Some((Time(0), Wait::Keepalive))] {
        let result = Story::ready().ends(PhaseName::Ready, &Event::TimePassed, &[], deadline);
        breaks(Invariant::DeadlinesMove, result);
    }
}

#[test]
fn nothing_is_due_before_the_deadline_and_nothing_ever_without_one() {
    /// Rings once at this time, and gives these effects.
    fn rings(at: u64, effects: Vec<Effect>) -> impl FnOnce(&mut bool, Time) -> Vec<Effect> {
        move |has_rung: &mut bool, now: Time| {
            *has_rung = now >= Time(at);
            if *has_rung { effects } else { Vec::new() }
        }
    }
    for effects in [vec![Effect::Ping], Vec::new()] {
        let effects = || effects.clone();
        assert_eq!(waits_until(&false, Some(Time(7)), rings(7, effects())), Ok(()));
        assert!(waits_until(&false, Some(Time(8)), rings(7, effects())).is_err());
        assert!(waits_until(&false, None, rings(7, effects())).is_err());
    }
}

#[test]
fn an_agent_receives_the_broadcasts_that_it_named_and_that_exist() {
    let named = r#"agent> {"messageType":"broadcast_subscribe","broadcasts":{"a":"v0"}}"#;
    let story = |all: &str| {
        let mut story = Story::ready();
        story.step(&line(named), &[]).unwrap();
        (story, line(&format!("node> broadcasts {all}")))
    };
    let follow = Effect::SubscribeBroadcasts { last_sent: FeedSyncId(1) };
    let (mut right, told) = story("[1 a v1]");
    right.step(&told, &[follow.clone(), broadcast("a", "v1")]).unwrap();
    for wrong in [broadcast("b", "v1"), broadcast("a", "v2"), told_of(BroadcastUpdate::default())] {
        let (mut story, told) = story("[1 a v1, 2 b v1]");
        breaks(Invariant::BroadcastsNamed, story.step(&told, &[follow.clone(), wrong]));
    }
    for (id, refusal) in [("a", BroadcastRefusal::NotFound), ("a", BroadcastRefusal::TooMany)] {
        let (mut story, told) = story("[1 a v1]");
        let refused = [(key(id), refusal)].into();
        let refused = told_of(BroadcastUpdate { refused, ..BroadcastUpdate::default() });
        breaks(Invariant::BroadcastsNamed, story.step(&told, &[follow.clone(), refused]));
    }
    let (mut silent, told) = story("[1 a v1]");
    breaks(Invariant::BroadcastsDelivered, silent.step(&told, std::slice::from_ref(&follow)));
    let (mut unfollowed, told) = story("[1 a v0]");
    breaks(Invariant::BroadcastsFollowed, unfollowed.step(&told, &[]));
}

#[test]
fn broadcasts_are_followed_once_and_left_at_the_end() {
    let follow = || Effect::SubscribeBroadcasts { last_sent: FeedSyncId(1) };
    let mut story = Story::ready();
    breaks(Invariant::BroadcastsFollowed, story.step(&Event::PeerActive, &[follow(), follow()]));
    let mut story = Story::ready();
    breaks(
        Invariant::BroadcastsFollowed,
        story.step(&Event::PeerActive, &[Effect::UnsubscribeBroadcasts]),
    );
    let mut story = Story::ready();
    story.step(&Event::PeerActive, &[follow()]).unwrap();
    let close = [Effect::Deregister { uaid: uaid() }, Effect::Close(CloseReason::SocketClosed)];
    breaks(Invariant::BroadcastsFollowed, story.closes(&close));
}

fn broadcast(id: &str, version: &str) -> Effect {
    let versions = [(key(id), FeedValue::parse(version).unwrap())].into();
    told_of(BroadcastUpdate { versions, ..BroadcastUpdate::default() })
}

fn told_of(news: BroadcastUpdate) -> Effect {
    Effect::Send(ServerMessage::Broadcast(news))
}

fn key(id: &str) -> FeedKey {
    FeedKey::parse(id).unwrap()
}

fn uaid() -> Uaid {
    Bindings::fixed().text("U1").unwrap().parse().unwrap()
}

fn chid() -> Chid {
    Bindings::fixed().text("C1").unwrap().parse().unwrap()
}

fn hello() -> Effect {
    Effect::Send(ServerMessage::Hello { uaid: uaid(), broadcasts: BroadcastUpdate::default() })
}

fn said(what: &str) -> Event {
    Event::MessageReceived(match what {
        "hello" => {
            ClientMessage::Hello { uaid: None, broadcasts: Versions::new(), use_webpush: true }
        }
        "register" => ClientMessage::Register { chid: chid(), key: None },
        _ => ClientMessage::Urgency { min: Urgency::Low },
    })
}

/// The event of an input line of a transcript.
fn line(text: &str) -> Event {
    let script = format!("# A line.\nat 1970-01-01T00:00:00Z\n{text}\n");
    let step = Transcript::parse(&script).unwrap().steps.remove(0);
    match &step.input {
        Input::Frame(_) | Input::Event(_) => step.input.event(&Bindings::fixed()).unwrap(),
        Input::Wait(_) => Event::TimePassed,
    }
}

fn arrived(push: &str) -> Event {
    line(&format!("push> {push}"))
}

fn acked(message: &str) -> Event {
    line(&format!(
        r#"agent> {{"messageType":"ack","updates":[{{"channelID":"{{C1}}","version":"{{{message}}}"}}]}}"#
    ))
}

fn brought(push: &Event) -> (PushId, Message) {
    match push {
        Event::PushArrived { push, message } => (*push, message.clone()),
        other => panic!("{other:?} is no push"),
    }
}

fn send(push: &Event) -> Effect {
    Effect::Send(ServerMessage::Notification(brought(push).1))
}

fn answered(push: &str, answer: PushAnswer) -> Effect {
    let (push, message) = brought(&arrived(push));
    Effect::AnswerPush { push, answer, message: message.key() }
}

fn delete(op: u32, push: &str) -> Effect {
    let messages = vec![brought(&arrived(push)).1.key()];
    let months = vec![Month::new(2026, 11).unwrap()];
    Effect::SubmitStoreOp {
        op: OpId(op),
        operation: StoreOp::Delete { uaid: uaid(), months, messages, acks: Vec::new() },
    }
}
