//! Each operation on each kind of record, beside the reference.

use futures_util::future::join_all;
use state_machine::{BridgeName, BridgeRecipient, LastConnect, NodeBinding, Time, Uaid};
use storage::{BridgedRegistration, MonthStep, Registration, StoreOp};

use crate::conformance::world::*;
use crate::reference::{Call, Reference, answer};

/// The calls that make each kind of record, the last of which cannot be read.
fn kinds(uaid: Uaid) -> Vec<Vec<Call>> {
    let register = |node, at| Call::Execute(registered(uaid, node, at, true));
    let bridged = |recipient, at| Call::RegisterBridged(bridged(uaid, recipient, at, true));
    let moving = |node| Call::Execute(StoreOp::UpdateMonth(moves(uaid, node, 100, OLD)));
    let moved = |node| Call::Execute(StoreOp::FinishMove(moves(uaid, node, 100, OLD)));
    let clear = Call::Execute(cleared(uaid, "a", 100));
    let connected = || vec![register("a", 100)];
    let behind_a_bridge = || vec![bridged(recipient("one"), 100)];
    vec![
        vec![],
        connected(),
        [connected(), vec![moving(Some("a"))]].concat(),
        [connected(), vec![moving(Some("a")), moved(Some("a"))]].concat(),
        [connected(), vec![clear.clone()]].concat(),
        [connected(), vec![moving(Some("a")), clear]].concat(),
        behind_a_bridge(),
        [behind_a_bridge(), vec![moving(None)]].concat(),
        [behind_a_bridge(), vec![moving(None), moved(None)]].concat(),
        vec![bridged(apns("one"), 100)],
        [connected(), vec![Call::Drop(uaid, None)]].concat(),
        [connected(), vec![Call::Mark(uaid)]].concat(),
        [behind_a_bridge(), vec![Call::Mark(uaid)]].concat(),
    ]
}

/// Each operation, with each value that its conditions compare.
fn operations(uaid: Uaid) -> Vec<Call> {
    let mut calls = Vec::new();
    let other_app = BridgeRecipient { app: "other".into(), ..recipient("one") };
    let recipients = [recipient("one"), recipient("two"), apns("one"), other_app];
    for at in [99, 100, 101] {
        for creates in [true, false] {
            let nodes = ["a", "b"].map(|node| Call::Execute(registered(uaid, node, at, creates)));
            let bridges = recipients
                .clone()
                .map(|recipient| Call::RegisterBridged(bridged(uaid, recipient, at, creates)));
            calls.extend(nodes.into_iter().chain(bridges));
        }
    }
    calls.extend(recipients.map(|recipient| Call::Drop(uaid, Some(recipient))));
    for at in [99, 100, 101] {
        for node in [Some("a"), Some("b"), None] {
            calls.extend(node.map(|node| Call::Execute(cleared(uaid, node, at))));
            for from in [OLD, NEW, UNMADE] {
                let step = moves(uaid, node, at, from);
                calls.push(Call::Execute(StoreOp::UpdateMonth(step.clone())));
                calls.push(Call::Execute(StoreOp::FinishMove(step)));
            }
        }
    }
    calls.push(Call::Drop(uaid, None));
    calls
}

/// The registrations and drops of bridges are the first of [`operations`]: what a record that is marked is asked for.
const OF_MARKED: usize = 40;

pub(crate) async fn each_operation_on_each_record_is_that_of_the_reference(world: World) {
    let numbers = (0..).map(|number: u32| {
        let mut uaid = [0xaa; 16];
        uaid[..4].copy_from_slice(&number.to_be_bytes());
        Uaid(uaid)
    });
    let kinds_count = kinds(agent(1)).len();
    let cells = (0..kinds_count).flat_map(|kind| {
        let count = if kind + 2 < kinds_count { operations(agent(1)).len() } else { OF_MARKED };
        (0..count).map(move |operation| (kind, operation))
    });
    let cells: Vec<_> = numbers.zip(cells).collect();
    let mut reference = Reference::default();
    for page in cells.chunks(200) {
        let answers = page.iter().map(async |(uaid, (kind, operation))| {
            let mut calls = kinds(*uaid).swap_remove(*kind);
            calls.push(operations(*uaid).swap_remove(*operation));
            let mut answers = Vec::new();
            for call in calls {
                answers.push((answer(&*world, call.clone()).await, call));
            }
            answers
        });
        for (answer, call) in join_all(answers.collect::<Vec<_>>()).await.into_iter().flatten() {
            assert_eq!(answer, reference.answer(call.clone()), "{call:?}");
        }
    }
    // Debug texts leave tokens out.
    let world = world.restart().await;
    for (uaid, cell) in cells {
        let expected = reference.store.records.get(&uaid).cloned();
        assert_eq!(world.record(uaid).await, Ok(expected), "{cell:?}");
    }
}

pub(crate) async fn a_read_sees_every_write_answered_before(world: World) {
    for connected_at in 1..=200 {
        let written = world.connect(connected_at).await;
        assert_eq!(world.record(agent(1)).await, Ok(Some(written)));
    }
}

fn registered(uaid: Uaid, name: &str, at: u64, creates: bool) -> StoreOp {
    let create_in = creates.then_some(month(OLD));
    let registration = registration(at);
    StoreOp::Register(Registration { uaid, node: node(name), create_in, ..registration })
}

fn bridged(uaid: Uaid, recipient: BridgeRecipient, at: u64, creates: bool) -> BridgedRegistration {
    let create_in = creates.then_some(month(OLD));
    let (connected_at, last_connect) = (Time(at), LastConnect(at * 10));
    BridgedRegistration { uaid, recipient, connected_at, last_connect, create_in }
}

fn moves(uaid: Uaid, name: Option<&str>, at: u64, from: &str) -> MonthStep {
    MonthStep { uaid, node: name.map(node), from: month(from), ..step(at) }
}

fn cleared(uaid: Uaid, name: &str, at: u64) -> StoreOp {
    StoreOp::ClearNode { uaid, binding: NodeBinding { node: node(name), connected_at: Time(at) } }
}

pub(super) fn recipient(token: &str) -> BridgeRecipient {
    let (bridge, app, token) = (BridgeName::Fcm, "app".into(), token.into());
    BridgeRecipient { bridge, app, token, aps: None }
}

fn apns(token: &str) -> BridgeRecipient {
    let aps = Some(r#"{"alert":{"title":"ü \"x\""}}"#.into());
    BridgeRecipient { bridge: BridgeName::Apns, aps, ..recipient(token) }
}
