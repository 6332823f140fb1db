//! The cases of the router table.

use state_machine::{LastConnect, NodeBinding, RouterRecord, RouterType, Time};
use storage::{MonthStep, RegisterResult, Registration};

use crate::conformance::world::*;
use crate::store_calls::StoreCalls;

pub(crate) async fn a_record_that_was_never_written_is_none(world: World) {
    assert_eq!(world.record(agent(1)).await, Ok(None));
}

pub(crate) async fn a_registration_makes_a_record_in_the_month_it_names(world: World) {
    let expected = RouterRecord {
        uaid: agent(1),
        router_type: RouterType::WebPush,
        node: Some(node("a")),
        connected_at: Time(100),
        last_connect: LastConnect(1000),
        curmonth: month(OLD),
        oldmonth: None,
    };
    let registered = world.register_user(registration(100)).await;
    assert_eq!(registered, Ok(RegisterResult::Registered(expected.clone(), None)));
    assert_eq!(world.record(agent(1)).await, Ok(Some(expected)));
}

pub(crate) async fn a_registration_that_makes_none_leaves_an_unknown_agent_unknown(world: World) {
    let unknown = Registration { create_in: None, ..registration(100) };
    assert_eq!(world.register_user(unknown).await, Ok(RegisterResult::UnknownAgent));
    assert_eq!(world.record(agent(1)).await, Ok(None));
}

pub(crate) async fn a_later_registration_replaces_the_node_and_keeps_the_months(world: World) {
    let first = world.connect(100).await;
    world.update_message_month(step(100)).await.unwrap();
    let expected = RouterRecord {
        node: Some(node("b")),
        connected_at: Time(101),
        last_connect: LastConnect(7),
        curmonth: month(NEW),
        oldmonth: Some(month(OLD)),
        ..first.clone()
    };
    let later = Registration {
        node: node("b"),
        last_connect: LastConnect(7),
        create_in: None,
        ..registration(101)
    };
    assert_eq!(
        world.register_user(later).await,
        Ok(RegisterResult::Registered(expected.clone(), first.binding()))
    );
    assert_eq!(world.record(agent(1)).await, Ok(Some(expected)));
    let record = world.connect(102).await;
    assert_eq!((record.curmonth, record.oldmonth), (month(NEW), Some(month(OLD))));
    assert_eq!(world.record(agent(1)).await, Ok(Some(record)));
}

pub(crate) async fn a_registration_answers_where_the_agent_was_before(world: World) {
    let place = |name, at| Some(NodeBinding { node: node(name), connected_at: Time(at) });
    for (name, at, expected) in [
        ("a", 100, None),
        ("b", 101, place("a", 100)),
        ("b", 102, place("b", 101)),
        ("a", 103, place("b", 102)),
    ] {
        let registration = Registration { node: node(name), ..registration(at) };
        let registered = world.register_user(registration).await.unwrap();
        let RegisterResult::Registered(record, before) = registered else {
            panic!("{registered:?}")
        };
        assert_eq!((record.binding(), before), (place(name, at), expected));
    }
    world.clear_node(agent(1), node("a"), Time(103)).await.unwrap();
    let again = Registration { create_in: None, ..registration(104) };
    let registered = world.register_user(again).await.unwrap();
    assert!(matches!(registered, RegisterResult::Registered(_, None)), "{registered:?}");
    world.drop_user(agent(1)).await.unwrap();
    let registered = world.register_user(registration(105)).await.unwrap();
    assert!(matches!(registered, RegisterResult::Registered(_, None)), "{registered:?}");
}

pub(crate) async fn a_registration_that_is_not_later_writes_nothing(world: World) {
    let record = world.connect(100).await;
    for connected_at in [99, 100] {
        let late = Registration { node: node("b"), ..registration(connected_at) };
        assert_eq!(world.register_user(late).await, Ok(RegisterResult::Superseded(Time(100))));
    }
    assert_eq!(world.record(agent(1)).await, Ok(Some(record)));
}

pub(crate) async fn a_cleared_node_does_not_make_an_earlier_registration_later(world: World) {
    world.connect(100).await;
    assert_eq!(world.clear_node(agent(1), node("a"), Time(100)).await, Ok(true));
    let refused = world.register_user(registration(100)).await;
    assert_eq!(refused, Ok(RegisterResult::Superseded(Time(100))));
    assert_eq!(world.record(agent(1)).await.unwrap().unwrap().node, None);
}

pub(crate) async fn a_read_sees_every_write_answered_before(world: World) {
    for connected_at in 1..=200 {
        let written = world.connect(connected_at).await;
        assert_eq!(world.record(agent(1)).await, Ok(Some(written)));
    }
}

pub(crate) async fn a_month_move_sets_both_months_and_the_index_key(world: World) {
    let before = world.connect(100).await;
    assert_eq!(world.update_message_month(step(100)).await, Ok(true));
    let expected = RouterRecord {
        curmonth: month(NEW),
        oldmonth: Some(month(OLD)),
        last_connect: LastConnect(4711),
        ..before
    };
    assert_eq!(world.record(agent(1)).await, Ok(Some(expected)));
}

pub(crate) async fn a_month_move_by_another_connection_changes_nothing(world: World) {
    let record = world.connect(100).await;
    for other in [step(99), step(101), MonthStep { node: Some(node("b")), ..step(100) }] {
        assert_eq!(world.update_message_month(other).await, Ok(false));
    }
    let unknown = MonthStep { uaid: agent(2), ..step(100) };
    assert_eq!(world.update_message_month(unknown).await, Ok(false));
    assert_eq!(world.record(agent(1)).await, Ok(Some(record)));
    assert_eq!(world.record(agent(2)).await, Ok(None));
}

pub(crate) async fn a_finished_move_forgets_the_old_month(world: World) {
    world.connect(100).await;
    world.update_message_month(step(100)).await.unwrap();
    let moved = world.record(agent(1)).await.unwrap().unwrap();
    for _repeated in 0..2 {
        assert_eq!(world.finish_month_move(step(100)).await, Ok(true));
        let expected = RouterRecord { oldmonth: None, ..moved.clone() };
        assert_eq!(world.record(agent(1)).await, Ok(Some(expected)));
    }
}

pub(crate) async fn finishing_a_move_from_another_month_leaves_the_old_month(world: World) {
    world.connect(100).await;
    world.update_message_month(step(100)).await.unwrap();
    let other = MonthStep { from: month("2026_09"), ..step(100) };
    assert_eq!(world.finish_month_move(other).await, Ok(true));
    assert_eq!(world.record(agent(1)).await.unwrap().unwrap().oldmonth, Some(month(OLD)));
}

pub(crate) async fn finishing_the_move_of_another_connection_changes_nothing(world: World) {
    world.connect(100).await;
    world.update_message_month(step(100)).await.unwrap();
    for other in [step(99), step(101), MonthStep { node: Some(node("b")), ..step(100) }] {
        assert_eq!(world.finish_month_move(other).await, Ok(false));
    }
    assert_eq!(world.record(agent(1)).await.unwrap().unwrap().oldmonth, Some(month(OLD)));
}

pub(crate) async fn a_node_is_cleared_by_the_connection_that_wrote_it(world: World) {
    let record = world.connect(100).await;
    assert_eq!(world.clear_node(agent(1), node("a"), Time(100)).await, Ok(true));
    let expected = RouterRecord { node: None, ..record };
    assert_eq!(world.record(agent(1)).await, Ok(Some(expected)));
    assert_eq!(world.clear_node(agent(1), node("a"), Time(100)).await, Ok(false));
}

pub(crate) async fn a_node_of_another_connection_is_not_cleared(world: World) {
    let record = world.connect(100).await;
    for (uaid, name, connected_at) in [(1, "a", 99), (1, "a", 101), (1, "b", 100), (2, "a", 100)] {
        let cleared = world.clear_node(agent(uaid), node(name), Time(connected_at)).await;
        assert_eq!(cleared, Ok(false));
    }
    assert_eq!(world.record(agent(1)).await, Ok(Some(record)));
}

pub(crate) async fn a_dropped_record_is_gone_and_no_other(world: World) {
    world.connect(100).await;
    let other = Registration { uaid: agent(2), ..registration(100) };
    world.register_user(other).await.unwrap();
    assert_eq!(world.drop_user(agent(1)).await, Ok(true));
    assert_eq!(world.drop_user(agent(1)).await, Ok(false));
    assert_eq!(world.record(agent(1)).await, Ok(None));
    assert!(world.record(agent(2)).await.unwrap().is_some());
    let again = Registration { create_in: None, ..registration(101) };
    assert_eq!(world.register_user(again).await, Ok(RegisterResult::UnknownAgent));
}
