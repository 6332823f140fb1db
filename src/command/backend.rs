//! Where a command runs: in its own process, or in the server that holds the store.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use storage::data_dir::{DirError, FileKey, has_databases};
use storage::owner::OtherOwner;
use storage::upgrade::UpgradeWatch;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::client;
use super::context::{Context, Servers};
use super::error::CommandError;
use super::upgrade;
use crate::settings::store::{self, OpenStoreError, copy_marker};
use crate::settings::{Settings, StoreKind};

/// How long a command waits for a store that is held by a process without `admin.sock`: a server that starts or
/// stops, or another command.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The interval between attempts to open the store.
const RETRY_EVERY: Duration = Duration::from_millis(50);

pub enum Backend {
    /// The server that holds the store.
    Server(UnixStream),
    /// The store itself, which no server holds.
    Own(Context),
}

/// Finds the store that the settings name. Creates no store and no tables.
pub async fn reach(settings: &Settings) -> Result<Backend, CommandError> {
    match settings.store {
        StoreKind::Embedded => reach_embedded(settings, false).await,
        // A mistyped name must not create tables.
        StoreKind::DynamoDb | StoreKind::PostgreSql => {
            Ok(Backend::Own(open_shared(settings, false)?))
        }
    }
}

/// Finds the store like [`reach`], but a server of this machine, which knows the connections, also for shared tables.
pub async fn reach_connections(settings: &Settings) -> Result<Backend, CommandError> {
    match connect(&settings.data_dir).await? {
        Some(stream) => Ok(Backend::Server(stream)),
        None => reach(settings).await,
    }
}

/// The tables that servers share, in the process of the command. `creates` missing ones.
pub fn open_shared(settings: &Settings, creates: bool) -> Result<Context, CommandError> {
    let store = store::open(settings, creates, UpgradeWatch::NONE)?;
    Ok(Context::own(store, settings, Servers::Unknown))
}

/// The SQLite store, or the server that holds it. `creates` a missing one.
pub async fn reach_embedded(settings: &Settings, creates: bool) -> Result<Backend, CommandError> {
    let backend = wait_for_embedded(settings, creates).await?;
    if let Backend::Own(context) = &backend {
        copy_marker::check(settings, &*context.store).await?;
    }
    Ok(backend)
}

/// The same, also if it is an unfinished copy.
pub async fn wait_for_embedded(
    settings: &Settings,
    creates: bool,
) -> Result<Backend, CommandError> {
    if fs::metadata(&settings.data_dir).is_ok_and(|found| !found.is_dir()) {
        return Err(CommandError::NotADirectory { path: settings.data_dir.clone() });
    }
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        if let Some(stream) = connect(&settings.data_dir).await? {
            return Ok(Backend::Server(stream));
        }
        if !creates && !has_databases(&settings.data_dir) {
            return Err(CommandError::NoStore { dir: settings.data_dir.clone() });
        }
        check_owner(&settings.data_dir)?;
        match upgrade::shown(|watch| store::open(settings, creates, watch)) {
            Err(OpenStoreError::Dir(DirError::InUse { dir })) => {
                if Instant::now() >= deadline {
                    return Err(CommandError::InUse { dir });
                }
                sleep(RETRY_EVERY).await;
            }
            opened => {
                return Ok(Backend::Own(Context::own(opened?, settings, Servers::Stopped)));
            }
        }
    }
}

/// Refuses a store of another user: its server could not open files that this process makes in it. If the owner cannot
/// be read, opening the store reports the reason.
pub fn check_owner(dir: &Path) -> Result<(), CommandError> {
    match fs::metadata(dir.join(FileKey::Router.to_string())).map(|file| OtherOwner::of(&file)) {
        Ok(Some(OtherOwner { owner, own })) => {
            Err(CommandError::NotOurs { dir: dir.to_owned(), owner, own })
        }
        Ok(None) | Err(_) => Ok(()),
    }
}

/// A connection to the server that holds the data directory, if there is one.
pub async fn connect(data_dir: &Path) -> Result<Option<UnixStream>, CommandError> {
    let connected = client::connect(data_dir).await;
    connected.map(Some).or_else(|error| refused(data_dir.to_owned(), error))
}

fn refused<T>(dir: PathBuf, error: io::Error) -> Result<Option<T>, CommandError> {
    match error.kind() {
        // There was never a server, or it was killed and left its socket.
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Ok(None),
        ErrorKind::PermissionDenied => Err(CommandError::Denied { dir }),
        _ => Err(CommandError::Unreachable { dir, error }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn the_store_of_another_user_is_refused_with_both() {
        let why =
            CommandError::NotOurs { dir: "/srv/data".into(), owner: 54_321, own: 0 }.to_string();
        assert_eq!(
            why,
            "the store in /srv/data belongs to uid 54321, and this runs as uid 0: run it as that user \
             (as root: `setpriv --reuid=54321 --clear-groups kalends ...`)"
        );
    }

    #[test]
    fn the_owner_of_the_routers_file_is_that_of_the_store() {
        let home = tempfile::tempdir().unwrap();
        check_owner(home.path()).unwrap();
        let file = home.path().join(FileKey::Router.to_string());
        fs::write(&file, "").unwrap();
        check_owner(home.path()).unwrap();
        // Only root can give a file away.
        let stranger = 65_534;
        let is_given_away = chown(&file, Some(stranger), None).is_ok();
        assert_eq!(check_owner(home.path()).is_err(), is_given_away);
    }

    #[test]
    fn a_refused_connection_names_the_user_who_may_connect() {
        let text = |kind: ErrorKind| {
            refused::<()>("/srv/data".into(), kind.into()).unwrap_err().to_string()
        };
        assert_eq!(
            text(ErrorKind::PermissionDenied),
            "not allowed to use /srv/data/admin.sock: run it as the owner of /srv/data"
        );
        let other = text(ErrorKind::OutOfMemory);
        assert!(
            other.starts_with("cannot connect to the server over /srv/data/admin.sock: "),
            "{other}"
        );
    }
}
