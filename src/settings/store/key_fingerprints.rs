//! Checks at startup that all nodes on one store have the same keys.
//!
//! Each node leaves fingerprints of its keys in the store. A node with other crypto keys issues
//! endpoint URLs that no other node can decrypt: application servers would be answered 404 and drop
//! the subscriptions. A node with other cluster keys is rejected by every other one. Either is
//! noticed late, so such a node does not start.

use std::collections::BTreeSet;

use storage::{StoreAdmin, StoreError};

use super::is_empty_store;
use super::items_version::{self, NewerRows};
use crate::settings::keys::KeyList;
use crate::settings::keys::Keys;

/// Attempts to add the fingerprints while other nodes add theirs.
const ATTEMPTS_MAX: u32 = 100;

/// Fingerprints kept of one list. Above it, after many key changes, only those of the starting
/// node are kept.
const FINGERPRINTS_MAX: usize = 64;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum KeyFingerprintsError {
    #[error(
        "keys.toml: none of the {} is one that the nodes on these tables have had: copy keys.toml \
         from the data directory of another node",
        .0.name()
    )]
    Foreign(KeyList),
    #[error(transparent)]
    Newer(#[from] NewerRows),
    #[error("other nodes keep changing the key fingerprints in the store, try again")]
    Contended,
    #[error("cannot compare the keys with those of other nodes: {0}")]
    Store(#[from] StoreError),
}

/// Adds the fingerprints of this node's keys, if in each list it shares a key with the nodes before.
/// In a store without user agents nothing depends on their keys, and this node's replace them.
pub(crate) async fn add_or_refuse<S: FingerprintStore + ?Sized>(
    store: &S,
    keys: &Keys,
) -> Result<(), KeyFingerprintsError> {
    update(store, async |before: &BTreeSet<String>| {
        let mut after = with_own(store, keys, before).await?;
        items_version::with_own(&mut after);
        Ok((after, ()))
    })
    .await
}

/// Changes the entries, again if other nodes change them meanwhile. Returns what `change` returns beside them.
pub(super) async fn update<S: FingerprintStore + ?Sized, T>(
    store: &S,
    change: impl AsyncFn(&BTreeSet<String>) -> Result<(BTreeSet<String>, T), KeyFingerprintsError>,
) -> Result<T, KeyFingerprintsError> {
    for _attempt in 0..ATTEMPTS_MAX {
        let before = store.fingerprints().await?;
        let (after, result) = change(&before).await?;
        if after == before || store.put(before, after).await? {
            return Ok(result);
        }
    }
    Err(KeyFingerprintsError::Contended)
}

/// Checks whether a node with these keys would start, and writes nothing.
pub(crate) async fn compare(
    store: &dyn StoreAdmin,
    keys: &Keys,
) -> Result<(), KeyFingerprintsError> {
    let before = store.fingerprints().await?;
    with_own(store, keys, &before).await.map(|_after| ())
}

async fn with_own<S: FingerprintStore + ?Sized>(
    store: &S,
    keys: &Keys,
    before: &BTreeSet<String>,
) -> Result<BTreeSet<String>, KeyFingerprintsError> {
    items_version::check(before)?;
    let mut after = before.clone();
    for list in KeyList::ALL {
        let ours = list.fingerprints(keys);
        let theirs: BTreeSet<_> =
            before.iter().filter(|fingerprint| list.has(fingerprint)).cloned().collect();
        let are_foreign = !ours.is_empty() && !theirs.is_empty() && ours.is_disjoint(&theirs);
        if are_foreign && !store.is_empty_store().await? {
            return Err(KeyFingerprintsError::Foreign(list));
        }
        if are_foreign || ours.union(&theirs).count() > FINGERPRINTS_MAX {
            after.retain(|fingerprint| !list.has(fingerprint));
        }
        after.extend(ours);
    }
    Ok(after)
}

/// The fingerprints in the store; tests have their own.
pub(crate) trait FingerprintStore {
    async fn fingerprints(&self) -> Result<BTreeSet<String>, StoreError>;

    /// Replaces `before`; false if the store has something else by now.
    async fn put(
        &self,
        before: BTreeSet<String>,
        after: BTreeSet<String>,
    ) -> Result<bool, StoreError>;

    async fn is_empty_store(&self) -> Result<bool, StoreError>;
}

impl FingerprintStore for dyn StoreAdmin + '_ {
    async fn fingerprints(&self) -> Result<BTreeSet<String>, StoreError> {
        self.key_fingerprints().await
    }

    async fn put(
        &self,
        before: BTreeSet<String>,
        after: BTreeSet<String>,
    ) -> Result<bool, StoreError> {
        self.put_key_fingerprints(before, after).await
    }

    async fn is_empty_store(&self) -> Result<bool, StoreError> {
        is_empty_store(self).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::settings::keys::generate;

    /// A store with fingerprints. Before each of the first writes, another node writes.
    #[derive(Default)]
    struct TestStore {
        fingerprints: RefCell<BTreeSet<String>>,
        has_users: bool,
        others: RefCell<Vec<BTreeSet<String>>>,
        writes: Cell<u32>,
    }

    impl FingerprintStore for TestStore {
        async fn fingerprints(&self) -> Result<BTreeSet<String>, StoreError> {
            Ok(self.fingerprints.borrow().clone())
        }

        async fn put(
            &self,
            before: BTreeSet<String>,
            after: BTreeSet<String>,
        ) -> Result<bool, StoreError> {
            self.writes.set(self.writes.get() + 1);
            if let Some(others) = self.others.borrow_mut().pop() {
                *self.fingerprints.borrow_mut() = others;
            }
            let is_there = *self.fingerprints.borrow() == before;
            if is_there {
                *self.fingerprints.borrow_mut() = after;
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

    /// Of the keys, beside the version of rows.
    fn fingerprints(of: &Keys) -> BTreeSet<String> {
        let mut entries = KeyList::ALL.iter().flat_map(|list| list.fingerprints(of)).collect();
        items_version::with_own(&mut entries);
        entries
    }

    async fn with_users(of: &[&Keys]) -> TestStore {
        let fake = TestStore { has_users: true, ..TestStore::default() };
        for keys in of {
            add_or_refuse(&fake, keys).await.unwrap();
        }
        fake
    }

    #[tokio::test]
    async fn the_first_node_adds_its_fingerprints_and_the_next_one_writes_nothing() {
        let [crypto, cluster] = fresh();
        let keys = keys(&[&crypto], &[&cluster]);
        let fake = with_users(&[&keys, &keys]).await;
        assert_eq!(*fake.fingerprints.borrow(), fingerprints(&keys));
        assert_eq!(fake.writes.get(), 1);
    }

    #[tokio::test]
    async fn a_node_that_shares_a_key_in_each_list_adds_its_new_keys() {
        let [old, new, cluster, newer] = fresh();
        let before = keys(&[&old], &[&cluster]);
        let after = keys(&[&new, &old], &[&newer, &cluster]);
        let fake = with_users(&[&before, &after]).await;
        assert_eq!(*fake.fingerprints.borrow(), fingerprints(&after));
        // The old keys can be removed when every node has the new ones.
        add_or_refuse(&fake, &keys(&[&new], &[&newer])).await.unwrap();
    }

    #[tokio::test]
    async fn a_node_with_other_keys_in_either_list_is_refused_and_writes_nothing() {
        let [crypto, cluster, other] = fresh();
        let fake = with_users(&[&keys(&[&crypto], &[&cluster])]).await;
        for (wrong, list) in [
            (keys(&[&other], &[&cluster]), "crypto_keys"),
            (keys(&[&crypto], &[&other]), "cluster_keys"),
            (keys(&[&cluster], &[&crypto]), "crypto_keys"),
        ] {
            let before = fake.fingerprints.borrow().clone();
            let refused = add_or_refuse(&fake, &wrong).await.unwrap_err().to_string();
            assert!(refused.contains(list) && refused.contains("copy keys.toml"), "{refused}");
            assert_eq!(*fake.fingerprints.borrow(), before);
        }
    }

    #[tokio::test]
    async fn in_a_store_without_users_other_keys_replace_those_before() {
        let [crypto, cluster, other] = fresh();
        let fake = TestStore::default();
        add_or_refuse(&fake, &keys(&[&crypto], &[&cluster])).await.unwrap();
        let after = keys(&[&other], &[&cluster]);
        add_or_refuse(&fake, &after).await.unwrap();
        assert_eq!(*fake.fingerprints.borrow(), fingerprints(&after));
    }

    #[tokio::test]
    async fn a_node_without_cluster_keys_is_compared_by_its_crypto_keys() {
        let [crypto, cluster, other] = fresh();
        let several = keys(&[&crypto], &[&cluster]);
        let fake = with_users(&[&keys(&[&crypto], &[]), &several, &keys(&[&crypto], &[])]).await;
        assert_eq!(*fake.fingerprints.borrow(), fingerprints(&several));
        assert!(add_or_refuse(&fake, &keys(&[&other], &[])).await.is_err());
    }

    #[tokio::test]
    async fn a_node_whose_write_is_overtaken_compares_again() {
        let [ours, theirs, shared] = fresh();
        let other = keys(&[&theirs, &shared], &[]);
        let fake = with_users(&[]).await;
        fake.others.borrow_mut().push(fingerprints(&other));
        let both = keys(&[&ours, &shared], &[]);
        add_or_refuse(&fake, &both).await.unwrap();
        assert_eq!(*fake.fingerprints.borrow(), &fingerprints(&other) | &fingerprints(&both));
        fake.fingerprints.borrow_mut().clear();
        fake.others.borrow_mut().push(fingerprints(&other));
        let overtaken = add_or_refuse(&fake, &keys(&[&ours], &[])).await;
        assert!(matches!(overtaken, Err(KeyFingerprintsError::Foreign(KeyList::Crypto))));
    }

    #[tokio::test]
    async fn a_node_gives_up_if_the_fingerprints_keep_changing() {
        let [crypto] = fresh();
        let fake = TestStore::default();
        let change = |number: u32| BTreeSet::from([format!("other:{number}")]);
        fake.others.borrow_mut().extend((0..2 * ATTEMPTS_MAX).map(change));
        let refused = add_or_refuse(&fake, &keys(&[&crypto], &[])).await;
        assert!(matches!(refused, Err(KeyFingerprintsError::Contended)));
        assert_eq!(fake.writes.get(), ATTEMPTS_MAX);
    }

    #[tokio::test]
    async fn above_the_limit_only_the_fingerprints_of_the_starting_node_are_kept() {
        let [mut last, cluster] = fresh();
        let fake = with_users(&[&keys(&[&last], &[&cluster])]).await;
        for _roll in 0..2 * FINGERPRINTS_MAX {
            let [next] = fresh();
            let rolled = keys(&[&next, &last], &[&cluster]);
            add_or_refuse(&fake, &rolled).await.unwrap();
            let there = fake.fingerprints.borrow().clone();
            let of_lists = there.iter().filter(|it| KeyList::ALL.iter().any(|list| list.has(it)));
            assert!(of_lists.count() <= FINGERPRINTS_MAX + 1);
            assert!(there.is_superset(&fingerprints(&rolled)));
            last = next;
        }
    }
}
