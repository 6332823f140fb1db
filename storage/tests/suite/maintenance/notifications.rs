//! The legacy table of SimplePush.

use state_machine::{Message, Time};
use storage::{Cursor, Notification, Page, PageLimit, Stored, inactive_users};

use crate::maintenance::world::{World, agent, chid, message, month};
use crate::store_calls::StoreCalls;

fn version(channel: u16, version: u64) -> Notification {
    Notification { chid: chid(channel), version, data: None }
}

async fn save(world: &World, notification: Notification) -> bool {
    world.save_notification(agent(1), notification).await.unwrap()
}

async fn all(world: &World) -> Vec<Notification> {
    world.fetch_notifications(agent(1), None, usize::MAX).await.unwrap()
}

pub(crate) async fn only_a_higher_version_replaces(world: World) {
    assert!(save(&world, version(1, 5)).await);
    for not_higher in [5, 4, 0] {
        assert!(!save(&world, version(1, not_higher)).await);
        assert_eq!(all(&world).await, [version(1, 5)]);
    }
    assert!(save(&world, version(1, 6)).await);
    assert_eq!(all(&world).await, [version(1, 6)]);
}

/// In numeric order: 9 before 10, and the greatest version of a sender last.
pub(crate) async fn every_version_has_its_place_in_the_order(world: World) {
    for number in [0, 9, 10, u64::from(u32::MAX) + 1, u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX] {
        assert!(save(&world, version(1, number)).await, "{number}");
        assert_eq!(all(&world).await, [version(1, number)]);
    }
    assert!(!save(&world, version(1, u64::MAX - 1)).await);
}

pub(crate) async fn notifications_are_fetched_by_channel_in_pages(world: World) {
    for channel in [3, 1, 5, 2, 4] {
        save(&world, version(channel, 7)).await;
    }
    let page = async |after| world.fetch_notifications(agent(1), after, 2).await.unwrap();
    assert_eq!(page(None).await, [version(1, 7), version(2, 7)]);
    assert_eq!(page(Some(chid(2))).await, [version(3, 7), version(4, 7)]);
    assert_eq!(page(Some(chid(4))).await, [version(5, 7)]);
    assert_eq!(page(Some(chid(5))).await, []);
}

pub(crate) async fn deleting_an_older_version_keeps_the_newer_one(world: World) {
    save(&world, version(1, 5)).await;
    save(&world, version(1, 6)).await;
    assert_eq!(world.delete_notification(agent(1), chid(1), Some(5)).await, Ok(false));
    assert_eq!(all(&world).await, [version(1, 6)]);
    assert_eq!(world.delete_notification(agent(1), chid(1), Some(6)).await, Ok(true));
    assert_eq!(all(&world).await, []);
}

pub(crate) async fn a_delete_of_a_higher_version_deletes_the_lower_one(world: World) {
    save(&world, version(1, 9)).await;
    save(&world, version(2, 9)).await;
    assert_eq!(world.delete_notification(agent(1), chid(1), Some(10)).await, Ok(true));
    assert_eq!(all(&world).await, [version(2, 9)]);
}

pub(crate) async fn data_is_replaced_with_its_version(world: World) {
    let with = |number, data: Option<&str>| Notification {
        data: data.map(str::to_owned),
        ..version(1, number)
    };
    assert!(save(&world, with(5, Some("a \u{e4}"))).await);
    assert_eq!(all(&world).await, [with(5, Some("a \u{e4}"))]);
    assert!(!save(&world, with(5, Some("b"))).await);
    assert_eq!(all(&world).await, [with(5, Some("a \u{e4}"))]);
    assert!(save(&world, with(6, None)).await);
    assert_eq!(all(&world).await, [with(6, None)]);
}

fn sent(channel: u16, version: u64, data: &'static str) -> Message {
    Message::of_version(chid(channel), version, Some(data.into()), Time(7))
}

async fn page(world: &World, after: Option<Cursor>, rows: usize, bytes: usize) -> Page {
    let limit = PageLimit { rows, bytes };
    world.fetch_versions(agent(1), after, limit, Time(7)).await.unwrap()
}

pub(crate) async fn versions_are_stored_and_fetched_as_messages_in_pages(world: World) {
    let all = [sent(1, 5, "one"), sent(2, 5, "two"), sent(3, 7, "three")];
    for version in &all {
        let stored = world.store_message(agent(1), month("2026_11"), version.clone()).await;
        assert_eq!(stored, Ok(Stored::Done));
    }
    let lower = world.store_message(agent(1), month("2026_11"), sent(3, 6, "six")).await;
    assert_eq!(lower, Ok(Stored::Done));
    for (rows, bytes) in [(2, 100), (100, 4)] {
        let first = page(&world, None, rows, bytes).await;
        assert_eq!(first.messages, all[..2], "{rows} rows, {bytes} bytes");
        let second = page(&world, first.next, rows, bytes).await;
        assert_eq!((second.messages, second.next), (all[2..].to_vec(), None));
    }
    assert_eq!(page(&world, None, 9, 0).await.messages, all[..1]);
}

pub(crate) async fn acked_versions_are_deleted_in_no_month_and_only_they(world: World) {
    for version in [sent(1, 5, "a"), sent(2, 8, "b")] {
        world.store_message(agent(1), month("2026_11"), version).await.unwrap();
    }
    let keys = [sent(1, 6, "a").key(), sent(2, 7, "b").key(), message(1).key()];
    assert_eq!(world.delete_messages(agent(1), vec![], keys.into()).await, Ok(1));
    assert_eq!(page(&world, None, 9, 9).await.messages, [sent(2, 8, "b")]);
}

pub(crate) async fn a_dropped_user_leaves_no_version(world: World) {
    for channel in 1..=120 {
        save(&world, version(channel, 5)).await;
    }
    world.save_notification(agent(2), version(1, 5)).await.unwrap();
    assert_eq!(inactive_users::delete_rows(&*world, &[agent(1), agent(3)]).await, Ok(true));
    assert_eq!(all(&world).await, []);
    assert_eq!(inactive_users::delete_rows(&*world, &[agent(1), agent(3)]).await, Ok(false));
    assert_eq!(world.fetch_notifications(agent(2), None, 9).await, Ok(vec![version(1, 5)]));
}

pub(crate) async fn a_channels_notification_is_deleted_whatever_its_version(world: World) {
    save(&world, version(1, 5)).await;
    save(&world, version(2, 5)).await;
    assert_eq!(world.delete_notification(agent(1), chid(1), None).await, Ok(true));
    assert_eq!(world.delete_notification(agent(1), chid(1), None).await, Ok(false));
    assert_eq!(all(&world).await, [version(2, 5)]);
}

pub(crate) async fn a_removed_channel_of_simplepush_leaves_no_version(world: World) {
    let months = vec![month("2026_11")];
    world.ensure_month(months[0]).await.unwrap();
    world.add_channels(agent(1), months[0], [chid(1), chid(2)].into()).await.unwrap();
    save(&world, version(1, 5)).await;
    save(&world, version(2, 5)).await;
    for _ in 0..2 {
        let removed = world.remove_channel_and_version(agent(1), months.clone(), chid(1)).await;
        assert_eq!(removed, Ok(()));
        assert_eq!(all(&world).await, [version(2, 5)]);
    }
    assert_eq!(world.channels(agent(1), months[0]).await, Ok(Some([chid(2)].into())));
}

pub(crate) async fn agents_have_notifications_of_their_own(world: World) {
    save(&world, version(1, 5)).await;
    assert_eq!(world.fetch_notifications(agent(2), None, 10).await, Ok(vec![]));
    assert_eq!(world.delete_notification(agent(2), chid(1), None).await, Ok(false));
    assert_eq!(world.save_notification(agent(2), version(1, 3)).await, Ok(true));
    assert_eq!(all(&world).await, [version(1, 5)]);
}

pub(crate) async fn creating_a_table_ahead_is_idempotent_and_keeps_its_rows(world: World) {
    for _ in 0..2 {
        assert_eq!(world.ensure_notifications().await, Ok(()));
    }
    assert_eq!(all(&world).await, []);
    assert!(save(&world, version(1, 5)).await);
    assert_eq!(world.ensure_notifications().await, Ok(()));
    assert_eq!(all(&world).await, [version(1, 5)]);
}

pub(crate) async fn nothing_is_there_before_the_first_is_saved(world: World) {
    assert_eq!(all(&world).await, []);
    assert_eq!(world.delete_notification(agent(1), chid(1), Some(1)).await, Ok(false));
}
