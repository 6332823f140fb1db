//! Finding users that stay away, and deleting records.

use std::collections::BTreeSet;

use state_machine::{LastConnect, Span, Uaid};
use storage::maintenance::{InactiveUser, USERS_IN_A_BATCH};

use crate::maintenance::created_records::record;
use crate::maintenance::world::{DAY, DECEMBER, HOUR, SPREAD, World, agent};

fn uaids(users: &[InactiveUser]) -> BTreeSet<Uaid> {
    users.iter().map(|user| user.uaid).collect()
}

pub(crate) async fn users_are_found_from_the_first_to_the_last_hour_of_the_months(world: World) {
    let february = DECEMBER + Span(62 * DAY.0);
    let inside = [
        DECEMBER,
        DECEMBER + Span(30 * DAY.0),
        DECEMBER + Span(31 * DAY.0 - 1),
        DECEMBER + Span(31 * DAY.0),
        DECEMBER + Span(40 * DAY.0 + 23 * HOUR.0),
        february - Span(1),
    ];
    let outside = [DECEMBER - Span(1), february];
    let mut expected = BTreeSet::new();
    for (number, time) in inside.into_iter().chain(outside).enumerate() {
        for shard in 0..SPREAD {
            let uaid = agent((number * SPREAD + shard) as u16);
            world.connect(uaid, time).await;
            if inside.contains(&time) {
                let last_connect = LastConnect::of(time, uaid, SPREAD);
                expected.insert(InactiveUser { uaid, last_connect });
            }
        }
    }
    let found = world.inactive("2026_12", "2027_01").await;
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

pub(crate) async fn users_are_found_in_batches_and_each_once(world: World) {
    let all: BTreeSet<Uaid> = (0..60).map(agent).collect();
    for (hour, uaid) in all.iter().enumerate() {
        world.connect(*uaid, DECEMBER + Span(hour as u64 * HOUR.0)).await;
    }
    let found = world.inactive("2026_12", "2026_12").await;
    assert_eq!(found.len(), 60, "no agent is found twice");
    assert_eq!(uaids(&found), all);
}

pub(crate) async fn users_of_one_hour_and_shard_that_are_more_than_a_batch_are_all_found(
    world: World,
) {
    let all: BTreeSet<Uaid> =
        (0..USERS_IN_A_BATCH as u16 * 2).map(|number| agent(number * SPREAD as u16)).collect();
    for uaid in &all {
        world.connect(*uaid, DECEMBER).await;
    }
    let found = world.inactive("2026_12", "2026_12").await;
    assert_eq!(found.len(), all.len(), "no agent is found twice");
    assert_eq!(uaids(&found), all);
}

pub(crate) async fn records_that_are_marked_are_deleted_and_no_others(world: World) {
    for number in 0..=61 {
        world.connect(agent(number), DECEMBER).await;
    }
    for number in (0..60).chain([61]) {
        world.mark_dropped(agent(number), None).await.expect("it is there");
    }
    let never_there = agent(1000);
    let uaids: Vec<_> = (0..=60).map(agent).chain([never_there]).collect();
    assert_eq!(world.delete_uaids(uaids).await, Ok(()));
    assert!(world.exists(agent(60)).await, "it is not marked");
    for number in 0..=61 {
        let is_deleted = world.create_record(record(agent(number), DECEMBER)).await;
        assert_eq!(is_deleted, Ok(number < 60), "{number}");
    }
}
