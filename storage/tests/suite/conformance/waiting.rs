//! Bounds of waiting messages, with [`LIMITS`]: above them a message is refused.

use futures_util::future::join_all;
use state_machine::{Chid, Message, MessageKey, Span, Uaid};
use storage::{FullScope, Stored, WaitingBound, WaitingLimits, WhenFull};

use crate::conformance::world::*;
use crate::names::{each_page, until_done};
use crate::store_calls::StoreCalls;

/// Few enough to reach each bound with a few messages.
pub(crate) const LIMITS: WaitingLimits = WaitingLimits {
    user: WaitingBound { messages_max: 6, bytes_max: 1200 },
    channel: WaitingBound { messages_max: 4, bytes_max: 700 },
    when_full: WhenFull::Refuse,
};

pub(crate) const CHANNEL_FULL: Stored = Stored::Full(FullScope::Channel);
pub(crate) const USER_FULL: Stored = Stored::Full(FullScope::User);

pub(crate) async fn store_of(world: &World, uaid: Uaid, message: Message) -> Stored {
    world.store_message(uaid, month(NEW), message).await.unwrap()
}

pub(crate) async fn store(world: &World, message: Message) -> Stored {
    store_of(world, agent(1), message).await
}

/// A message without a payload, so that only the number counts.
pub(crate) fn empty(number: u32, channel: Chid) -> Message {
    Message { chid: channel, payload: None, ..message(number) }
}

async fn fill_channel_1(world: &World) -> Vec<MessageKey> {
    for number in 1..=4 {
        world.put(NEW, &empty(number, chid(1))).await;
    }
    (1..=4).map(|number| empty(number, chid(1)).key()).collect()
}

pub(crate) async fn the_last_message_that_fits_is_stored_and_no_further_one(world: World) {
    fill_channel_1(&world).await;
    assert_eq!(store(&world, empty(5, chid(1))).await, CHANNEL_FULL);
    assert_eq!(store(&world, empty(6, chid(2))).await, Stored::Done);
    assert_eq!(store(&world, empty(7, chid(3))).await, Stored::Done);
    assert_eq!(store(&world, empty(8, chid(2))).await, USER_FULL);
    assert_eq!(store(&world, topical(9, "t")).await, CHANNEL_FULL);
    let ids: Vec<_> = world.waiting(NEW).await.iter().map(|message| message.id).collect();
    let expected = [1, 2, 3, 4, 6, 7].map(|number| message(number).id);
    assert_eq!(ids, expected);
}

pub(crate) async fn bytes_fit_up_to_the_last_one(world: World) {
    assert_eq!(store(&world, sized(1, 701)).await, CHANNEL_FULL, "even if nothing waits");
    assert_eq!(store(&world, sized(2, 300)).await, Stored::Done);
    assert_eq!(store(&world, sized(3, 400)).await, Stored::Done);
    assert_eq!(store(&world, sized(4, 1)).await, CHANNEL_FULL);
    let of_channel_2 = |number, bytes| Message { chid: chid(2), ..sized(number, bytes) };
    assert_eq!(store(&world, of_channel_2(5, 501)).await, USER_FULL);
    assert_eq!(store(&world, of_channel_2(6, 500)).await, Stored::Done);
    assert_eq!(store(&world, of_channel_2(7, 1)).await, USER_FULL);
    assert_eq!(store(&world, empty(8, chid(2))).await, Stored::Done, "it has no bytes");
}

pub(crate) async fn a_replacement_counts_the_difference(world: World) {
    let of_size =
        |number, bytes| Message { payload: sized(0, bytes).payload, ..topical(number, "t") };
    assert_eq!(store(&world, of_size(1, 400)).await, Stored::Done);
    for number in 2..=4 {
        assert_eq!(store(&world, sized(number, 100)).await, Stored::Done);
    }
    assert_eq!(store(&world, of_size(5, 400)).await, Stored::Done, "as many and as large");
    assert_eq!(store(&world, of_size(6, 401)).await, CHANNEL_FULL);
    assert_eq!(store(&world, of_size(7, 300)).await, Stored::Done);
    assert_eq!(store(&world, of_size(8, 400)).await, Stored::Done, "there is room again");
    assert_eq!(store(&world, topical(9, "other")).await, CHANNEL_FULL);
    assert_eq!(world.waiting(NEW).await.len(), 4);
}

pub(crate) async fn a_message_that_is_stored_again_counts_once(world: World) {
    for _time in 0..5 {
        assert_eq!(store(&world, empty(1, chid(1))).await, Stored::Done);
        assert_eq!(store(&world, topical(2, "t")).await, Stored::Done);
    }
    assert_eq!(store(&world, empty(3, chid(1))).await, Stored::Done);
    assert_eq!(store(&world, empty(4, chid(1))).await, Stored::Done);
    assert_eq!(store(&world, empty(5, chid(1))).await, CHANNEL_FULL);
    assert_eq!(store(&world, empty(4, chid(1))).await, Stored::Done, "it is there already");
    let outranked = Stored::Outranked(topical(2, "t").id);
    assert_eq!(store(&world, topical(1, "t")).await, outranked);
}

pub(crate) async fn a_deleted_message_makes_room_for_one(world: World) {
    let stored = fill_channel_1(&world).await;
    assert_eq!(store(&world, empty(5, chid(1))).await, CHANNEL_FULL);
    let deleted = vec![stored[1].clone(), message(9).key()];
    assert_eq!(world.delete_messages(agent(1), vec![month(NEW)], deleted).await, Ok(1));
    assert_eq!(store(&world, empty(6, chid(1))).await, Stored::Done);
    assert_eq!(store(&world, empty(7, chid(1))).await, CHANNEL_FULL);
    let all = world.waiting(NEW).await.iter().map(Message::key).collect();
    assert_eq!(world.delete_messages(agent(1), vec![month(NEW)], all).await, Ok(4));
    for number in 8..=11 {
        assert_eq!(store(&world, empty(number, chid(1))).await, Stored::Done);
    }
    assert_eq!(store(&world, empty(12, chid(1))).await, CHANNEL_FULL);
}

pub(crate) async fn expired_messages_make_room(world: World) {
    for number in 1..=3 {
        world.put(NEW, &expired(number)).await;
    }
    world.put(NEW, &message(4)).await;
    let at = |number, accepted_at| Message { accepted_at, ..message(number) };
    let before = NOW - Span(1);
    assert_eq!(store(&world, at(5, before)).await, CHANNEL_FULL, "none has expired");
    // The DynamoDB engine counts again after a while.
    let later = NOW + Span::from_secs(30);
    for number in 6..=8 {
        assert_eq!(store(&world, at(number, later)).await, Stored::Done);
    }
    assert_eq!(store(&world, at(9, later)).await, CHANNEL_FULL);
}

pub(crate) async fn users_and_months_have_bounds_of_their_own(world: World) {
    fill_channel_1(&world).await;
    assert_eq!(store(&world, empty(5, chid(1))).await, CHANNEL_FULL);
    assert_eq!(store_of(&world, agent(2), empty(5, chid(1))).await, Stored::Done);
    world.put(OLD, &empty(5, chid(1))).await;
}

pub(crate) async fn a_channel_that_is_not_registered_is_not_full(world: World) {
    fill_channel_1(&world).await;
    for number in 5..=6 {
        world.put(NEW, &empty(number, chid(2))).await;
    }
    assert_eq!(store(&world, empty(7, chid(9))).await, Stored::NoSuchChannel);
    world.remove_channel(agent(1), vec![month(NEW)], chid(1)).await.unwrap();
    assert_eq!(store(&world, empty(8, chid(1))).await, Stored::NoSuchChannel);
}

pub(crate) async fn messages_of_an_unregistered_channel_make_room(world: World) {
    fill_channel_1(&world).await;
    for number in 5..=6 {
        world.put(NEW, &empty(number, chid(2))).await;
    }
    assert_eq!(store(&world, empty(7, chid(2))).await, USER_FULL);
    world.remove_channel(agent(1), vec![month(NEW)], chid(1)).await.unwrap();
    // The DynamoDB engine counts again after a while.
    let later = NOW + Span::from_secs(30);
    let of_channel_2 = |number| Message { accepted_at: later, ..empty(number, chid(2)) };
    assert_eq!(store(&world, of_channel_2(8)).await, Stored::Done);
    world.add_channels(agent(1), month(NEW), chids([1])).await.unwrap();
    let ids: Vec<_> = world.waiting(NEW).await.iter().map(|message| message.id).collect();
    assert_eq!(ids, [5, 6, 8].map(|number| message(number).id), "those of channel 1 are gone");
    assert_eq!(store(&world, of_channel_2(9)).await, Stored::Done);
    assert_eq!(store(&world, of_channel_2(10)).await, CHANNEL_FULL);
    for number in 11..=12 {
        let of_channel_1 = Message { accepted_at: later, ..empty(number, chid(1)) };
        assert_eq!(store(&world, of_channel_1).await, Stored::Done);
    }
    assert_eq!(
        store(&world, Message { accepted_at: later, ..empty(13, chid(1)) }).await,
        USER_FULL
    );
}

pub(crate) async fn moved_messages_are_stored_above_the_bound_and_count(world: World) {
    fill_channel_1(&world).await;
    for number in 5..=8 {
        world.put(OLD, &empty(number, chid(1))).await;
    }
    world.move_messages(agent(1), month(OLD), month(NEW)).await.unwrap();
    assert_eq!(world.waiting(NEW).await.len(), 8);
    world.put(OLD, &empty(9, chid(1))).await;
    assert_eq!(store(&world, empty(10, chid(1))).await, CHANNEL_FULL);
    let first = (1..=5).map(|number| empty(number, chid(1)).key()).collect();
    assert_eq!(world.delete_messages(agent(1), vec![month(NEW)], first).await, Ok(5));
    assert_eq!(store(&world, empty(11, chid(1))).await, Stored::Done);
    assert_eq!(store(&world, empty(12, chid(1))).await, CHANNEL_FULL);
}

pub(crate) async fn copied_messages_are_stored_above_the_bound_and_count(world: World) {
    fill_channel_1(&world).await;
    for number in 5..=8 {
        world.put(OLD, &empty(number, chid(1))).await;
    }
    each_page(async |after| world.copy_rows(month(OLD), month(NEW), after).await.unwrap().next)
        .await;
    assert_eq!(world.waiting(NEW).await.len(), 8);
    let first = (1..=4).map(|number| empty(number, chid(1)).key()).collect();
    assert_eq!(world.delete_messages(agent(1), vec![month(NEW)], first).await, Ok(4));
    assert_eq!(store(&world, empty(9, chid(1))).await, CHANNEL_FULL);
}

/// As after a bound was lowered.
pub(crate) async fn a_replacement_that_does_not_grow_is_stored_above_the_bound(world: World) {
    let of_size =
        |number, bytes| Message { payload: sized(0, bytes).payload, ..topical(number, "t") };
    world.put(NEW, &sized(1, 500)).await;
    world.put(OLD, &of_size(2, 400)).await;
    each_page(async |after| world.copy_rows(month(OLD), month(NEW), after).await.unwrap().next)
        .await;
    for (number, bytes, expected) in
        [(3, 400, Stored::Done), (4, 300, Stored::Done), (5, 301, CHANNEL_FULL)]
    {
        assert_eq!(store(&world, of_size(number, bytes)).await, expected, "{bytes}");
    }
}

pub(crate) async fn stores_at_once_do_not_exceed_the_bound(world: World) {
    let store = world.shared();
    let stores = (1..=40).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            store.store_message(agent(1), month(NEW), empty(number, chid(1))).await.unwrap()
        })
    });
    let results: Vec<_> = join_all(stores).await.into_iter().map(Result::unwrap).collect();
    let done = results.iter().filter(|stored| **stored == Stored::Done).count();
    let full = results.iter().filter(|stored| **stored == CHANNEL_FULL).count();
    assert_eq!((done, full), (4, 36));
    assert_eq!(world.waiting(NEW).await.len(), 4);
}

pub(crate) async fn counts_survive_a_restart(world: World) {
    let stored = fill_channel_1(&world).await;
    let world = world.restart().await;
    assert_eq!(store(&world, empty(5, chid(1))).await, CHANNEL_FULL);
    let deleted = vec![stored[0].clone()];
    assert_eq!(world.delete_messages(agent(1), vec![month(NEW)], deleted).await, Ok(1));
    let world = world.restart().await;
    assert_eq!(store(&world, empty(6, chid(1))).await, Stored::Done);
    assert_eq!(store(&world, empty(7, chid(1))).await, CHANNEL_FULL);
}

pub(crate) async fn nothing_waits_for_a_dropped_user(world: World) {
    fill_channel_1(&world).await;
    until_done(async || world.delete_rows(vec![agent(1)], month(NEW)).await.unwrap()).await;
    world.add_channels(agent(1), month(NEW), chids([1])).await.unwrap();
    fill_channel_1(&world).await;
    assert_eq!(store(&world, empty(5, chid(1))).await, CHANNEL_FULL);
}
