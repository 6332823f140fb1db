//! Bounds of waiting messages, where others give way to a new one.

use state_machine::{Message, Urgency};
use storage::{Stored, WaitingLimits, WhenFull};

use crate::conformance::waiting::{self, CHANNEL_FULL, USER_FULL, empty, store};
use crate::conformance::world::*;

pub(crate) const LIMITS: WaitingLimits =
    WaitingLimits { when_full: WhenFull::Replace, ..waiting::LIMITS };

fn urgent(number: u32, urgency: Urgency) -> Message {
    Message { urgency, ..empty(number, chid(1)) }
}

async fn numbers(world: &World) -> Vec<u32> {
    let waiting = world.waiting(NEW).await;
    let number =
        |id| (1..100).find(|number| message(*number).id == id || topical(*number, "t").id == id);
    waiting.iter().map(|message| number(message.id).unwrap()).collect()
}

async fn wait(world: &World, messages: impl IntoIterator<Item = Message>) {
    for message in messages {
        world.put(NEW, &message).await;
    }
}

pub(crate) async fn the_least_urgent_and_then_the_oldest_message_gives_way(world: World) {
    let waiting = [Urgency::Normal, Urgency::Low, Urgency::High, Urgency::Low];
    wait(&world, (1..).zip(waiting).map(|(number, urgency)| urgent(number, urgency))).await;
    assert_eq!(store(&world, urgent(5, Urgency::Normal)).await, Stored::Done);
    assert_eq!(numbers(&world).await, [1, 3, 4, 5]);
    assert_eq!(store(&world, urgent(6, Urgency::High)).await, Stored::Done);
    assert_eq!(numbers(&world).await, [1, 3, 5, 6]);
    assert_eq!(store(&world, urgent(7, Urgency::Normal)).await, Stored::Done);
    assert_eq!(numbers(&world).await, [3, 5, 6, 7]);
    assert_eq!(world.state().messages_gave_way, 3);
}

pub(crate) async fn a_message_less_urgent_than_all_is_refused(world: World) {
    wait(&world, (1..=4).map(|number| urgent(number, Urgency::Normal))).await;
    assert_eq!(store(&world, urgent(5, Urgency::Low)).await, CHANNEL_FULL);
    assert_eq!(numbers(&world).await, [1, 2, 3, 4]);
}

pub(crate) async fn a_full_channel_takes_from_itself_and_a_full_user_from_all(world: World) {
    wait(&world, [empty(1, chid(2)), empty(2, chid(2))]).await;
    wait(&world, (3..=6).map(|number| empty(number, chid(1)))).await;
    assert_eq!(store(&world, empty(7, chid(1))).await, Stored::Done);
    assert_eq!(numbers(&world).await, [1, 2, 4, 5, 6, 7]);
    assert_eq!(store(&world, empty(8, chid(3))).await, Stored::Done);
    assert_eq!(numbers(&world).await, [2, 4, 5, 6, 7, 8]);
}

pub(crate) async fn as_many_give_way_as_the_new_one_needs_bytes(world: World) {
    wait(&world, [sized(1, 300), sized(2, 300), sized(3, 100)]).await;
    assert_eq!(store(&world, sized(4, 400)).await, Stored::Done);
    assert_eq!(numbers(&world).await, [3, 4]);
}

pub(crate) async fn nothing_gives_way_to_a_message_that_does_not_fit_even_then(world: World) {
    wait(&world, [sized(1, 300), Message { urgency: Urgency::High, ..sized(2, 300) }]).await;
    assert_eq!(store(&world, sized(3, 701)).await, CHANNEL_FULL);
    assert_eq!(store(&world, sized(4, 500)).await, CHANNEL_FULL);
    assert_eq!(store(&world, Message { chid: chid(2), ..sized(5, 1201) }).await, CHANNEL_FULL);
    wait(&world, [Message { chid: chid(3), urgency: Urgency::High, ..sized(6, 500) }]).await;
    assert_eq!(store(&world, Message { chid: chid(2), ..sized(7, 500) }).await, USER_FULL);
    assert_eq!(numbers(&world).await, [1, 2, 6]);
}

pub(crate) async fn a_replaced_message_of_a_topic_makes_nothing_give_way(world: World) {
    wait(&world, [topical(1, "t"), message(2), message(3), message(4)]).await;
    assert_eq!(store(&world, topical(5, "t")).await, Stored::Done);
    assert_eq!(numbers(&world).await, [2, 3, 4, 5]);
}
