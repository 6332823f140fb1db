//! Keys and store, ready for use.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use state_machine::{Month, Time};
use storage::embedded::DirLock;
use storage::maintenance::PreflightCheck;
use storage::{Embedded, StoreAdmin, StoreError};
use tokio::sync::oneshot;

use super::maintenance::{self, Tables};
use super::{ServeError, key_fingerprints};
use crate::keys::{Keys, KeysError};
use crate::settings::{Role, Settings, StoreKind};
use crate::store::{self, OpenStoreError};

/// What a server has before anybody can connect.
pub(super) struct Opened {
    /// Held as long as the node runs, where the store has no lock of its own.
    pub(super) lock: Option<DirLock>,
    pub(super) keys: Keys,
    pub(super) store: Arc<dyn StoreAdmin>,
    pub(super) tables: Tables,
    /// Where rotation is off: the month that stays in use.
    pub(super) frozen_month: Option<Month>,
}

/// Opens them, makes the tables of these months, and tries out everything a node does with them
/// (seed 001, `preflight_check`).
pub(super) async fn open(role: Role, settings: &Settings, now: Time) -> Result<Opened, ServeError> {
    make_data_dir(&settings.data_dir)?;
    let dir = &settings.data_dir;
    let (lock, keys, store) = match settings.store {
        StoreKind::Embedded => (None, keys_beside_files(dir)?, opened(settings).await?),
        StoreKind::DynamoDb => {
            let lock = DirLock::take(dir).map_err(OpenStoreError::from)?;
            let store = opened(settings).await?;
            (Some(lock), keys_beside_tables(role, dir, &*store).await?, store)
        }
    };
    let mut tables = Tables::new(settings.rotation);
    tables.make(&*store, now).await?;
    // Where they are missing and stay so, there are no feeds. Before the trial: another node may have made one of them.
    if settings.create_tables {
        store.ensure_feeds().await.map_err(ServeError::FeedTables)?;
    }
    preflight(&*store, now, settings.rotation).await?;
    let frozen_month = maintenance::frozen_month(&*store, settings.rotation).await?;
    Ok(Opened { lock, keys, store, tables, frozen_month })
}

/// Opening blocks for as long as the store may take. A signal is heeded meanwhile: so it is done by a thread that
/// nobody waits for at the end.
async fn opened(settings: &Settings) -> Result<Arc<dyn StoreAdmin>, ServeError> {
    let (hand_over, opened) = oneshot::channel();
    let settings = settings.clone();
    // Who no longer waits has no use for it.
    thread::spawn(move || _ = hand_over.send(store::open(&settings)));
    Ok(opened.await.expect("opening a store does not panic")?)
}

fn make_data_dir(dir: &Path) -> Result<(), ServeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| ServeError::DataDir { dir: dir.to_owned(), source })
}

/// Keys are made with a new data directory and never again: a database whose keys are lost has
/// subscriptions that new keys cannot serve.
fn keys_beside_files(dir: &Path) -> Result<Keys, KeysError> {
    if Embedded::exists(dir) { Keys::load(dir) } else { Keys::load_or_generate(dir) }
}

/// The same where the database is elsewhere, and other nodes may use it.
async fn keys_beside_tables(
    role: Role,
    dir: &Path,
    store: &dyn StoreAdmin,
) -> Result<Keys, ServeError> {
    let keys = match role {
        Role::Serve => keys_of_the_first(dir, store).await?,
        Role::Connect | Role::Endpoint => keys_of_several(dir)?,
    };
    key_fingerprints::agree(store, &keys).await?;
    Ok(keys)
}

/// A database is new while nobody is in its router table.
async fn keys_of_the_first(dir: &Path, store: &dyn StoreAdmin) -> Result<Keys, ServeError> {
    match Keys::load(dir) {
        Err(KeysError::Missing { .. }) if is_empty_store(store).await? => {
            Ok(Keys::load_or_generate(dir)?)
        }
        loaded => Ok(loaded?),
    }
}

/// Nodes that each made their own would be of no use to each other, so none of them makes any.
fn keys_of_several(dir: &Path) -> Result<Keys, ServeError> {
    match Keys::load(dir) {
        Err(KeysError::Missing { .. }) => Err(ServeError::NoSharedKeys { dir: dir.to_owned() }),
        Ok(keys) if keys.cluster_keys().is_empty() => {
            Err(ServeError::NoClusterKeys { dir: dir.to_owned() })
        }
        loaded => Ok(loaded?),
    }
}

/// Whether no user agent is registered.
pub(crate) async fn is_empty_store(store: &dyn StoreAdmin) -> Result<bool, StoreError> {
    let mut after = None;
    loop {
        let census = store.records_by_month(after).await?;
        if !census.curmonth.is_empty() || census.unreadable > 0 {
            return Ok(false);
        }
        after = census.next;
        if after.is_none() {
            return Ok(true);
        }
    }
}

async fn preflight(store: &dyn StoreAdmin, now: Time, rotation: bool) -> Result<(), ServeError> {
    let months = maintenance::needed_months(&store.months().await?, now, rotation);
    for PreflightCheck { what, outcome } in store.preflight(months).await? {
        outcome.map_err(|problem| ServeError::Preflight { what, problem })?;
    }
    Ok(())
}
