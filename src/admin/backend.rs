//! Which way to the store: its own process, or through the server that holds it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use actors::Clock;
use storage::embedded::{Embedded, OpenError};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::command::AdminError;
use super::job_context::{JobContext, Servers};
use super::request::Request;
use super::{client, owner};
use crate::server::unix_now;
use crate::settings::{Settings, StoreKind};
use crate::store::{self, OpenStoreError};

/// How long a data directory is waited for that somebody has who takes no commands: a server that
/// is starting or stopping, or another command.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// How often it is tried.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A way to the store.
pub enum Backend {
    /// Through the server that holds it.
    Server(UnixStream),
    /// It was free, and is ours now.
    Own(JobContext),
}

/// Finds the store that the settings name. Makes none, and no tables but for a request to do so.
pub async fn reach(request: &Request, settings: &Settings) -> Result<Backend, AdminError> {
    match settings.store {
        StoreKind::Embedded => reach_embedded(settings).await,
        StoreKind::DynamoDb => reach_dynamo(request, settings).await,
    }
}

/// What is copied is there already: under a prefix that is mistyped nothing is made for it.
async fn reach_dynamo(request: &Request, settings: &Settings) -> Result<Backend, AdminError> {
    let open =
        |create_tables| open(&Settings { create_tables, ..settings.clone() }, Servers::Unknown);
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

async fn reach_embedded(settings: &Settings) -> Result<Backend, AdminError> {
    if fs::metadata(&settings.data_dir).is_ok_and(|found| !found.is_dir()) {
        return Err(AdminError::NotADirectory { path: settings.data_dir.clone() });
    }
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        if let Some(stream) = connect(&settings.data_dir).await? {
            return Ok(Backend::Server(stream));
        }
        if !Embedded::exists(&settings.data_dir) {
            return Err(AdminError::NoStore { dir: settings.data_dir.clone() });
        }
        owner::check(&settings.data_dir)?;
        match open(settings, Servers::Stopped) {
            Err(AdminError::Open(OpenStoreError::Embedded(OpenError::InUse { dir }))) => {
                if Instant::now() >= deadline {
                    return Err(AdminError::InUse { dir });
                }
                sleep(LOOK_EVERY).await;
            }
            opened => return opened.map(Backend::Own),
        }
    }
}

/// A connection to the server, if there is one.
pub(crate) async fn connect(data_dir: &Path) -> Result<Option<UnixStream>, AdminError> {
    match client::connect(data_dir).await {
        Ok(stream) => Ok(Some(stream)),
        // None was ever there, or what a killed server left.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(unreachable(data_dir, error)),
    }
}

fn unreachable(data_dir: &Path, error: io::Error) -> AdminError {
    let dir = data_dir.to_owned();
    match error.kind() {
        ErrorKind::PermissionDenied => AdminError::Denied { dir },
        _ => AdminError::Unreachable { dir, error },
    }
}

fn open(settings: &Settings, servers: Servers) -> Result<JobContext, AdminError> {
    Ok(JobContext {
        store: store::open(settings)?,
        clock: Clock::starting_at(unix_now()),
        rotation: settings.rotation,
        makes_tables: true,
        servers,
        feeds: None,
        feed_bounds: settings.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_let_in_is_told_who_would_be() {
        let told = |kind: ErrorKind| unreachable(Path::new("/srv/data"), kind.into()).to_string();
        assert_eq!(
            told(ErrorKind::PermissionDenied),
            "not allowed to use /srv/data/admin.sock: run it as the owner of /srv/data"
        );
        let other = told(ErrorKind::OutOfMemory);
        assert!(
            other.starts_with("cannot talk to the server over /srv/data/admin.sock: "),
            "{other}"
        );
    }
}
