//! Dropping users: the mark, the rows in every month, and the record.

use state_machine::{LastConnect, NodeBinding, NodeId, RouterType, Time, Uaid};
use storage::inactive_users::{self, DropInactiveUsers};
use storage::maintenance::{MarkedUser, ROWS_IN_A_STEP};
use storage::{RegisterResult, Registration, Stored};

use crate::maintenance::world::{
    DAY, DECEMBER, SPREAD, World, agent, chids, message, month, topical,
};
use crate::store_calls::StoreCalls;

const MONTHS: [&str; 3] = ["2026_10", "2026_11", "2026_12"];

/// Agents with two channels and three messages in each month.
async fn with_rows(world: World, agents: &[Uaid]) -> World {
    let world = world.with_months(&MONTHS).await;
    for uaid in agents.iter().copied() {
        world.connect(uaid, DECEMBER).await;
        for name in MONTHS {
            world.add_channels(uaid, month(name), chids([1, 2])).await.unwrap();
            for message in [message(1), message(2), topical(3)] {
                world.put(uaid, name, &message).await;
            }
        }
    }
    world
}

/// Whether the agent has channels or messages in any month.
async fn has_rows(world: &World, uaid: Uaid) -> bool {
    for name in MONTHS {
        let channels = world.channels(uaid, month(name)).await.unwrap();
        if channels.is_some() || !world.waiting(uaid, name).await.is_empty() {
            return true;
        }
    }
    false
}

fn seen(uaid: Uaid, time: Time) -> Option<LastConnect> {
    Some(LastConnect::of(time, uaid, SPREAD))
}

pub(crate) async fn a_user_who_reconnected_after_being_found_is_not_marked(world: World) {
    world.connect(agent(1), DECEMBER).await;
    let found = seen(agent(1), DECEMBER);
    world.connect(agent(1), DECEMBER + DAY).await;
    assert_eq!(world.mark_dropped(agent(1), found).await, Ok(None));
    assert!(world.exists(agent(1)).await);
    assert_eq!(world.mark_dropped(agent(2), found).await, Ok(None));
    assert_eq!(world.mark_dropped(agent(2), None).await, Ok(None));
}

pub(crate) async fn a_marked_user_is_unknown_and_stays_in_the_index(world: World) {
    world.connect(agent(1), DECEMBER).await;
    let before = world.record(agent(1)).await.unwrap().unwrap();
    let binding = Some(NodeBinding { node: NodeId::new("a"), connected_at: DECEMBER });
    let marked = Ok(Some(MarkedUser { uaid: agent(1), binding }));
    assert_eq!(world.mark_dropped(agent(1), seen(agent(1), DECEMBER)).await, marked);
    assert_eq!(world.mark_dropped(agent(1), None).await, marked, "it is repeatable");
    assert_eq!(world.record(agent(1)).await, Ok(None));
    for create_in in [None, Some(before.curmonth)] {
        let registration = Registration {
            uaid: agent(1),
            router_type: RouterType::WebPush,
            node: NodeId::new("b"),
            connected_at: DECEMBER + DAY,
            last_connect: before.last_connect,
            create_in,
        };
        let answer = world.register_user(registration).await;
        assert_eq!(answer, Ok(RegisterResult::UnknownAgent), "{create_in:?}");
    }
    let found = world.inactive("2026_12", "2026_12").await;
    assert_eq!(found.iter().map(|user| user.uaid).collect::<Vec<_>>(), [agent(1)]);
    let counts = world.records_by_month(None).await.unwrap();
    assert_eq!((counts.dropped, counts.other_types), (1, 0));
}

pub(crate) async fn the_rows_of_a_user_are_deleted_in_every_month(world: World) {
    let world = with_rows(world, &[agent(1), agent(2)]).await;
    assert_eq!(inactive_users::delete_rows(&*world, &[agent(1), agent(3)]).await, Ok(true));
    assert!(!has_rows(&world, agent(1)).await);
    assert_eq!(inactive_users::delete_rows(&*world, &[agent(1), agent(3)]).await, Ok(false));
    for name in MONTHS {
        assert_eq!(world.channels(agent(2), month(name)).await, Ok(Some(chids([1, 2]))));
        assert_eq!(world.waiting(agent(2), name).await.len(), 3);
        let stored = world.store_message(agent(1), month(name), message(4)).await;
        assert_eq!(stored, Ok(Stored::NoSuchChannel));
    }
    assert_eq!(world.delete_rows(vec![agent(2)], month("2025_01")).await, Ok(false));
}

pub(crate) async fn a_step_deletes_channels_and_a_bounded_number_of_messages(world: World) {
    let world = world.with_months(&["2026_12"]).await;
    world.add_channels(agent(1), month("2026_12"), chids([1])).await.unwrap();
    let all = ROWS_IN_A_STEP as u32 + 20;
    for number in 1..=all {
        world.put(agent(1), "2026_12", &message(number)).await;
    }
    assert_eq!(world.delete_rows(vec![agent(1)], month("2026_12")).await, Ok(true));
    assert_eq!(world.channels(agent(1), month("2026_12")).await, Ok(None));
    let left = world.waiting(agent(1), "2026_12").await.len();
    assert!((20..=21).contains(&left), "{left}");
    assert_eq!(inactive_users::delete_rows(&*world, &[agent(1)]).await, Ok(true));
    assert_eq!(world.waiting(agent(1), "2026_12").await, []);
}

/// Interrupted behind the mark, behind the rows of one month, and so on, and behind all rows: each for an agent of its own,
/// as finding them takes longest.
pub(crate) async fn an_interrupted_drop_is_completed_by_the_next_one(world: World) {
    let interrupted: Vec<_> = (1..).map(agent).take(MONTHS.len() + 1).collect();
    let untouched = agent(100);
    let all = [&interrupted[..], &[untouched]].concat();
    let world = with_rows(world, &all).await;
    for (months, uaid) in interrupted.iter().copied().enumerate() {
        world.mark_dropped(uaid, seen(uaid, DECEMBER)).await.unwrap().unwrap();
        for name in &MONTHS[..months] {
            assert_eq!(world.delete_rows(vec![uaid], month(name)).await, Ok(true));
        }
    }
    let march = DECEMBER + state_machine::Span(100 * DAY.0);
    let mut users = DropInactiveUsers::new(world.shared(), 2, march, month("2026_12"));
    let mut dropped = 0;
    while let Some(batch) = users.next().await {
        dropped += batch.unwrap().dropped;
    }
    assert_eq!(dropped, all.len());
    for (months, uaid) in all.into_iter().enumerate() {
        assert!(!has_rows(&world, uaid).await, "after {months} months");
    }
    assert_eq!(world.inactive("2026_12", "2026_12").await, []);
    assert_eq!(world.records_by_month(None).await.unwrap().dropped, 0);
}

pub(crate) async fn a_month_has_rows_while_an_agent_has_some(world: World) {
    let world = world.with_months(&["2026_11", "2026_12"]).await;
    world.preflight([month("2026_12")].into()).await.unwrap();
    assert_eq!(world.has_rows(month("2026_12")).await, Ok(false));
    world.add_channels(agent(1), month("2026_12"), [].into()).await.unwrap();
    assert_eq!(world.has_rows(month("2026_12")).await, Ok(true));
    assert_eq!(world.has_rows(month("2026_11")).await, Ok(false));
    assert_eq!(world.has_rows(month("2026_10")).await, Ok(false), "without a table");
    inactive_users::delete_rows(&*world, &[agent(1)]).await.unwrap();
    assert_eq!(world.has_rows(month("2026_12")).await, Ok(false));
}
