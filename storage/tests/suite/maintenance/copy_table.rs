//! Copying a month's rows to another.

use futures_util::future::join_all;
use storage::StoreError;
use storage::maintenance::CopyProgress;

use crate::maintenance::world::{World, agent, all_steps, chid, chids, message, month, topical};
use crate::store_calls::StoreCalls;

const OLD: &str = "2026_10";
const NEW: &str = "2026_12";

async fn with_tables(world: World) -> World {
    let world = world.with_months(&[OLD, NEW]).await;
    world.add_channels(agent(1), month(OLD), chids([1, 2])).await.unwrap();
    world
}

/// Copies all steps; answers how many there were, and what they did together.
async fn copy(world: &World) -> (usize, CopyProgress) {
    all_steps(async |after| world.copy_rows(month(OLD), month(NEW), after).await).await
}

pub(crate) async fn channels_and_messages_are_copied(world: World) {
    let world = with_tables(world).await;
    world.add_channels(agent(2), month(OLD), chids([])).await.unwrap();
    for message in [message(1), topical(2)] {
        world.put(agent(1), OLD, &message).await;
    }
    copy(&world).await;
    let channels = world.channels(agent(1), month(NEW)).await;
    assert_eq!(channels, Ok(Some(chids([1, 2]))));
    assert_eq!(world.channels(agent(2), month(NEW)).await, Ok(Some(chids([]))));
    let mut messages = world.waiting(agent(1), NEW).await;
    messages.sort_by_key(|message| message.id);
    assert_eq!(messages, [message(1), topical(2)]);
    assert_eq!(world.waiting(agent(1), OLD).await.len(), 2, "it is a copy");
}

pub(crate) async fn copying_again_writes_nothing(world: World) {
    let world = with_tables(world).await;
    for message in [message(1), topical(2)] {
        world.put(agent(1), OLD, &message).await;
    }
    let (_, first) = copy(&world).await;
    assert!(first.written >= 3 && first.seen >= 3, "{first:?}");
    let (_, second) = copy(&world).await;
    assert_eq!((second.seen, second.written), (first.seen, 0));
    assert_eq!(world.waiting(agent(1), NEW).await.len(), 2);
}

pub(crate) async fn copying_never_replaces_a_newer_message_of_a_topic(world: World) {
    let world = with_tables(world).await;
    world.add_channels(agent(1), month(NEW), chids([1])).await.unwrap();
    world.put(agent(1), OLD, &topical(1)).await;
    world.put(agent(1), NEW, &topical(2)).await;
    copy(&world).await;
    assert_eq!(world.waiting(agent(1), NEW).await, [topical(2)]);
    world.put(agent(1), OLD, &topical(3)).await;
    copy(&world).await;
    assert_eq!(world.waiting(agent(1), NEW).await, [topical(3)], "a newer one does");
}

pub(crate) async fn copying_takes_no_channel_away(world: World) {
    let world = with_tables(world).await;
    world.add_channels(agent(1), month(NEW), chids([3])).await.unwrap();
    copy(&world).await;
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([1, 2, 3]))));
}

pub(crate) async fn many_rows_are_copied_in_steps(world: World) {
    let world = with_tables(world).await;
    for number in 2..5 {
        world.add_channels(agent(number), month(OLD), chids(0..300)).await.unwrap();
    }
    let messages: Vec<_> = (1..=510).map(message).collect();
    join_all(messages.iter().map(|message| world.put(agent(1), OLD, message))).await;
    let (steps, all) = copy(&world).await;
    assert!(steps >= 3, "one step is bounded, and there were {steps}");
    assert_eq!(all.seen, all.written, "no row is seen twice");
    assert_eq!(world.waiting(agent(1), NEW).await, messages);
    for number in 2..5 {
        let channels = world.channels(agent(number), month(NEW)).await;
        assert_eq!(channels, Ok(Some(chids(0..300))));
    }
}

pub(crate) async fn there_is_no_copying_without_both_tables(world: World) {
    let world = with_tables(world).await;
    let unmade = month("2026_11");
    for (from, to) in [(unmade, month(NEW)), (month(OLD), unmade)] {
        assert_eq!(world.copy_rows(from, to, None).await, Err(StoreError::NoSuchMonth(unmade)));
    }
}

pub(crate) async fn copying_a_month_to_itself_does_nothing(world: World) {
    let world = with_tables(world).await;
    assert_eq!(world.copy_rows(month(OLD), month(OLD), None).await, Ok(CopyProgress::default()));
    assert!(world.channels(agent(1), month(OLD)).await.unwrap().unwrap().contains(&chid(1)));
}
