//! Many writers, publishers and readers of one feed at the same instant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use state_machine::feed::{FeedKey, FeedSyncId, WriteResult};
use storage::{FeedTables, PageLimit};
use tokio::task::JoinSet;

use crate::conformance::feed_world::*;
use crate::conformance::world::World;

const WRITERS: u32 = 6;
const PUBLISHERS: u32 = 3;

/// Runs a task for each of `0..count`, all at once, and answers what they answered.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    world: &World,
    count: u32,
    task: impl Fn(Arc<dyn FeedTables>, u32) -> F,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        tasks.spawn(task(world.shared_feeds(), number));
    }
    tasks.join_all().await
}

/// Runs a task beside others, again and again, until they are done.
async fn until_done(others: impl Future<Output = ()>, mut task: impl AsyncFnMut()) {
    let is_done = AtomicBool::new(false);
    let others = async {
        others.await;
        is_done.store(true, Ordering::Relaxed);
    };
    let beside = async {
        while !is_done.load(Ordering::Relaxed) {
            task().await;
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(others, beside);
}

pub(crate) async fn publishers_at_once_give_each_number_to_one_key(world: World) {
    for number in 0..60 {
        write(&*world, FEED, &format!("{number:02}"), "v").await;
    }
    let counts = at_once(&world, 4, |store, _task| async move {
        let mut count = 0;
        loop {
            let published = publish(&*store, FEED, 7).await;
            count += published.count;
            if published.next.is_none() {
                return count;
            }
        }
    })
    .await;
    assert_eq!(counts.iter().sum::<usize>(), 60, "each counts what it has numbered: {counts:?}");
    let seen = updates(&*world, FEED, 0).await;
    assert!(seen.iter().map(|(number, ..)| *number).eq(1..=60), "none twice, none left out");
    let keys: BTreeSet<_> = seen.iter().map(|(_, key, ..)| key).collect();
    assert_eq!((keys.len(), sequence(&*world, FEED).await.value), (60, FeedSyncId(60)));
}

pub(crate) async fn writers_of_one_key_are_told_different_versions_and_the_last_value_stays(
    world: World,
) {
    let told = at_once(&world, 8, |store, writer| async move {
        let mut told = Vec::new();
        for round in 0..5 {
            let text = format!("{writer} {round}");
            told.push((write(&*store, FEED, "k", &text).await, text));
        }
        assert!(told.is_sorted(), "a writer's versions grow");
        told
    })
    .await;
    let mut told: Vec<_> = told.into_iter().flatten().collect();
    told.sort();
    assert!(told.iter().map(|(version, _)| *version).eq(1..=40), "{told:?}");
    publish_all(&*world, FEED).await;
    assert_eq!(updates(&*world, FEED, 0).await, [saw(1, "k", 41, &told[39].1)]);
}

pub(crate) async fn first_writes_at_once_make_one_feed(world: World) {
    at_once(&world, 12, |store, number| async move {
        assert_eq!(write(&*store, FEED, &number.to_string(), "v").await, 1);
    })
    .await;
    assert_eq!(sequence(&*world, FEED).await.keys, 12);
    assert_eq!(publish_all(&*world, FEED).await, 12);
}

pub(crate) async fn writers_at_once_make_no_more_keys_than_allowed(world: World) {
    let written = at_once(&world, 12, |store, number| async move {
        let name = key(&number.to_string());
        insist(|| store.write_key(feed(FEED), name.clone(), value("v"), 5)).await
    })
    .await;
    let done = written.iter().filter(|written| matches!(written, WriteResult::Done(_))).count();
    assert_eq!((done, sequence(&*world, FEED).await.keys), (5, 5));
    assert_eq!(publish_all(&*world, FEED).await, 5);
}

pub(crate) async fn a_write_that_races_with_a_publisher_is_not_lost(world: World) {
    for round in 0..20 {
        write(&*world, FEED, "k", "old").await;
        let new = format!("new {round}");
        let versions = tokio::join!(write(&*world, FEED, "k", &new), publish_all(&*world, FEED)).0;
        publish_all(&*world, FEED).await;
        let seen = updates(&*world, FEED, 0).await;
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].3.as_ref(), seen[0].2), (Some(&new), versions + 1));
    }
}

/// Writes, deletes and republishes keys of its own and one that all share.
async fn change_keys(store: Arc<dyn FeedTables>, writer: u32) {
    for round in 0..15 {
        let own = format!("{writer}-{}", round % 4);
        write(&*store, FEED, &own, &round.to_string()).await;
        write(&*store, FEED, "shared", &format!("{writer} {round}")).await;
        if round % 3 == 0 {
            delete(&*store, FEED, &own).await;
        } else if round % 3 == 1 {
            republish(&*store, FEED, &own).await;
        }
    }
}

/// Lets writers change keys while publishers number them; what the publishers leave is published
/// after.
async fn storm(world: &World) {
    let writing = AtomicUsize::new(WRITERS as usize);
    let writing = Arc::new(writing);
    at_once(world, WRITERS + PUBLISHERS, |store, task| {
        let writing = writing.clone();
        async move {
            if task < WRITERS {
                change_keys(store, task).await;
                writing.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            while writing.load(Ordering::Relaxed) > 0 {
                publish_all(&*store, FEED).await;
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    publish_all(&**world, FEED).await;
}

/// What each of the writers' own keys holds at the end.
fn expected_of_writers() -> BTreeMap<FeedKey, Option<String>> {
    let mut expected = BTreeMap::new();
    for writer in 0..WRITERS {
        for round in 0..15 {
            let held = (round % 3 != 0).then(|| round.to_string());
            expected.insert(key(&format!("{writer}-{}", round % 4)), held);
        }
    }
    expected
}

pub(crate) async fn a_reader_beside_a_storm_misses_nothing_and_never_goes_back(world: World) {
    write(&*world, FEED, "shared", "first").await;
    let mut readers = [1, 3, 100].map(|rows| (rows, Follower::default()));
    until_done(storm(&world), async || {
        for (rows, reader) in &mut readers {
            reader.poll(&*world, FEED, PageLimit { rows: *rows, ..PAGE }).await;
        }
    })
    .await;
    let last = Follower::of_now(&*world, FEED).await;
    for (rows, mut reader) in readers {
        reader.catch_up(&*world, FEED).await;
        assert_eq!(reader.known, last.known, "{rows} a page");
    }
    let held = |(key, (_, value)): (&FeedKey, &(_, Option<_>))| {
        (key.clone(), value.as_ref().map(ToString::to_string))
    };
    let mut held: BTreeMap<_, _> = last.known.iter().map(held).collect();
    assert!(held.remove(&key("shared")).is_some());
    assert_eq!(held, expected_of_writers(), "each key's last state");
}

/// What a reader saw of the whole feed: its head, and which key and version had which number.
type View = (FeedSyncId, BTreeMap<u64, (String, u64)>);

async fn view(store: &dyn FeedTables) -> View {
    let pages = pages(store, FEED, 0, PAGE).await;
    let updates = pages.iter().flat_map(|page| &page.updates).map(seen);
    (pages[0].head, updates.map(|(number, key, version, _)| (number, (key, version))).collect())
}

pub(crate) async fn no_number_appears_behind_a_head_that_was_seen(world: World) {
    write(&*world, FEED, "shared", "first").await;
    let mut before = View::default();
    until_done(storm(&world), async || {
        let now = view(&*world).await;
        assert!(now.0 >= before.0, "the head never decreases");
        for (number, had) in now.1.range(..=before.0.0) {
            assert_eq!(before.1.get(number), Some(had), "{number} came late or was given twice");
        }
        before = now;
    })
    .await;
    let (head, _) = view(&*world).await;
    assert!(head >= before.0 && head > FeedSyncId(u64::from(WRITERS)));
}
