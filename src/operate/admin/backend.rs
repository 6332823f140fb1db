//! Where a command runs: in its own process, or in the server that holds the store.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use actors::Clock;
use storage::embedded::{Embedded, OpenError};
use storage::owner::OtherOwner;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::client;
use super::command::AdminError;
use super::commands::Request;
use super::job_context::{JobContext, ProcessView, Servers};
use super::store_command::StoreCopy;
use crate::cluster::outbound::NodeAccess;
use crate::settings::keys::{KEYS_FILE, Keys};
use crate::settings::store;
use crate::settings::store::copy_marker::CopyMarkerError;
use crate::settings::store::{OpenStoreError, copy_marker, key_fingerprints};
use crate::settings::{Settings, StoreKind};
use crate::system::clock::unix_now;

/// How long a command waits for a store that is held by a process without `admin.sock`: a server that starts or
/// stops, or another command.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The interval between attempts to open the store.
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// The file whose owner is that of the store.
const ROUTER_FILE: &str = "router.db";

pub enum Backend {
    /// The server that holds the store.
    Server(UnixStream),
    /// The store itself, which no server holds.
    Own(JobContext),
}

/// Finds the store that the settings name. Creates no store and no tables, unless the request is
/// for them: an import begins with `keys.toml`, which shows that its directory is meant.
pub async fn reach(request: &Request, settings: &Settings) -> Result<Backend, AdminError> {
    if let Request::StoreCopy(copy) = request {
        return reach_both(copy, settings).await;
    }
    let is_import = matches!(request, Request::ImportRedis(_));
    if is_import && !settings.data_dir.join(KEYS_FILE).exists() {
        return Err(AdminError::NoKeys { dir: settings.data_dir.clone() });
    }
    match settings.store {
        StoreKind::Embedded => {
            let backend = reach_embedded(settings, is_import).await?;
            if let Backend::Own(context) = &backend {
                copy_marker::check(settings, &*context.store).await?;
            }
            Ok(backend)
        }
        StoreKind::DynamoDb => reach_dynamo(request, settings).await,
    }
}

/// Opens both stores of a copy, and creates the target or its router table. The source is opened first.
async fn reach_both(copy: &StoreCopy, settings: &Settings) -> Result<Backend, AdminError> {
    let dir = &settings.data_dir;
    if !dir.join(KEYS_FILE).exists() {
        return Err(AdminError::NoKeysOfStore { dir: dir.clone() });
    }
    if !copy.server_stopped {
        return Err(AdminError::ServersUnknown);
    }
    let creates = |kind| copy.to == kind && !copy.verify_only;
    let create_tables = settings.create_tables && creates(StoreKind::DynamoDb);
    let dynamo = Settings { store: StoreKind::DynamoDb, create_tables, ..settings.clone() };
    let (source, target) = match copy.to {
        StoreKind::DynamoDb => {
            let files = reach_files(copy, settings, false).await?;
            (files, open(&dynamo, Servers::Unknown)?)
        }
        StoreKind::Embedded => {
            let tables = open(&dynamo, Servers::Unknown)?;
            // A directory with foreign keys stays as it is.
            let keys = Keys::load(dir).map_err(|error| AdminError::Job(error.to_string()))?;
            let compared = key_fingerprints::compare(&*tables.store, &keys).await;
            compared.map_err(CopyMarkerError::from)?;
            (tables, reach_files(copy, settings, !copy.verify_only).await?)
        }
    };
    Ok(Backend::Own(JobContext { copy_source: Some(source.store), ..target }))
}

/// The SQLite store of a copy. One that is created is marked before it exists.
async fn reach_files(
    copy: &StoreCopy,
    settings: &Settings,
    creates: bool,
) -> Result<JobContext, AdminError> {
    let dir = &settings.data_dir;
    if creates && !Embedded::exists(dir) {
        copy_marker::mark_new(dir, &copy.name_of(StoreKind::DynamoDb))?;
    }
    let embedded = Settings { store: StoreKind::Embedded, ..settings.clone() };
    match reach_embedded(&embedded, creates).await? {
        Backend::Own(files) => Ok(files),
        Backend::Server(_) => Err(AdminError::ServerUses { dir: dir.clone() }),
    }
}

/// A copy needs tables that exist: a mistyped prefix must not create any.
async fn reach_dynamo(request: &Request, settings: &Settings) -> Result<Backend, AdminError> {
    let open =
        |create_tables| open(&Settings { create_tables, ..settings.clone() }, Servers::Unknown);
    // The server of this machine knows the connections.
    if matches!(request, Request::Inspect(_) | Request::Nodes(_))
        && let Some(stream) = connect(&settings.data_dir).await?
    {
        return Ok(Backend::Server(stream));
    }
    let context = match request {
        Request::Create(_) => open(true)?,
        Request::Copy(copy) if copy.server_stopped => {
            open(false)?.store.close().await?;
            open(true)?
        }
        _ => open(false)?,
    };
    Ok(Backend::Own(JobContext { makes_tables: settings.create_tables, ..context }))
}

async fn reach_embedded(settings: &Settings, creates: bool) -> Result<Backend, AdminError> {
    if fs::metadata(&settings.data_dir).is_ok_and(|found| !found.is_dir()) {
        return Err(AdminError::NotADirectory { path: settings.data_dir.clone() });
    }
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        if let Some(stream) = connect(&settings.data_dir).await? {
            return Ok(Backend::Server(stream));
        }
        if !creates && !Embedded::exists(&settings.data_dir) {
            return Err(AdminError::NoStore { dir: settings.data_dir.clone() });
        }
        check_owner(&settings.data_dir)?;
        match open(settings, Servers::Stopped) {
            Err(AdminError::Open(OpenStoreError::Embedded(OpenError::InUse { dir }))) => {
                if Instant::now() >= deadline {
                    return Err(AdminError::InUse { dir });
                }
                sleep(RETRY_EVERY).await;
            }
            opened => return opened.map(Backend::Own),
        }
    }
}

/// Refuses a store of another user: its server could not open files that this process makes in it. If the owner cannot
/// be read, opening the store reports the reason.
pub(crate) fn check_owner(dir: &Path) -> Result<(), AdminError> {
    match fs::metadata(dir.join(ROUTER_FILE)).map(|file| OtherOwner::of(&file)) {
        Ok(Some(OtherOwner { owner, own })) => {
            Err(AdminError::NotOurs { dir: dir.to_owned(), owner, own })
        }
        Ok(None) | Err(_) => Ok(()),
    }
}

/// A connection to the server that holds the data directory, if there is one.
pub(crate) async fn connect(data_dir: &Path) -> Result<Option<UnixStream>, AdminError> {
    let connected = client::connect(data_dir).await;
    connected.map(Some).or_else(|error| refused(data_dir.to_owned(), error))
}

fn refused<T>(dir: PathBuf, error: io::Error) -> Result<Option<T>, AdminError> {
    match error.kind() {
        // There was never a server, or it was killed and left its socket.
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Ok(None),
        ErrorKind::PermissionDenied => Err(AdminError::Denied { dir }),
        _ => Err(AdminError::Unreachable { dir, error }),
    }
}

fn open(settings: &Settings, servers: Servers) -> Result<JobContext, AdminError> {
    Ok(JobContext {
        store: store::open(settings)?,
        copy_source: None,
        clock: Clock::starting_at(unix_now()),
        rotation: settings.rotation,
        frozen_month: None,
        registry: None,
        makes_tables: true,
        servers,
        feeds: None,
        access: None,
        feed_keys_max: settings.feed_keys_max,
        feed_value_bytes_max: settings.feed_value_bytes_max,
        process: process(settings).into(),
    })
}

/// This process calls nodes only of a store that several of them may use.
fn process(settings: &Settings) -> ProcessView {
    let keys = || Keys::load(&settings.data_dir).ok();
    let peers = match settings.store {
        StoreKind::Embedded => None,
        StoreKind::DynamoDb => keys().and_then(|keys| NodeAccess::of(&keys, settings)),
    };
    let origin = settings.public_url.as_ref().map(|url| url.as_str().to_owned());
    ProcessView { origin, peers, ..ProcessView::default() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn the_store_of_another_user_is_refused_with_both() {
        let why = AdminError::NotOurs { dir: "/srv/data".into(), owner: 7, own: 0 }.to_string();
        assert_eq!(
            why,
            "the store in /srv/data belongs to uid 7, and this runs as uid 0: run it as that user \
             (sudo -u '#7' kalends ...)"
        );
    }

    #[test]
    fn the_owner_of_the_routers_file_is_that_of_the_store() {
        let home = tempfile::tempdir().unwrap();
        check_owner(home.path()).unwrap();
        let file = home.path().join(ROUTER_FILE);
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
