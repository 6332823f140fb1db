//! Many callers at the same instant.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use state_machine::{NodeBinding, Time};
use storage::{RegisterResult, Registration, Store, StoreError, Stored};
use tokio::task::JoinSet;

use crate::conformance::world::*;
use crate::store_calls::StoreCalls;

/// Runs a task for each of `0..count`, all at once, and answers what they answered.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    world: &World,
    count: u32,
    task: impl Fn(Arc<dyn Store>, u32) -> F,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        tasks.spawn(task(world.shared(), number));
    }
    tasks.join_all().await
}

pub(crate) async fn puts_of_the_same_instant_are_all_kept(world: World) {
    let world = world.with_channels().await;
    at_once(&world, 16, |store, sender| async move {
        for number in 0..25 {
            let message = message(sender + number * 16);
            let stored = store.store_message(agent(1), month(NEW), message).await;
            assert_eq!(stored, Ok(Stored::Done));
        }
    })
    .await;
    assert_eq!(world.waiting(NEW).await, (0..400).map(message).collect::<Vec<_>>());
}

/// A multiplier without a common factor shuffles the ids, so that no sender has the last word.
pub(crate) async fn the_greatest_id_wins_every_race_for_a_topic(world: World) {
    let world = world.with_channels().await;
    at_once(&world, 16, |store, sender| async move {
        let ids = (0..25).map(|number| (sender * 25 + number) * 157 % 400);
        let puts = ids.map(|id| store.store_message(agent(1), month(NEW), topical(id, "t")));
        for stored in join_all(puts).await {
            assert!(matches!(stored, Ok(Stored::Done | Stored::Outranked(_))), "{stored:?}");
        }
    })
    .await;
    assert_eq!(world.waiting(NEW).await, [topical(399, "t")]);
}

pub(crate) async fn a_delete_that_races_with_the_replacement_hits_only_its_own_message(
    world: World,
) {
    let world = world.with_channels().await;
    for round in (0..100).step_by(2) {
        world.put(NEW, &topical(round, "t")).await;
        at_once(&world, 2, |store, task| async move {
            if task == 0 {
                let replacement = topical(round + 1, "t");
                store.store_message(agent(1), month(NEW), replacement).await.map(|_| ())
            } else {
                let old = vec![topical(round, "t").key()];
                store.delete_messages(agent(1), vec![month(NEW)], old).await.map(|_| ())
            }
        })
        .await;
        assert_eq!(world.waiting(NEW).await, [topical(round + 1, "t")]);
    }
}

pub(crate) async fn of_registrations_at_once_the_latest_stays(world: World) {
    let answers = at_once(&world, 100, |store, number| async move {
        let connected_at = u64::from(number) * 37 % 100 + 1;
        (connected_at, store.register_user(registration(connected_at)).await.unwrap())
    })
    .await;
    for (connected_at, answer) in answers {
        match answer {
            RegisterResult::Registered(record, _) => {
                assert_eq!(record.connected_at, Time(connected_at));
            }
            RegisterResult::Superseded(there) => assert!(there > Time(connected_at)),
            RegisterResult::UnknownAgent => panic!("each may make the record"),
        }
    }
    assert_eq!(world.record(agent(1)).await.unwrap().unwrap().connected_at, Time(100));
}

pub(crate) async fn of_registrations_of_the_same_instant_one_is_written(world: World) {
    let answers = at_once(&world, 50, |store, number| async move {
        let node = node(&number.to_string());
        store.register_user(Registration { node, ..registration(100) }).await.unwrap()
    })
    .await;
    let mut written = answers.into_iter().filter_map(|answer| match answer {
        RegisterResult::Registered(record, _) => Some(record),
        _ => None,
    });
    assert_eq!(world.record(agent(1)).await, Ok(written.next()));
    assert_eq!(written.next(), None);
}

/// Exactly one connection returns each former one: the one that replaced it.
pub(crate) async fn registrations_at_once_answer_each_the_place_of_the_one_before(world: World) {
    let answers = at_once(&world, 50, |store, number| async move {
        let registration = registration(u64::from(number) * 37 % 50 + 1);
        let node = node(&number.to_string());
        store.register_user(Registration { node, ..registration }).await.unwrap()
    })
    .await;
    let mut steps: Vec<_> = answers.into_iter().filter_map(step_of).collect();
    steps.sort_by_key(|(_, now)| now.as_ref().map(|now| now.connected_at));
    let mut last = None;
    for (before, now) in steps {
        assert_eq!(before, last);
        last = now;
    }
    assert_eq!(world.record(agent(1)).await.unwrap().unwrap().binding(), last);
}

/// Where the agent was and where it is; none where nothing was written.
fn step_of(answer: RegisterResult) -> Option<(Option<NodeBinding>, Option<NodeBinding>)> {
    match answer {
        RegisterResult::Registered(record, before) => Some((before, record.binding())),
        _ => None,
    }
}

pub(crate) async fn a_late_disconnect_never_clears_a_newer_connection(world: World) {
    for round in 1..=50 {
        world.connect(2 * round - 1).await;
        at_once(&world, 2, |store, task| async move {
            if task == 0 {
                store.register_user(registration(2 * round)).await.map(|_| ())
            } else {
                store.clear_node(agent(1), node("a"), Time(2 * round - 1)).await.map(|_| ())
            }
        })
        .await;
        let record = world.record(agent(1)).await.unwrap().unwrap();
        assert_eq!((record.node, record.connected_at), (Some(node("a")), Time(2 * round)));
    }
}

pub(crate) async fn of_two_connections_only_the_newer_moves_the_month(world: World) {
    world.connect(100).await;
    world.connect(101).await;
    let moved = at_once(&world, 20, |store, number| async move {
        let connected_at = 100 + u64::from(number % 2);
        (connected_at, store.update_message_month(step(connected_at)).await.unwrap())
    })
    .await;
    for (connected_at, moved) in moved {
        assert_eq!(moved, connected_at == 101);
    }
    assert_eq!(world.record(agent(1)).await.unwrap().unwrap().curmonth, month(NEW));
}

pub(crate) async fn channels_added_at_once_are_all_registered(world: World) {
    at_once(&world, 100, |store, number| async move {
        let channels = chids([number as u16, number as u16 + 1]);
        store.add_channels(agent(1), month(NEW), channels).await.unwrap();
    })
    .await;
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids(0..=100))));
}

pub(crate) async fn a_message_is_taken_by_one_of_the_deletes_that_race_for_it(world: World) {
    let world = world.with_channels().await;
    for round in 0..20 {
        world.put(NEW, &message(round)).await;
        let deleted = at_once(&world, 8, |store, _task| async move {
            let reference = vec![message(round).key()];
            store.delete_messages(agent(1), vec![month(OLD), month(NEW)], reference).await.unwrap()
        })
        .await;
        assert_eq!(deleted.iter().sum::<usize>(), 1);
    }
}

/// Readers and writers go on while the month they use is dropped, made again and dropped.
pub(crate) async fn a_month_dropped_under_load_breaks_no_call(world: World) {
    let world = world.with_channels().await;
    let (dropped, others) = tokio::join!(
        async {
            for _round in 0..10 {
                world.drop_month(month(OLD)).await.unwrap();
                world.ensure_month(month(OLD)).await.unwrap();
                world.add_channels(agent(1), month(OLD), chids([1])).await.unwrap();
            }
            world.drop_month(month(OLD)).await
        },
        at_once(&world, 8, |store, number| async move {
            for round in 0..100 {
                let message = message(round * 8 + number);
                let missing = Err(StoreError::NoSuchMonth(month(OLD)));
                let stored = store.store_message(agent(1), month(OLD), message).await;
                assert!(stored.is_ok() || stored == missing, "{stored:?}");
                waiting(&*store, agent(1), month(OLD)).await;
                store.channels(agent(1), month(OLD)).await.unwrap();
            }
        }),
    );
    assert_eq!((dropped, others.len()), (Ok(true), 8));
    assert_eq!(world.waiting(OLD).await, []);
    let months: BTreeSet<_> = world.months().await.unwrap().into_iter().collect();
    assert_eq!(months, BTreeSet::from([month(NEW)]));
}
