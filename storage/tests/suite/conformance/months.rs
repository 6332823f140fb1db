//! The tables themselves, and moving messages from one to another.

use state_machine::Message;
use storage::{StoreError, Stored};

use crate::conformance::world::*;
use crate::store_calls::StoreCalls;

pub(crate) async fn months_are_listed_oldest_first(world: World) {
    assert_eq!(world.months().await, Ok([OLD, NEW].map(month).to_vec()));
    world.ensure_month(month("2027_01")).await.unwrap();
    world.ensure_month(month("2025_12")).await.unwrap();
    let expected = ["2025_12", OLD, NEW, "2027_01"].map(month).to_vec();
    assert_eq!(world.months().await, Ok(expected.clone()));
    assert_eq!(world.restart().await.months().await, Ok(expected));
}

pub(crate) async fn making_a_month_that_is_there_keeps_what_is_in_it(world: World) {
    world.put(NEW, &message(1)).await;
    assert_eq!(world.ensure_month(month(NEW)).await, Ok(()));
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([1, 2, 3]))));
    assert_eq!(world.waiting(NEW).await, [message(1)]);
}

pub(crate) async fn a_dropped_month_is_gone_with_all_in_it(world: World) {
    world.put(OLD, &message(1)).await;
    world.put(NEW, &message(2)).await;
    assert_eq!(world.waiting(OLD).await, [message(1)]);
    assert_eq!(world.drop_month(month(OLD)).await, Ok(true));
    assert_eq!(world.months().await, Ok(vec![month(NEW)]));
    assert_eq!(world.waiting(OLD).await, []);
    let world = world.restart().await;
    assert_eq!(world.months().await, Ok(vec![month(NEW)]));
    assert_eq!(world.waiting(NEW).await, [message(2)]);
}

pub(crate) async fn dropping_a_month_that_is_not_there_answers_so(world: World) {
    assert_eq!(world.drop_month(month(UNMADE)).await, Ok(false));
    assert_eq!(world.drop_month(month(OLD)).await, Ok(true));
    assert_eq!(world.drop_month(month(OLD)).await, Ok(false));
}

pub(crate) async fn a_month_made_again_is_empty(world: World) {
    world.put(OLD, &message(1)).await;
    world.drop_month(month(OLD)).await.unwrap();
    world.ensure_month(month(OLD)).await.unwrap();
    assert_eq!(world.channels(agent(1), month(OLD)).await, Ok(None));
    let stored = world.store_message(agent(1), month(OLD), message(2)).await;
    assert_eq!(stored, Ok(Stored::NoSuchChannel));
    world.add_channels(agent(1), month(OLD), chids([1])).await.unwrap();
    world.put(OLD, &message(3)).await;
    assert_eq!(world.waiting(OLD).await, [message(3)]);
}

pub(crate) async fn moved_messages_are_in_the_new_month_only(world: World) {
    let waiting = [message(1), topical(2, "t"), Message { payload: None, ..message(3) }];
    for message in &waiting {
        world.put(OLD, message).await;
    }
    world.put(NEW, &message(4)).await;
    assert_eq!(world.move_messages(agent(1), month(OLD), month(NEW)).await, Ok(()));
    assert_eq!(world.waiting(OLD).await, []);
    let [first, second, third] = waiting;
    assert_eq!(world.waiting(NEW).await, [first, second, third, message(4)]);
}

/// The endpoint of the one in the new month may have a clock that is behind.
pub(crate) async fn moving_keeps_the_message_of_a_topic_in_the_new_month(world: World) {
    world.put(OLD, &topical(1, "greater_in_the_new")).await;
    world.put(NEW, &topical(2, "greater_in_the_new")).await;
    world.put(NEW, &topical(3, "greater_in_the_old")).await;
    world.put(OLD, &topical(4, "greater_in_the_old")).await;
    world.move_messages(agent(1), month(OLD), month(NEW)).await.unwrap();
    let expected = [topical(2, "greater_in_the_new"), topical(3, "greater_in_the_old")];
    assert_eq!(world.waiting(NEW).await, expected);
    assert_eq!(world.waiting(OLD).await, []);
}

pub(crate) async fn messages_of_channels_not_registered_in_the_new_month_are_only_deleted(
    world: World,
) {
    world.remove_channel(agent(1), vec![month(NEW)], chid(2)).await.unwrap();
    world.put(OLD, &message(1)).await;
    world.put(OLD, &Message { chid: chid(2), ..message(2) }).await;
    world.move_messages(agent(1), month(OLD), month(NEW)).await.unwrap();
    world.add_channels(agent(1), month(NEW), chids([2])).await.unwrap();
    assert_eq!(world.waiting(NEW).await, [message(1)]);
    assert_eq!(world.waiting(OLD).await, []);
}

pub(crate) async fn moving_continues_after_a_crash(world: World) {
    for copied in [message(1), topical(2, "t")] {
        world.put(OLD, &copied).await;
        world.put(NEW, &copied).await;
    }
    world.put(OLD, &message(3)).await;
    for _repeated in 0..2 {
        world.move_messages(agent(1), month(OLD), month(NEW)).await.unwrap();
        assert_eq!(world.waiting(OLD).await, []);
        assert_eq!(world.waiting(NEW).await, [message(1), topical(2, "t"), message(3)]);
    }
}

pub(crate) async fn moving_affects_no_other_agents_messages(world: World) {
    world.store_message(agent(2), month(OLD), message(1)).await.unwrap();
    world.move_messages(agent(1), month(OLD), month(NEW)).await.unwrap();
    assert_eq!(world.waiting_for(agent(2), OLD).await, [message(1)]);
    assert_eq!(world.waiting_for(agent(2), NEW).await, []);
}

pub(crate) async fn nothing_is_lost_when_there_is_no_table_to_move_to(world: World) {
    world.put(OLD, &message(1)).await;
    let refused = world.move_messages(agent(1), month(OLD), month(UNMADE)).await;
    assert_eq!(refused, Err(StoreError::NoSuchMonth(month(UNMADE))));
    assert_eq!(world.waiting(OLD).await, [message(1)]);
}

pub(crate) async fn there_is_nothing_to_move_from_a_month_without_a_table(world: World) {
    world.put(NEW, &message(1)).await;
    assert_eq!(world.move_messages(agent(1), month(UNMADE), month(NEW)).await, Ok(()));
    assert_eq!(world.waiting(NEW).await, [message(1)]);
}

pub(crate) async fn moving_to_the_same_month_changes_nothing(world: World) {
    world.put(NEW, &message(1)).await;
    assert_eq!(world.move_messages(agent(1), month(NEW), month(NEW)).await, Ok(()));
    assert_eq!(world.waiting(NEW).await, [message(1)]);
}
