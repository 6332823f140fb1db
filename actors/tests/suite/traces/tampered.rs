//! The record of a real life is in order. Changed in one place, each rule and each promise is seen
//! to be broken.

use std::sync::Arc;
use std::time::Duration;

use actors::registry::ShutDown;
use harness::invariants::{Invariant, Promise};
use serde_json::json;
use state_machine::broadcast::Broadcasts;
use state_machine::connection::{CloseReason, Config, Effect, Event, PhaseName, PushAnswer, Wait};
use state_machine::delivery::Outcome;
use state_machine::feed::{FeedKey, FeedValue};
use state_machine::store::{StoreAnswer, StoreOp};
use state_machine::wire::{ClientMessage, ServerMessage};
use state_machine::{Chid, Message, OpId, Time, Uaid, Urgency};
use storage::WaitingLimits;

use super::{Broken, Entry, Step, Trace};
use crate::clockwork;
use crate::engines::InDirectory;
use crate::node::{Node, message_of};
use crate::rotation::{ACK_WAIT, Agent, NEW, OLD, World, in_month, it_becomes, lasting};
use crate::sessions::scripted_broadcasts::ScriptedBroadcasts;
use crate::traces;

/// A life with all that happens to an agent: pushes acked, unconfirmed and busy, commands, a
/// broadcast, a month that turns, another node.
fn life() -> Trace {
    clockwork::run_in_real_time(async {
        let world = World::open(InDirectory::new(WaitingLimits::NONE)).await;
        let broadcasts = ScriptedBroadcasts::new();
        let news = [("news", "v1")]
            .map(|(id, version)| (FeedKey::parse(id).unwrap(), FeedValue::parse(version).unwrap()));
        broadcasts.publish(&Arc::new(Broadcasts::of(news)));
        let node = world.node(in_month(OLD), |bounds| bounds.broadcasts = Some(broadcasts.view()));
        let uaid = Agent::subscribes(&node, 1).await;
        let mut agent = Agent::settles(&node, uaid).await;
        agent.says(&json!({"messageType": "broadcast_subscribe", "broadcasts": {"news": "v0"}}));
        let acked = node.send(uaid, lasting(&node));
        agent.until(|agent, _| agent.got.len() == 1).await;
        assert_eq!(acked.await.unwrap(), Outcome::Delivered);

        agent.falls_silent();
        let unconfirmed = node.send(uaid, lasting(&node));
        agent.until(|agent, _| agent.got.len() == 2).await;
        assert_eq!(node.send(uaid, lasting(&node)).await.unwrap(), Outcome::Stored, "busy");
        agent.says(&json!({"messageType": "urgency", "min": "normal"}));
        agent.registers(Chid([2; 16]));
        agent.lets_pass(&node, ACK_WAIT);
        assert_eq!(unconfirmed.await.unwrap(), Outcome::Stored);
        agent.acks_all();
        agent.comes_to_rest(&node).await;
        agent.hangs_up().await;

        assert_eq!(node.send(uaid, lasting(&node)).await.unwrap(), Outcome::Stored);
        it_becomes(&node, NEW);
        assert_eq!(Agent::visits(&node, uaid).await.len(), 1);
        goes_to_a_node_that_shuts_down(&world, &node, uaid).await;
        world.is_done_with(uaid, NEW).await;
        traces::so_far()
    })
}

async fn goes_to_a_node_that_shuts_down(world: &World, node: &Node, uaid: Uaid) {
    let other = world.node(in_month(NEW), |bounds| bounds.name = "other");
    let mut here = Agent::settles(node, uaid).await;
    let mut there = Agent::settles(&other, uaid).await;
    here.until_closed(CloseReason::Replaced).await;
    other.registry.send(ShutDown { spread: Duration::ZERO }).await.unwrap();
    there.until_closed(CloseReason::Shutdown).await;
}

#[test]
fn each_rule_rejects_a_trace_that_was_tampered_with() {
    let life = life();
    assert_eq!(life.rules(), Ok(()));
    for (rule, change) in RULES {
        let mut changed = life.clone();
        assert!(changed.0.iter_mut().any(change), "nothing to change for {rule:?}");
        assert_eq!(changed.rules().unwrap_err().rule, *rule);
    }
    let broken: Vec<Invariant> = RULES.iter().map(|(rule, _)| *rule).collect();
    // The first of these steps the machine itself, and a trace has none. The second needs a connection that rests soon
    // after a busy push, and this life has none: the session scripts break it.
    let others = [Invariant::NothingDueBeforeDeadline, Invariant::StoredIsRead];
    let of_traces = Invariant::ALL.iter().filter(|rule| !others.contains(rule));
    assert_eq!(broken, of_traces.copied().collect::<Vec<_>>());
}

#[test]
fn each_promise_rejects_a_trace_that_was_tampered_with() {
    let life = life();
    assert_eq!(life.promises(), Ok(()));
    for (promise, change) in PROMISES {
        let mut changed = life.clone();
        assert!(changed.0.iter_mut().any(change), "nothing to change for {promise:?}");
        match changed.promises().unwrap_err() {
            Broken::Promise(broken) => assert_eq!(broken.rule, *promise),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_trace_whose_record_moves_back_a_month_is_rejected() {
    let life = life();
    let mut changed = life.clone();
    assert!(changed.0.iter_mut().any(|entry| in_effect(entry, |effect| match effect {
        Effect::SubmitStoreOp { operation: StoreOp::UpdateMonth(step), .. } => {
            std::mem::swap(&mut step.from, &mut step.to);
            true
        }
        _ => false,
    })));
    assert!(matches!(changed.promises(), Err(Broken::Month { .. })));

    let mut changed = life;
    let Some(Entry::Rests { uaid, mut record, .. }) = changed.0.last().cloned() else {
        panic!("it ends at rest");
    };
    record.curmonth = record.curmonth.previous();
    changed.0.push(Entry::Rests { uaid, record, rows: Vec::new() });
    assert!(matches!(changed.promises(), Err(Broken::Month { .. })));
}

/// Changes an entry where it fits. Answers whether it did.
type Change = fn(&mut Entry) -> bool;

/// In the order of [`Invariant::ALL`].
const RULES: &[(Invariant, Change)] = &[
    (Invariant::PushAnsweredOnce, |entry| {
        twice(entry, |effect| matches!(effect, Effect::AnswerPush { .. }))
    }),
    (Invariant::PushAnsweredInTime, |entry| never(entry, PushAnswer::Busy)),
    (Invariant::AcceptedMeansAcked, |entry| {
        instead(entry, PushAnswer::Unconfirmed, PushAnswer::Accepted)
    }),
    (Invariant::UnconfirmedMeansSent, |entry| {
        instead(entry, PushAnswer::Busy, PushAnswer::Unconfirmed)
    }),
    (Invariant::BusyMeansNotSent, |entry| instead(entry, PushAnswer::Accepted, PushAnswer::Busy)),
    (Invariant::SentOnce, |entry| {
        twice(entry, |effect| matches!(effect, Effect::Send(ServerMessage::Notification(_))))
    }),
    (Invariant::AckedNeverSent, |entry| {
        in_step(entry, |step| match &step.event {
            Event::MessageReceived(ClientMessage::Ack { updates }) => {
                let update = &updates[0];
                let message = Message { id: update.id, chid: update.chid, ..a_message() };
                step.effects.push(Effect::Send(ServerMessage::Notification(message)));
                true
            }
            _ => false,
        })
    }),
    (Invariant::UnackedNeverDeleted, |entry| {
        in_step(entry, |step| {
            let Some(message) = step.effects.iter().find_map(sent) else { return false };
            let messages = vec![message.key()];
            let order = StoreOp::Delete {
                uaid: Uaid([1; 16]),
                months: Vec::new(),
                messages,
                acks: Vec::new(),
            };
            step.effects.push(Effect::SubmitStoreOp { op: OpId(u32::MAX), operation: order });
            true
        })
    }),
    (Invariant::WindowBounded, |entry| match entry {
        Entry::Opened { config, .. } => {
            let mut less = Config::clone(config);
            less.limits.unacked_max = 0;
            *config = Arc::new(less);
            // Everywhere.
            false
        }
        Entry::Rests { .. } => true,
        _ => false,
    }),
    (Invariant::OthersNotDelayed, |entry| {
        in_step(entry, |step| {
            let is_ready = [step.before, step.after] == [PhaseName::Ready; 2];
            let before = step.effects.len();
            step.effects.retain(|effect| !is_ready || !is_fetch(effect));
            step.effects.len() < before
        })
    }),
    (Invariant::WindowCounted, |entry| {
        in_step(entry, |step| {
            step.unacked += 1;
            true
        })
    }),
    (Invariant::OrdersNumbered, |entry| {
        in_effect(entry, |effect| match effect {
            Effect::SubmitStoreOp { op, .. } if *op > OpId(0) => {
                *op = OpId(0);
                true
            }
            _ => false,
        })
    }),
    (Invariant::CommandsWaitForReady, |entry| {
        in_step(entry, |step| {
            let is_answer =
                |effect: &Effect| matches!(effect, Effect::Send(ServerMessage::Registered { .. }));
            let is_answered = step.effects.iter().any(is_answer);
            if is_answered {
                (step.before, step.after) = (PhaseName::CopyingChids, PhaseName::WritingRecord);
            }
            is_answered
        })
    }),
    (Invariant::CommandsInOrder, |entry| {
        in_effect(entry, |effect| match effect {
            Effect::Send(ServerMessage::Registered { chid, .. }) => {
                *chid = Chid([9; 16]);
                true
            }
            _ => false,
        })
    }),
    (Invariant::HelloFirst, |entry| {
        twice(entry, |effect| matches!(effect, Effect::Send(ServerMessage::Hello { .. })))
    }),
    (Invariant::FoundUnderOneName, |entry| {
        twice(entry, |effect| matches!(effect, Effect::Register { .. }))
    }),
    (Invariant::UrgencyRespected, |entry| match entry {
        // The second connection stays open after its agent sent its commands.
        Entry::Stepped { line: 1, step } => {
            let was_told =
                |effect: &Effect| matches!(effect, Effect::Send(ServerMessage::UrgencySet { .. }));
            if !step.effects.iter().any(was_told) {
                return false;
            }
            let message = Message { urgency: Urgency::Low, ..a_message() };
            step.effects.push(Effect::Send(ServerMessage::Notification(message)));
            true
        }
        _ => false,
    }),
    (Invariant::BroadcastsNamed, |entry| {
        in_effect(entry, |effect| match effect {
            Effect::Send(ServerMessage::Broadcast(news)) => {
                let versions = news.versions.values_mut();
                versions.for_each(|version| *version = FeedValue::parse("another").unwrap());
                true
            }
            _ => false,
        })
    }),
    (Invariant::BroadcastsDelivered, |entry| {
        without(entry, |effect| matches!(effect, Effect::Send(ServerMessage::Broadcast(_))))
    }),
    (Invariant::BroadcastsFollowed, |entry| {
        without(entry, |effect| matches!(effect, Effect::UnsubscribeBroadcasts))
    }),
    (Invariant::PreviousNodeNotified, |entry| {
        without(entry, |effect| matches!(effect, Effect::NotifyPreviousNode { .. }))
    }),
    (Invariant::LaterConnectionStays, |entry| {
        in_step(entry, |step| match &mut step.event {
            Event::ConnectedElsewhere { connected_at } => {
                *connected_at = Time(0);
                true
            }
            _ => false,
        })
    }),
    (Invariant::NodeClearedAtShutdown, |entry| {
        without(entry, |effect| {
            matches!(effect, Effect::SubmitStoreOp { operation: StoreOp::ClearNode { .. }, .. })
        })
    }),
    (Invariant::SilentAfterClose, |entry| {
        in_step(entry, |step| {
            let is_closed = step.after == PhaseName::Closed;
            step.effects.extend(is_closed.then_some(Effect::Ping));
            is_closed
        })
    }),
    (Invariant::DeadlinesMove, |entry| {
        in_step(entry, |step| {
            step.deadline = Some((step.now, Wait::Ack));
            true
        })
    }),
];

/// The promises that a trace can show. That an agent becomes idle, and is found while it is
/// connected, is shown by tests that end.
const PROMISES: &[(Promise, Change)] = &[
    (Promise::AcceptedNeverLost, |entry| match entry {
        Entry::Told { message, outcome: Outcome::Stored, .. } => {
            message.id = a_message().id;
            true
        }
        _ => false,
    }),
    (Promise::AckedNeverAgain, |entry| match entry {
        // The third connection is greeted in December, and all before was acked.
        Entry::Stepped { line: 2, step } => {
            let Some(Effect::Send(hello)) = step.effects.first().cloned() else { return false };
            let first = message_of(0);
            step.effects =
                vec![Effect::Send(hello), Effect::Send(ServerMessage::Notification(first))];
            true
        }
        _ => false,
    }),
    (Promise::NothingLeftBehind, |entry| match entry {
        Entry::Rests { record, rows, .. } => {
            rows.push((record.curmonth.previous(), message_of(0).id));
            true
        }
        _ => false,
    }),
    (Promise::NothingLeftBehind, |entry| match entry {
        Entry::Rests { record, .. } => {
            record.oldmonth = Some(record.curmonth.previous());
            true
        }
        _ => false,
    }),
    (Promise::SubscriptionKept, |entry| {
        in_step(entry, |step| {
            let is_known = matches!(
                &step.event,
                Event::StoreAnswered { answer: Ok(StoreAnswer::Channels(Some(_))), .. }
            );
            let effects = step.effects.iter_mut();
            effects.filter(|_| is_known).any(|effect| match effect {
                Effect::Send(ServerMessage::Hello { uaid, .. }) => {
                    *uaid = Uaid([9; 16]);
                    true
                }
                _ => false,
            })
        })
    }),
];

fn in_step(entry: &mut Entry, change: impl FnOnce(&mut Step) -> bool) -> bool {
    match entry {
        Entry::Stepped { step, .. } => change(step),
        _ => false,
    }
}

fn in_effect(entry: &mut Entry, change: impl FnMut(&mut Effect) -> bool) -> bool {
    in_step(entry, |step| step.effects.iter_mut().any(change))
}

/// The same effect once more.
fn twice(entry: &mut Entry, is_it: impl Fn(&Effect) -> bool) -> bool {
    in_step(entry, |step| {
        let at = step.effects.iter().position(is_it);
        at.inspect(|at| step.effects.insert(*at, step.effects[*at].clone())).is_some()
    })
}

/// Another answer to a push.
fn instead(entry: &mut Entry, right: PushAnswer, wrong: PushAnswer) -> bool {
    in_effect(entry, |effect| match effect {
        Effect::AnswerPush { answer, .. } if *answer == right => {
            *answer = wrong;
            true
        }
        _ => false,
    })
}

/// No answer to a push.
fn never(entry: &mut Entry, answer: PushAnswer) -> bool {
    without(
        entry,
        |effect| matches!(effect, Effect::AnswerPush { answer: given, .. } if *given == answer),
    )
}

fn without(entry: &mut Entry, is_it: impl Fn(&Effect) -> bool) -> bool {
    in_step(entry, |step| {
        let before = step.effects.len();
        step.effects.retain(|effect| !is_it(effect));
        step.effects.len() < before
    })
}

fn is_fetch(effect: &Effect) -> bool {
    matches!(effect, Effect::SubmitStoreOp { operation: StoreOp::Fetch { .. }, .. })
}

fn sent(effect: &Effect) -> Option<&Message> {
    match effect {
        Effect::Send(ServerMessage::Notification(message)) => Some(message),
        _ => None,
    }
}

/// A message that was not sent.
fn a_message() -> Message {
    message_of(1000)
}
