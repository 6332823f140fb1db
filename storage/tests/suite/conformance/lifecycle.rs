//! Order and durability of calls, and closing a store.

use state_machine::RouterRecord;
use storage::{StoreError, Stored};

use crate::conformance::world::*;
use crate::store_calls::StoreCalls;

pub(crate) async fn everything_answered_is_there_after_a_restart(world: World) {
    let world = world.with_channels().await;
    let record: RouterRecord = world.connect(100).await;
    world.put(OLD, &message(1)).await;
    world.put(NEW, &topical(2, "t")).await;
    world.put(NEW, &message(3)).await;
    world.delete_messages(agent(1), vec![month(NEW)], vec![message(3).key()]).await.unwrap();
    let world = world.restart().await;
    assert_eq!(world.record(agent(1)).await, Ok(Some(record)));
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([1, 2, 3]))));
    assert_eq!(world.waiting(OLD).await, [message(1)]);
    assert_eq!(world.waiting(NEW).await, [topical(2, "t")]);
}

pub(crate) async fn a_store_that_works_passes_its_check(world: World) {
    assert_eq!(world.check().await, Ok(()));
    assert_eq!(world.check().await, Ok(()));
}

pub(crate) async fn a_call_whose_future_is_dropped_is_still_done(world: World) {
    let world = world.with_channels().await;
    for number in 1..=50 {
        drop(world.store_message(agent(1), month(NEW), message(number)));
    }
    let world = world.restart().await;
    assert_eq!(world.waiting(NEW).await, (1..=50).map(message).collect::<Vec<_>>());
}

/// The answers are waited for from the last to the first.
pub(crate) async fn calls_of_one_agent_happen_in_the_order_they_were_made(world: World) {
    for round in 0..50 {
        let added = world.add_channels(agent(1), month(NEW), chids([1]));
        let stored = world.store_message(agent(1), month(NEW), message(round));
        let removed = world.remove_channel(agent(1), vec![month(OLD), month(NEW)], chid(1));
        let refused = world.store_message(agent(1), month(NEW), message(round + 1000));
        let connected = world.register_user(registration(u64::from(round) + 1));
        let moved = world.update_message_month(step(u64::from(round) + 1));
        let deleted = world.delete_messages(agent(1), vec![month(NEW)], vec![message(round).key()]);
        assert_eq!(deleted.await, Ok(1));
        assert_eq!(moved.await, Ok(true));
        connected.await.unwrap();
        assert_eq!(refused.await, Ok(Stored::NoSuchChannel));
        assert_eq!(removed.await, Ok(()));
        assert_eq!(stored.await, Ok(Stored::Done));
        assert_eq!(added.await, Ok(()));
    }
}

pub(crate) async fn closing_finishes_what_is_queued(world: World) {
    let world = world.with_channels().await;
    let queued: Vec<_> = (1..=200)
        .map(|number| world.store_message(agent(1), month(NEW), message(number)))
        .collect();
    assert_eq!(world.close().await, Ok(()));
    for answer in queued {
        assert_eq!(answer.await, Ok(Stored::Done));
    }
    let world = world.restart().await;
    assert_eq!(world.waiting(NEW).await.len(), 200);
}

pub(crate) async fn a_closed_store_takes_no_further_work(world: World) {
    let world = world.with_channels().await;
    world.close().await.unwrap();
    let stored = world.store_message(agent(1), month(NEW), message(1)).await;
    assert_eq!(stored, Err(StoreError::Closed));
    assert_eq!(world.register_user(registration(1)).await, Err(StoreError::Closed));
    assert_eq!(world.drop_month(month(OLD)).await, Err(StoreError::Closed));
    assert_eq!(world.check().await, Err(StoreError::Closed));
    assert_eq!(world.record(agent(1)).await, Err(StoreError::Closed));
    let fetched = world.fetch_messages(agent(1), month(NEW), None, PAGE, NOW).await;
    assert_eq!(fetched, Err(StoreError::Closed));
    assert_eq!(world.restart().await.waiting(NEW).await, []);
}

pub(crate) async fn closing_again_answers_again(world: World) {
    let (first, second) = (world.close(), world.close());
    assert_eq!(second.await, Ok(()));
    assert_eq!(first.await, Ok(()));
    assert_eq!(world.close().await, Ok(()));
}
