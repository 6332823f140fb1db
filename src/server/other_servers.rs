//! Compares this server with the one that started before on the same tables.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use slog::{Logger, warn};
use storage::StoreAdmin;
use tempfile::NamedTempFile;
use uuid::Uuid;

use super::ServeError;
use crate::settings::{Role, Settings, StoreKind};
use crate::store::announcements::{Difference, announce};

/// File in the data directory: a random name of the server, by which it recognises itself.
const ID_FILE: &str = "server-id";

/// The name of what is announced beside settings: the only server, or a cluster.
const SERVER: &str = "server";

/// Logs in what this server differs. Other servers may have stopped, so none of it ends the start.
pub(super) async fn compare(
    role: Role,
    settings: &Settings,
    origin: &str,
    store: &dyn StoreAdmin,
    log: &Logger,
) -> Result<(), ServeError> {
    if settings.store == StoreKind::Embedded {
        // A lock of the data directory keeps others out.
        return Ok(());
    }
    let server = match role {
        Role::All => format!(
            "single {}",
            own_id(&settings.data_dir).map_err(|source| {
                ServeError::DataDir { dir: settings.data_dir.clone(), source }
            })?
        ),
        Role::Connection | Role::Endpoint => "cluster".to_owned(),
    };
    let simplepush = settings.simplepush.to_string();
    let own = [("public_url", origin.to_owned()), ("simplepush", simplepush), (SERVER, server)];
    for Difference { name, ours, theirs } in announce(store, &own).await? {
        if name == SERVER {
            warn!(log, "another server has used these tables: only the nodes of one cluster may share them";
                "server" => ours, "other" => theirs);
        } else {
            warn!(log, "a setting differs from that of the server that started before on these tables";
                "setting" => name, "value" => ours, "other" => theirs);
        }
    }
    Ok(())
}

fn own_id(dir: &Path) -> io::Result<String> {
    let path = dir.join(ID_FILE);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = Uuid::new_v4().simple().to_string();
            let mut file = NamedTempFile::new_in(dir)?;
            writeln!(file, "{id}")?;
            file.persist(path)?;
            Ok(id)
        }
        read => Ok(read?.trim().to_owned()),
    }
}
