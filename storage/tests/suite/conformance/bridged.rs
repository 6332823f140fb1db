//! The cases of records of user agents behind a bridge.

use futures_util::future::join_all;
use state_machine::{LastConnect, RouterRecord, Time};
use storage::{BridgedRegistration, MonthStep, RegisterResult};

use crate::conformance::records::recipient;
use crate::conformance::world::*;
use crate::store_calls::StoreCalls;

pub(crate) async fn a_dropped_record_leaves_its_channels(world: World) {
    register(&world, 100).await;
    world.add_channels(agent(1), month(OLD), chids([1])).await.unwrap();
    assert_eq!(world.drop_bridged(agent(1), recipient("one")).await, Ok(true));
    assert_eq!(world.channels(agent(1), month(OLD)).await, Ok(Some(chids([1]))));
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
