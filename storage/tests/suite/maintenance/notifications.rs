//! The legacy table of SimplePush.

use storage::Notification;

use crate::maintenance::world::{World, agent, chid};

fn version(channel: u16, version: u64) -> Notification {
    Notification { chid: chid(channel), version }
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

pub(crate) async fn a_channels_notification_is_deleted_whatever_its_version(world: World) {
    save(&world, version(1, 5)).await;
    save(&world, version(2, 5)).await;
    assert_eq!(world.delete_notification(agent(1), chid(1), None).await, Ok(true));
    assert_eq!(world.delete_notification(agent(1), chid(1), None).await, Ok(false));
    assert_eq!(all(&world).await, [version(2, 5)]);
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
