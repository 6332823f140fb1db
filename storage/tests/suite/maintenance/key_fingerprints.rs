//! Marks of keys: kept beside the user agents by a store that nodes share, and by no other.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use storage::{StoreAdmin, StoreError};

use crate::maintenance::engines::{dynamodb, embedded};
use crate::maintenance::world::{DECEMBER, agent};

fn marks<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[tokio::test]
async fn fingerprints_are_stored_and_not_counted_as_a_user() {
    let world = dynamodb();
    assert_eq!(world.key_fingerprints().await, Ok(marks([])));
    assert_eq!(world.put_key_fingerprints(marks([]), marks(["a"])).await, Ok(true));
    assert_eq!(world.key_fingerprints().await, Ok(marks(["a"])));
    // In another order than a set that was written before.
    for (before, after) in [
        (marks(["a"]), marks(["a", "b", "c"])),
        (marks(["c", "b", "a"]), marks(["d"])),
        (marks(["d"]), marks([])),
        (marks([]), marks(["e"])),
    ] {
        assert_eq!(world.put_key_fingerprints(before, after.clone()).await, Ok(true));
        assert_eq!(world.key_fingerprints().await, Ok(after));
    }
    let counts = world.records_by_month(None).await.unwrap();
    assert!(counts.curmonth.is_empty() && counts.unreadable == 0, "{counts:?}");
    world.connect(agent(1), DECEMBER).await;
    let counts = world.records_by_month(None).await.unwrap();
    assert_eq!((counts.curmonth.values().sum::<u64>(), counts.unreadable), (1, 0));
    assert_eq!(world.key_fingerprints().await, Ok(marks(["e"])), "agents change none");
}

#[tokio::test]
async fn fingerprints_of_a_concurrent_node_are_kept() {
    let world = dynamodb();
    world.put_key_fingerprints(marks([]), marks(["a"])).await.unwrap();
    for before in [marks([]), marks(["b"]), marks(["a", "b"])] {
        assert_eq!(world.put_key_fingerprints(before, marks(["c"])).await, Ok(false));
    }
    assert_eq!(world.key_fingerprints().await, Ok(marks(["a"])));
    // Who wants what is there need not know who put it there.
    assert_eq!(world.put_key_fingerprints(marks([]), marks(["a"])).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_nodes_that_put_marks_at_once_one_is_first_and_all_find_theirs_in_the_end() {
    let world = dynamodb();
    let first = join_all(
        (0..8)
            .map(|node| world.put_key_fingerprints(marks([]), marks([node.to_string().as_str()]))),
    );
    let winners = first.await.into_iter().filter(|put| *put == Ok(true)).count();
    assert_eq!(winners, 1);
    join_all((0..8).map(|node| tokio::spawn(add(world.shared(), node.to_string())))).await;
    assert_eq!(world.key_fingerprints().await, Ok((0..8).map(|node| node.to_string()).collect()));
}

async fn add(store: Arc<dyn StoreAdmin>, mark: String) {
    let mut before = BTreeSet::new();
    // More than the other nodes can come between.
    for _attempt in 0..100 {
        before = store.key_fingerprints().await.unwrap();
        let mut after = before.clone();
        after.insert(mark.clone());
        if store.put_key_fingerprints(before.clone(), after).await.unwrap() {
            return;
        }
    }
    panic!("{mark} is always refused beside {before:?}");
}

#[tokio::test]
async fn the_embedded_store_has_no_fingerprints() {
    let world = embedded();
    assert!(matches!(world.key_fingerprints().await, Err(StoreError::Unsupported(_))));
    let put = world.put_key_fingerprints(marks([]), marks(["a"])).await;
    assert!(matches!(put, Err(StoreError::Unsupported(_))));
}
