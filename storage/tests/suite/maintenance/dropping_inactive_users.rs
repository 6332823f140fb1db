//! Dropping users that stay away, batch by batch.

use state_machine::{Month, Span};
use storage::DropInactiveUsers;
use storage::inactive_users::UserBatch;

use crate::maintenance::world::{DAY, DECEMBER, World, agent, month};

/// Two months before this is November.
fn january() -> state_machine::Time {
    DECEMBER + Span(31 * DAY.0)
}

/// Sixty users that were last seen on the last days of November.
async fn with_old_users(world: World) -> World {
    for number in 0..60 {
        world.connect(agent(number), DECEMBER - Span(DAY.0 * u64::from(number % 2 + 1))).await;
    }
    world
}

fn old_users(world: &World, oldest: &str) -> DropInactiveUsers {
    DropInactiveUsers::new(world.shared(), 2, january(), month(oldest))
}

async fn left(world: &World) -> usize {
    let mut left = 0;
    for number in 0..60 {
        left += usize::from(world.exists(agent(number)).await);
    }
    left
}

/// Calls until the end; leaves out empty batches.
async fn all(mut users: DropInactiveUsers) -> Vec<UserBatch> {
    let mut batches = Vec::new();
    while let Some(batch) = users.next().await {
        batches.extend(Some(batch.unwrap()).filter(|batch| batch.found > 0));
    }
    batches
}

pub(crate) async fn nothing_is_dropped_before_the_first_call(world: World) {
    let world = with_old_users(world).await;
    let users = old_users(&world, "2026_11");
    assert_eq!(users.months_left(), 1);
    assert_eq!(left(&world).await, 60);
    drop(users);
    assert_eq!(left(&world).await, 60);
}

pub(crate) async fn each_call_drops_one_batch(world: World) {
    let world = with_old_users(world).await;
    let mut users = old_users(&world, "2026_11");
    let mut dropped = 0;
    while let Some(batch) = users.next().await {
        let batch = batch.unwrap();
        assert!(batch.found <= 25, "{batch:?}");
        assert_eq!((batch.dropped, batch.month), (batch.found, month("2026_11")));
        dropped += batch.dropped;
        if batch.found > 0 {
            assert_eq!(left(&world).await, 60 - dropped, "nothing runs ahead of its caller");
        }
    }
    assert_eq!((dropped, users.months_left()), (60, 0));
    assert!(users.next().await.is_none());
}

pub(crate) async fn a_dry_run_finds_the_same_users_and_drops_none(world: World) {
    let world = with_old_users(world).await;
    let batches = all(old_users(&world, "2026_11").dry_run()).await;
    assert_eq!(batches.iter().map(|batch| batch.found).sum::<usize>(), 60);
    assert!(batches.iter().all(|batch| batch.dropped == 0));
    assert_eq!(left(&world).await, 60);
}

pub(crate) async fn users_of_two_months_ago_and_earlier_are_dropped(world: World) {
    let times = [
        DECEMBER - Span(31 * DAY.0),
        DECEMBER - Span(30 * DAY.0),
        DECEMBER - Span(1),
        DECEMBER,
        january(),
    ];
    for (number, time) in (0..).zip(times) {
        world.connect(agent(number), time).await;
    }
    let batches = all(old_users(&world, "2026_10")).await;
    let months: Vec<Month> = batches.iter().map(|batch| batch.month).collect();
    assert!(months.is_sorted(), "{months:?}");
    assert_eq!(batches.iter().map(|batch| batch.dropped).sum::<usize>(), 3);
    for (number, there) in (0..).zip([false, false, false, true, true]) {
        assert_eq!(world.exists(agent(number)).await, there, "{number}");
    }
}

pub(crate) async fn no_user_is_inactive_if_the_oldest_month_is_recent(world: World) {
    let world = with_old_users(world).await;
    assert!(old_users(&world, "2026_12").next().await.is_none());
    assert_eq!(left(&world).await, 60);
}
