//! That all nodes on one store have the same keys: found out at the start, by the marks that each
//! leaves there.
//!
//! A node whose crypto keys are others hands out endpoints that no other node can open, and application
//! servers would be told that the subscriptions are gone. A node whose cluster keys are others is believed by
//! none. Either goes unnoticed for long, so such a node does not start.

use std::collections::BTreeSet;

use storage::{StoreAdmin, StoreError};

use super::open_store;
use crate::keys::Keys;
use crate::keys::fingerprint::KeyList;

/// How often a node adds its marks while others add theirs.
const ATTEMPTS_MAX: u32 = 100;

/// Marks of one list that are kept. Beyond it, after many changes of keys, those of the node that starts stay.
const MARKS_MAX: usize = 64;

/// Why a node does not start beside the others.
#[derive(Debug, thiserror::Error)]
pub enum KeyFingerprintsError {
    /// It has other keys.
    #[error(
        "keys.toml: none of the {} is one that the nodes on these tables have had: copy keys.toml \
         from the data directory of another node",
        .0.name()
    )]
    Strange(KeyList),
    /// Others change the marks all the time.
    #[error("the marks of the nodes' keys change all the time, try again")]
    Contended,
    /// The marks cannot be read or written.
    #[error("the keys of the other nodes cannot be compared: {0}")]
    Store(#[from] StoreError),
}

/// Leaves the marks of this node's keys, if in each list one of its keys is one that the nodes before had. Where no
/// user agent is registered nothing depends on those before, and this node's take their place.
pub(crate) async fn agree(store: &dyn StoreAdmin, keys: &Keys) -> Result<(), KeyFingerprintsError> {
    agree_in(&InStore(store), keys).await
}

/// The same without leaving anything: whether a node with these keys would start.
pub(crate) async fn compare(
    store: &dyn StoreAdmin,
    keys: &Keys,
) -> Result<(), KeyFingerprintsError> {
    let place = InStore(store);
    let before = place.marks().await?;
    with_ours(&place, keys, &before).await.map(|_after| ())
}

async fn agree_in(place: &impl FingerprintStore, keys: &Keys) -> Result<(), KeyFingerprintsError> {
    for _attempt in 0..ATTEMPTS_MAX {
        let before = place.marks().await?;
        let after = with_ours(place, keys, &before).await?;
        if after == before || place.put(before, after).await? {
            return Ok(());
        }
    }
    Err(KeyFingerprintsError::Contended)
}

async fn with_ours(
    place: &impl FingerprintStore,
    keys: &Keys,
    before: &BTreeSet<String>,
) -> Result<BTreeSet<String>, KeyFingerprintsError> {
    let mut after = before.clone();
    for list in KeyList::ALL {
        let ours = list.fingerprints(keys);
        let theirs: BTreeSet<_> = before.iter().filter(|mark| list.has(mark)).cloned().collect();
        let are_strange = !ours.is_empty() && !theirs.is_empty() && ours.is_disjoint(&theirs);
        if are_strange && !place.is_empty_store().await? {
            return Err(KeyFingerprintsError::Strange(list));
        }
        if are_strange || ours.union(&theirs).count() > MARKS_MAX {
            after.retain(|mark| !list.has(mark));
        }
        after.extend(ours);
    }
    Ok(after)
}

/// Where the marks are.
trait FingerprintStore {
    async fn marks(&self) -> Result<BTreeSet<String>, StoreError>;

    /// Answers whether `before` was what was there.
    async fn put(
        &self,
        before: BTreeSet<String>,
        after: BTreeSet<String>,
    ) -> Result<bool, StoreError>;

    async fn is_empty_store(&self) -> Result<bool, StoreError>;
}

struct InStore<'a>(&'a dyn StoreAdmin);

impl FingerprintStore for InStore<'_> {
    async fn marks(&self) -> Result<BTreeSet<String>, StoreError> {
        self.0.key_fingerprints().await
    }

    async fn put(
        &self,
        before: BTreeSet<String>,
        after: BTreeSet<String>,
    ) -> Result<bool, StoreError> {
        self.0.put_key_fingerprints(before, after).await
    }

    async fn is_empty_store(&self) -> Result<bool, StoreError> {
        open_store::is_empty_store(self.0).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::keys::generate;

    /// A store with these marks. Before each of the first writes, another node writes.
    #[derive(Default)]
    struct Fake {
        marks: RefCell<BTreeSet<String>>,
        has_users: bool,
        others: RefCell<Vec<BTreeSet<String>>>,
        writes: Cell<u32>,
    }

    impl FingerprintStore for Fake {
        async fn marks(&self) -> Result<BTreeSet<String>, StoreError> {
            Ok(self.marks.borrow().clone())
        }

        async fn put(
            &self,
            before: BTreeSet<String>,
            after: BTreeSet<String>,
        ) -> Result<bool, StoreError> {
            self.writes.set(self.writes.get() + 1);
            if let Some(others) = self.others.borrow_mut().pop() {
                *self.marks.borrow_mut() = others;
            }
            let is_there = *self.marks.borrow() == before;
            if is_there {
                *self.marks.borrow_mut() = after;
            }
            Ok(is_there)
        }

        async fn is_empty_store(&self) -> Result<bool, StoreError> {
            Ok(!self.has_users)
        }
    }

    fn fresh<const N: usize>() -> [String; N] {
        std::array::from_fn(|_| generate().to_string())
    }

    fn keys(crypto: &[&String], cluster: &[&String]) -> Keys {
        let keys = Keys::from_texts(crypto).unwrap();
        if cluster.is_empty() { keys } else { keys.with_cluster_texts(cluster).unwrap() }
    }

    fn marks(of: &Keys) -> BTreeSet<String> {
        KeyList::ALL.iter().flat_map(|list| list.fingerprints(of)).collect()
    }

    async fn with_users(of: &[&Keys]) -> Fake {
        let fake = Fake { has_users: true, ..Fake::default() };
        for keys in of {
            agree_in(&fake, keys).await.unwrap();
        }
        fake
    }

    #[tokio::test]
    async fn the_first_node_leaves_its_marks_and_the_next_one_writes_nothing() {
        let [crypto, cluster] = fresh();
        let keys = keys(&[&crypto], &[&cluster]);
        let fake = with_users(&[&keys, &keys]).await;
        assert_eq!(*fake.marks.borrow(), marks(&keys));
        assert_eq!(fake.writes.get(), 1);
    }

    #[tokio::test]
    async fn a_node_with_a_key_of_the_others_in_each_list_adds_its_new_ones() {
        let [old, new, cluster, newer] = fresh();
        let before = keys(&[&old], &[&cluster]);
        let after = keys(&[&new, &old], &[&newer, &cluster]);
        let fake = with_users(&[&before, &after]).await;
        assert_eq!(*fake.marks.borrow(), marks(&after));
        // The old ones may go once every node has the new ones.
        agree_in(&fake, &keys(&[&new], &[&newer])).await.unwrap();
    }

    #[tokio::test]
    async fn a_node_with_other_keys_in_either_list_is_refused_and_leaves_nothing() {
        let [crypto, cluster, other] = fresh();
        let fake = with_users(&[&keys(&[&crypto], &[&cluster])]).await;
        for (wrong, list) in [
            (keys(&[&other], &[&cluster]), "crypto_keys"),
            (keys(&[&crypto], &[&other]), "cluster_keys"),
            (keys(&[&cluster], &[&crypto]), "crypto_keys"),
        ] {
            let before = fake.marks.borrow().clone();
            let told = agree_in(&fake, &wrong).await.unwrap_err().to_string();
            assert!(told.contains(list) && told.contains("copy keys.toml"), "{told}");
            assert_eq!(*fake.marks.borrow(), before);
        }
    }

    #[tokio::test]
    async fn where_nobody_is_registered_other_keys_take_the_place_of_those_before() {
        let [crypto, cluster, other] = fresh();
        let fake = Fake::default();
        agree_in(&fake, &keys(&[&crypto], &[&cluster])).await.unwrap();
        let after = keys(&[&other], &[&cluster]);
        agree_in(&fake, &after).await.unwrap();
        assert_eq!(*fake.marks.borrow(), marks(&after));
    }

    #[tokio::test]
    async fn a_node_without_cluster_keys_has_nothing_to_agree_on_there() {
        let [crypto, cluster, other] = fresh();
        let several = keys(&[&crypto], &[&cluster]);
        let fake = with_users(&[&keys(&[&crypto], &[]), &several, &keys(&[&crypto], &[])]).await;
        assert_eq!(*fake.marks.borrow(), marks(&several));
        assert!(agree_in(&fake, &keys(&[&other], &[])).await.is_err());
    }

    #[tokio::test]
    async fn a_node_that_is_overtaken_looks_again() {
        let [ours, theirs, shared] = fresh();
        let other = keys(&[&theirs, &shared], &[]);
        let fake = with_users(&[]).await;
        fake.others.borrow_mut().push(marks(&other));
        let both = keys(&[&ours, &shared], &[]);
        agree_in(&fake, &both).await.unwrap();
        assert_eq!(*fake.marks.borrow(), &marks(&other) | &marks(&both));
        fake.marks.borrow_mut().clear();
        fake.others.borrow_mut().push(marks(&other));
        let overtaken = agree_in(&fake, &keys(&[&ours], &[])).await;
        assert!(matches!(overtaken, Err(KeyFingerprintsError::Strange(KeyList::Crypto))));
    }

    #[tokio::test]
    async fn marks_that_always_change_are_not_waited_for_for_ever() {
        let [crypto] = fresh();
        let fake = Fake::default();
        let change = |number: u32| BTreeSet::from([format!("other:{number}")]);
        fake.others.borrow_mut().extend((0..2 * ATTEMPTS_MAX).map(change));
        let told = agree_in(&fake, &keys(&[&crypto], &[])).await;
        assert!(matches!(told, Err(KeyFingerprintsError::Contended)));
        assert_eq!(fake.writes.get(), ATTEMPTS_MAX);
    }

    #[tokio::test]
    async fn of_more_marks_than_are_kept_those_of_the_node_that_starts_stay() {
        let [mut last, cluster] = fresh();
        let fake = with_users(&[&keys(&[&last], &[&cluster])]).await;
        for _roll in 0..2 * MARKS_MAX {
            let [next] = fresh();
            let rolled = keys(&[&next, &last], &[&cluster]);
            agree_in(&fake, &rolled).await.unwrap();
            let there = fake.marks.borrow().clone();
            assert!(there.is_superset(&marks(&rolled)) && there.len() <= MARKS_MAX + 1);
            last = next;
        }
    }
}
