//! Fetching messages, page by page.

use state_machine::{Message, Span, Time};
use storage::{Cursor, Page, PageLimit};

use crate::conformance::world::*;
use crate::names::each_page;
use crate::store_calls::StoreCalls;

async fn page(world: &World, after: Option<Cursor>, limit: PageLimit) -> Page {
    world.fetch_messages(agent(1), month(NEW), after, limit, NOW).await.unwrap()
}

async fn with_messages(world: World, messages: impl IntoIterator<Item = Message>) -> World {
    let world = world.with_channels().await;
    let stored: Vec<_> = messages
        .into_iter()
        .map(|message| world.store_message(agent(1), month(NEW), message))
        .collect();
    for answer in stored {
        answer.await.unwrap();
    }
    world
}

pub(crate) async fn messages_are_ordered_by_their_ids(world: World) {
    let world = with_messages(world, [5, 1, 4, 2, 3].map(message)).await;
    assert_eq!(world.waiting(NEW).await, [1, 2, 3, 4, 5].map(message));
}

pub(crate) async fn a_fetch_goes_on_behind_the_last_page(world: World) {
    let world = with_messages(world, [1, 2, 4, 5].map(message)).await;
    let first = page(&world, None, PageLimit { rows: 2, ..PAGE }).await;
    assert_eq!(first.messages, [1, 2].map(message));
    world.put(NEW, &message(3)).await;
    world.put(NEW, &message(0)).await;
    assert_eq!(page(&world, first.next, PAGE).await.messages, [3, 4, 5].map(message));
}

pub(crate) async fn a_fetch_goes_on_where_the_last_message_was_deleted(world: World) {
    let world = with_messages(world, (1..=4).map(message)).await;
    let first = page(&world, None, PageLimit { rows: 2, ..PAGE }).await;
    let done = first.messages.iter().map(Message::key).collect();
    assert_eq!(world.delete_messages(agent(1), vec![month(NEW)], done).await, Ok(2));
    assert_eq!(page(&world, first.next, PAGE).await.messages, [3, 4].map(message));
}

pub(crate) async fn a_page_has_no_more_messages_than_asked_for(world: World) {
    let world = with_messages(world, (1..=5).map(message)).await;
    let page = page(&world, None, PageLimit { rows: 3, ..PAGE }).await;
    assert_eq!(page.messages, [1, 2, 3].map(message));
    assert!(page.next.is_some());
}

pub(crate) async fn a_page_ends_with_the_message_that_reaches_its_bytes(world: World) {
    let messages: Vec<Message> = (1..=5).map(|number| sized(number, 100)).collect();
    let world = with_messages(world, messages.clone()).await;
    for (bytes, expected) in [(199, 2), (200, 2), (201, 3)] {
        let page = page(&world, None, PageLimit { bytes, ..PAGE }).await;
        assert_eq!(page.messages, messages[..expected], "{bytes} bytes");
        assert!(page.next.is_some());
    }
}

pub(crate) async fn the_first_message_is_in_the_page_however_large_it_is(world: World) {
    let world = with_messages(world, [sized(1, 5000), message(2)]).await;
    let page = page(&world, None, PageLimit { bytes: 10, ..PAGE }).await;
    assert_eq!(page.messages, [sized(1, 5000)]);
    assert!(page.next.is_some());
}

pub(crate) async fn a_page_limit_of_zero_still_gets_one_message(world: World) {
    let world = with_messages(world, [1, 2].map(message)).await;
    let page = page(&world, None, PageLimit { rows: 1, bytes: 0 }).await;
    assert_eq!(page.messages, [message(1)]);
    assert!(page.next.is_some());
}

pub(crate) async fn pages_together_have_every_message_once(world: World) {
    let mixed = |number| match number % 3 {
        0 => expired(number),
        1 => topical(number, &format!("t{number}")),
        _ => message(number),
    };
    let world = with_messages(world, (1..=100).map(mixed)).await;
    let mut seen = Vec::new();
    each_page(async |after| {
        let page = page(&world, after, PageLimit { rows: 7, bytes: 60 }).await;
        assert!(page.messages.len() <= 7);
        seen.extend(page.messages);
        page.next
    })
    .await;
    seen.sort_by_key(|message| message.id);
    let live: Vec<Message> = (1..=100).filter(|number| number % 3 != 0).map(mixed).collect();
    assert_eq!(seen, live);
}

pub(crate) async fn the_last_page_says_that_it_is_the_last(world: World) {
    let world = with_messages(world, [1, 2].map(message)).await;
    assert_eq!(page(&world, None, PAGE).await.next, None);
    let mut page_after = page(&world, None, PageLimit { rows: 2, ..PAGE }).await;
    if let Some(next) = page_after.next {
        page_after = page(&world, Some(next), PageLimit { rows: 2, ..PAGE }).await;
        assert_eq!(page_after.messages, []);
    }
    assert_eq!(page_after.next, None);
}

pub(crate) async fn an_expired_message_is_not_fetched(world: World) {
    let fleeting = Message { ttl: Span::ZERO, ..message(4) };
    let world = with_messages(world, [expired(1), message(2), expired(3), fleeting]).await;
    assert_eq!(world.waiting(NEW).await, [message(2)]);
    assert_eq!(world.waiting(NEW).await, [message(2)], "the second time as well");
}

pub(crate) async fn a_message_lives_up_to_its_last_millisecond(world: World) {
    let world = with_messages(world, [message(1)]).await;
    let fetch = |now| world.fetch_messages(agent(1), month(NEW), None, PAGE, now);
    let expires = message(1).expires_at();
    assert_eq!(fetch(expires - Span(1)).await.unwrap().messages, [message(1)]);
    assert_eq!(fetch(expires).await.unwrap().messages, []);
}

pub(crate) async fn the_longest_ttl_never_expires(world: World) {
    let lasting = Message { ttl: Span(i64::MAX as u64), ..message(1) };
    let world = with_messages(world, [lasting.clone()]).await;
    let late = Time(NOW.0 * 1000);
    let page = world.fetch_messages(agent(1), month(NEW), None, PAGE, late).await.unwrap();
    assert_eq!(page.messages, [lasting]);
}

pub(crate) async fn a_live_message_is_found_behind_thousands_that_expired(world: World) {
    let expired = (1..=2500).map(expired);
    let world = with_messages(world, expired.chain([message(2501)])).await;
    assert_eq!(world.waiting(NEW).await, [message(2501)]);
}

pub(crate) async fn an_agent_without_messages_has_an_empty_page(world: World) {
    let world = with_messages(world, []).await;
    world.store_message(agent(2), month(NEW), message(1)).await.unwrap();
    assert_eq!(page(&world, None, PAGE).await, Page::default());
}

pub(crate) async fn a_month_without_a_table_has_no_messages(world: World) {
    let page = world.fetch_messages(agent(1), month(UNMADE), None, PAGE, NOW).await;
    assert_eq!(page, Ok(Page::default()));
}
