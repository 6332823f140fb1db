//! Opens the keys and the store of a node, and checks them before it listens.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use slog::{Logger, info, warn};
use state_machine::{Month, Time};
use storage::data_dir::{DirError, DirLock, check_dir, has_databases};
use storage::maintenance::PreflightCheck;
use storage::upgrade::UpgradeWatch;
use storage::{StoreAdmin, SyncSupport, durable};
use tokio::sync::oneshot;

use super::error::ServeError;
use super::maintenance::Upkeep;
use super::message_id_floor::IdFloor;
use super::upgrade_log;
use crate::settings::keys::KeyList;
use crate::settings::keys::{Keys, KeysError, add};
use crate::settings::store;
use crate::settings::store::message_tables;
use crate::settings::store::message_tables::MonthTables;
use crate::settings::store::{
    OpenStoreError, copy_marker, has_bridged_agents, is_empty_store, key_fingerprints,
};
use crate::settings::{Role, Settings, StoreKind};

/// The store of a node, with its keys and tables.
pub(super) struct OpenedStore {
    /// The lock of the data directory, if the store has none of its own.
    pub(super) lock: Option<DirLock>,
    pub(super) keys: Keys,
    pub(super) store: Arc<dyn StoreAdmin>,
    pub(super) upkeep: Upkeep,
    /// The month of all messages, if rotation is off.
    pub(super) frozen_month: Option<Month>,
}

/// Opens keys and store, creates the tables of the months around `now`, and tries every operation
/// that a node needs.
pub(super) async fn open(
    role: Role,
    settings: &Settings,
    now: Time,
    log: &Logger,
) -> Result<OpenedStore, ServeError> {
    let dir = &settings.data_dir;
    make_data_dir(dir)?;
    let support = SyncSupport::of(dir).map_err(OpenStoreError::from)?;
    if support != SyncSupport::Everything {
        warn!(log, "the file system of data_dir cannot sync, a power loss can lose subscriptions and messages";
            "data_dir" => %dir.display(), "cannot_sync" => support.lost());
    }
    let (lock, keys, store) = match settings.store {
        StoreKind::Embedded => {
            // New keys would not decrypt the endpoint URLs of an existing database.
            let keys = match has_databases(dir) {
                true => Keys::load(dir)?,
                false => Keys::load_or_generate(dir)?,
            };
            (None, keys, opened(settings, log).await?)
        }
        StoreKind::DynamoDb | StoreKind::PostgreSql => {
            let lock = DirLock::take(dir).map_err(OpenStoreError::from)?;
            let store = opened(settings, log).await?;
            (Some(lock), keys_beside_tables(role, dir, &*store).await?, store)
        }
    };
    let keys = with_auth_keys(role, settings, keys, &*store, log).await?;
    if settings.store.is_shared() {
        key_fingerprints::add_or_refuse(&*store, &keys).await?;
    }
    let frozen_month = message_tables::frozen_month(&*store, now, settings.rotation).await?;
    let mut tables = MonthTables::new(frozen_month, settings.makes_tables());
    tables.make(&*store, now).await?;
    // Without these tables there are no feeds. Created before the preflight: another node may have
    // created only one of them.
    if settings.create_tables {
        store.ensure_feeds().await.map_err(ServeError::FeedTables)?;
    }
    let months = message_tables::needed_months(now, frozen_month);
    for PreflightCheck { what, outcome } in store.preflight(months).await? {
        outcome.map_err(|problem| ServeError::Preflight { what, problem })?;
    }
    for risk in store.risks().await? {
        warn!(log, "an answered push can be lost"; "risk" => risk);
    }
    let id_floor = match role.has_endpoints() {
        true => Some(IdFloor::reserve(role, dir, Arc::clone(&store), now, log).await),
        false => None,
    };
    Ok(OpenedStore { lock, keys, store, upkeep: Upkeep { tables, id_floor }, frozen_month })
}

/// Opens the store on a thread of its own: the store may take long, and a signal must end the wait. Refuses an unfinished
/// copy.
async fn opened(settings: &Settings, log: &Logger) -> Result<Arc<dyn StoreAdmin>, ServeError> {
    let (hand_over, opened) = oneshot::channel();
    let (owned, log) = (settings.clone(), log.clone());
    // After a signal the receiver is gone.
    thread::spawn(move || {
        let open = |watch: UpgradeWatch<'_>| store::open(&owned, owned.create_tables, watch);
        _ = hand_over.send(upgrade_log::logged(&log, open));
    });
    let store = opened.await.expect("opening a store does not panic")?;
    copy_marker::check(settings, &*store).await?;
    Ok(store)
}

fn make_data_dir(dir: &Path) -> Result<(), ServeError> {
    // The directory is synced for names that a former process gave before it was killed.
    let made = durable::create_dir_all(dir, 0o700).and_then(|()| durable::sync_dir(dir));
    made.map_err(|source| match source.kind() {
        ErrorKind::Unsupported => {
            OpenStoreError::from(DirError::Unsynced { dir: dir.to_owned(), lost: "directories" })
                .into()
        }
        ErrorKind::ReadOnlyFilesystem => OpenStoreError::from(DirError::io(dir, source)).into(),
        _ => ServeError::DataDir { dir: dir.to_owned(), source },
    })?;
    // Before keys are generated in it, and together, so that an operator corrects all modes at once.
    match (check_dir(dir), Keys::check_access(dir)) {
        (Err(files), Err(keys)) => Err(ServeError::Access { files, keys }),
        (files, keys) => {
            files.map_err(OpenStoreError::from)?;
            Ok(keys?)
        }
    }
}

/// The keys beside a database that other nodes may use too. A single node generates them for a database without user
/// agents. A node of a cluster generates none: it could not verify the requests of other nodes.
async fn keys_beside_tables(
    role: Role,
    dir: &Path,
    store: &dyn StoreAdmin,
) -> Result<Keys, ServeError> {
    match (role, Keys::load(dir)) {
        (Role::All, Err(KeysError::Missing { .. })) if is_empty_store(store).await? => {
            Ok(Keys::load_or_generate(dir)?)
        }
        (Role::All, loaded) => Ok(loaded?),
        (_, Err(KeysError::Missing { .. })) => {
            Err(ServeError::NoSharedKeys { dir: dir.to_owned() })
        }
        (_, Ok(keys)) if keys.cluster_keys().is_empty() => {
            Err(ServeError::NoClusterKeys { dir: dir.to_owned() })
        }
        (_, loaded) => Ok(loaded?),
    }
}

/// Bridges need auth keys. A single node generates the first one, unless user agents have secrets of another; all nodes
/// of a cluster need the same.
async fn with_auth_keys(
    role: Role,
    settings: &Settings,
    keys: Keys,
    store: &dyn StoreAdmin,
    log: &Logger,
) -> Result<Keys, ServeError> {
    let is_needed = settings.bridges_file.is_some() && role.has_endpoints();
    if !is_needed || !keys.auth_keys().is_empty() {
        return Ok(keys);
    }
    let dir = &settings.data_dir;
    match role {
        Role::All if has_bridged_agents(store).await? => {
            Err(ServeError::LostAuthKeys { dir: dir.to_owned() })
        }
        Role::All => {
            add::add(dir, KeyList::Auth)?;
            info!(log, "added the first of the auth_keys to keys.toml, back that file up");
            Ok(Keys::load(dir)?)
        }
        Role::Connection | Role::Endpoint => Err(ServeError::NoAuthKeys { dir: dir.to_owned() }),
    }
}
