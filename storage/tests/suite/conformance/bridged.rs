//! The cases of records of user agents behind a bridge.

use futures_util::future::join_all;
use state_machine::{
    BridgeName, BridgeRecipient, LastConnect, NodeBinding, RouterRecord, RouterType, Time,
};
use storage::{BridgedRegistration, MonthStep, RegisterResult, Registration};

use crate::conformance::world::*;
use crate::store_calls::StoreCalls;

pub(crate) async fn a_bridged_registration_makes_a_record_with_its_recipient(world: World) {
    for recipient in [recipient("one"), apns("two")] {
        world.drop_user(agent(1)).await.unwrap();
        let expected = RouterRecord {
            uaid: agent(1),
            router_type: RouterType::Bridge(Box::new(recipient.clone())),
            node: None,
            connected_at: Time(100),
            last_connect: LastConnect(1000),
            curmonth: month(OLD),
            oldmonth: None,
        };
        let registration = BridgedRegistration { recipient, ..bridged(100) };
        let registered = world.register_bridged(registration).await;
        assert_eq!(registered, Ok(RegisterResult::Registered(expected.clone(), None)));
        assert_eq!(world.record(agent(1)).await, Ok(Some(expected)));
    }
    assert!(world.restart().await.record(agent(1)).await.unwrap().is_some());
}

pub(crate) async fn a_bridged_registration_that_makes_none_leaves_an_unknown_agent_unknown(
    world: World,
) {
    let unknown = BridgedRegistration { create_in: None, ..bridged(100) };
    assert_eq!(world.register_bridged(unknown).await, Ok(RegisterResult::UnknownAgent));
    assert_eq!(world.record(agent(1)).await, Ok(None));
}

pub(crate) async fn a_later_bridged_registration_replaces_the_recipient_and_keeps_the_months(
    world: World,
) {
    let first = register(&world, 100).await;
    assert_eq!(world.update_message_month(bridged_step(100)).await, Ok(true));
    for (at, recipient, create_in) in
        [(101, recipient("two"), None), (102, apns("three"), Some(month(OLD)))]
    {
        let expected = RouterRecord {
            router_type: RouterType::Bridge(Box::new(recipient.clone())),
            connected_at: Time(at),
            last_connect: LastConnect(at * 10),
            curmonth: month(NEW),
            oldmonth: Some(month(OLD)),
            ..first.clone()
        };
        let later = BridgedRegistration { recipient, create_in, ..bridged(at) };
        let registered = world.register_bridged(later).await;
        assert_eq!(registered, Ok(RegisterResult::Registered(expected.clone(), None)));
        assert_eq!(world.record(agent(1)).await, Ok(Some(expected)));
    }
}

pub(crate) async fn a_bridged_registration_that_is_not_later_writes_nothing(world: World) {
    let record = register(&world, 100).await;
    for at in [99, 100] {
        let late = BridgedRegistration { recipient: recipient("two"), ..bridged(at) };
        let refused = world.register_bridged(late).await;
        assert_eq!(refused, Ok(RegisterResult::Superseded(Time(100))));
    }
    assert_eq!(world.record(agent(1)).await, Ok(Some(record)));
}

pub(crate) async fn neither_registration_changes_an_agent_of_the_other(world: World) {
    let websocket = world.connect(100).await;
    for create_in in [None, Some(month(OLD))] {
        let registration = BridgedRegistration { create_in, ..bridged(101) };
        assert_eq!(world.register_bridged(registration).await, Ok(RegisterResult::UnknownAgent));
    }
    assert_eq!(world.record(agent(1)).await, Ok(Some(websocket)));
    let other = BridgedRegistration { uaid: agent(2), ..bridged(100) };
    world.register_bridged(other).await.unwrap();
    let behind_a_bridge = world.record(agent(2)).await.unwrap();
    for create_in in [None, Some(month(OLD))] {
        let registration = Registration { uaid: agent(2), create_in, ..registration(101) };
        assert_eq!(world.register_user(registration).await, Ok(RegisterResult::UnknownAgent));
    }
    assert_eq!(world.record(agent(2)).await, Ok(behind_a_bridge));
    let dropped = world.mark_dropped(agent(2), None).await.unwrap().unwrap();
    assert_eq!(dropped.binding, None::<NodeBinding>);
    let registration = BridgedRegistration { uaid: agent(2), ..bridged(102) };
    assert_eq!(world.register_bridged(registration).await, Ok(RegisterResult::UnknownAgent));
}

pub(crate) async fn a_bridged_agent_moves_from_the_month_it_is_in(world: World) {
    let before = register(&world, 100).await;
    for stale in [
        bridged_step(99),
        bridged_step(101),
        MonthStep { from: month(UNMADE), ..bridged_step(100) },
        MonthStep { uaid: agent(2), ..bridged_step(100) },
        MonthStep { node: Some(node("a")), ..bridged_step(100) },
    ] {
        assert_eq!(world.update_message_month(stale).await, Ok(false));
    }
    assert_eq!(world.record(agent(1)).await, Ok(Some(before.clone())));
    assert_eq!(world.update_message_month(bridged_step(100)).await, Ok(true));
    let moving = RouterRecord {
        curmonth: month(NEW),
        oldmonth: Some(month(OLD)),
        last_connect: LastConnect(4711),
        ..before
    };
    assert_eq!(world.record(agent(1)).await, Ok(Some(moving.clone())));
    for from in [OLD, NEW] {
        let again = MonthStep { from: month(from), to: month(UNMADE), ..bridged_step(100) };
        assert_eq!(world.update_message_month(again).await, Ok(false), "from {from}");
    }
    assert_eq!(world.finish_month_move(bridged_step(99)).await, Ok(false));
    assert_eq!(world.record(agent(1)).await, Ok(Some(moving.clone())));
    for _repeated in 0..2 {
        assert_eq!(world.finish_month_move(bridged_step(100)).await, Ok(true));
        let moved = RouterRecord { oldmonth: None, ..moving.clone() };
        assert_eq!(world.record(agent(1)).await, Ok(Some(moved)));
    }
}

pub(crate) async fn a_step_without_a_node_moves_no_agent_with_a_connection(world: World) {
    world.connect(100).await;
    world.clear_node(agent(1), node("a"), Time(100)).await.unwrap();
    let record = world.record(agent(1)).await.unwrap();
    assert_eq!(world.update_message_month(bridged_step(100)).await, Ok(false));
    assert_eq!(world.finish_month_move(bridged_step(100)).await, Ok(false));
    assert_eq!(world.record(agent(1)).await, Ok(record));
}

pub(crate) async fn a_bridged_record_is_dropped_only_with_its_bridge_application_and_token(
    world: World,
) {
    assert_eq!(world.drop_bridged(agent(1), recipient("one")).await, Ok(false));
    let record = register(&world, 100).await;
    world.add_channels(agent(1), month(OLD), chids([1])).await.unwrap();
    let other_bridge = BridgeRecipient { bridge: BridgeName::Apns, ..recipient("one") };
    let other_app = BridgeRecipient { app: "other".into(), ..recipient("one") };
    for other in [recipient("two"), other_bridge, other_app] {
        assert_eq!(world.drop_bridged(agent(1), other).await, Ok(false));
    }
    assert_eq!(world.record(agent(1)).await, Ok(Some(record)));
    assert_eq!(world.drop_bridged(agent(1), recipient("one")).await, Ok(true));
    assert_eq!(world.record(agent(1)).await, Ok(None));
    assert_eq!(world.channels(agent(1), month(OLD)).await, Ok(Some(chids([1]))));
    world
        .register_bridged(BridgedRegistration { recipient: apns("one"), ..bridged(100) })
        .await
        .unwrap();
    let other_app = BridgeRecipient { app: "other".into(), ..apns("one") };
    assert_eq!(world.drop_bridged(agent(1), other_app).await, Ok(false));
    assert_eq!(world.drop_bridged(agent(1), apns("one")).await, Ok(true));
    world.connect(101).await;
    assert_eq!(world.drop_bridged(agent(1), recipient("one")).await, Ok(false));
    assert!(world.record(agent(1)).await.unwrap().is_some());
}

pub(crate) async fn of_two_moves_of_a_bridged_agent_at_once_one_is_written(world: World) {
    for round in 1..=20 {
        let from = register(&world, round * 100).await.curmonth;
        let moves = [month(OLD), month(NEW)].map(|to| {
            let step = MonthStep { from, to, ..bridged_step(round * 100) };
            let moved = world.update_message_month(step);
            async move { (to, moved.await.unwrap()) }
        });
        let answers = join_all(moves).await;
        let written: Vec<_> = answers.iter().filter(|(_, is_written)| *is_written).collect();
        assert_eq!(written.len(), 1, "{answers:?}");
        assert_eq!(world.record(agent(1)).await.unwrap().unwrap().curmonth, written[0].0);
        let step = MonthStep { from, ..bridged_step(round * 100) };
        assert_eq!(world.finish_month_move(step).await, Ok(true));
    }
}

pub(crate) async fn channels_are_created_where_the_agent_has_no_row(world: World) {
    world.create_channels(agent(1), month(NEW), chids([1, 2])).await.unwrap();
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([1, 2]))));
    world.create_channels(agent(1), month(NEW), chids([3])).await.unwrap();
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([1, 2]))));
    for chid in [chid(1), chid(2)] {
        world.remove_channel(agent(1), vec![month(NEW)], chid).await.unwrap();
    }
    world.create_channels(agent(1), month(NEW), chids([3])).await.unwrap();
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([]))));
    world.create_channels(agent(2), month(NEW), chids([])).await.unwrap();
    assert_eq!(world.channels(agent(2), month(NEW)).await, Ok(Some(chids([]))));
    let missing = world.create_channels(agent(1), month(UNMADE), chids([1])).await;
    assert_eq!(missing, Err(storage::StoreError::NoSuchMonth(month(UNMADE))));
}

pub(crate) async fn of_rows_created_at_once_one_stays(world: World) {
    let creations =
        (0..50).map(|number| world.create_channels(agent(1), month(NEW), chids([number])));
    assert!(join_all(creations).await.iter().all(Result::is_ok));
    let channels = world.channels(agent(1), month(NEW)).await.unwrap().unwrap();
    assert_eq!(channels.len(), 1, "{channels:?}");
}

fn recipient(token: &str) -> BridgeRecipient {
    let (bridge, app, token) = (BridgeName::Fcm, "app".into(), token.into());
    BridgeRecipient { bridge, app, token, aps: None }
}

fn apns(token: &str) -> BridgeRecipient {
    let aps = Some(r#"{"alert":{"title":"ü \"x\""}}"#.into());
    BridgeRecipient { bridge: BridgeName::Apns, aps, ..recipient(token) }
}

/// Of agent 1 with token "one"; makes a record in [`OLD`].
fn bridged(connected_at: u64) -> BridgedRegistration {
    BridgedRegistration {
        uaid: agent(1),
        recipient: recipient("one"),
        connected_at: Time(connected_at),
        last_connect: LastConnect(connected_at * 10),
        create_in: Some(month(OLD)),
    }
}

fn bridged_step(connected_at: u64) -> MonthStep {
    MonthStep { node: None, ..step(connected_at) }
}

async fn register(world: &World, connected_at: u64) -> RouterRecord {
    match world.register_bridged(bridged(connected_at)).await.unwrap() {
        RegisterResult::Registered(record, None) => record,
        refused => panic!("{refused:?}"),
    }
}
