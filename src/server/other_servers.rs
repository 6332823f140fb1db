//! Compares this server with the one that started before on the same tables.

use std::fs;
use std::io;
use std::path::Path;

use slog::{Logger, warn};
use storage::{StoreAdmin, durable};
use uuid::Uuid;

use super::error::ServeError;
use crate::settings::store::announcements::{Difference, announce};
use crate::settings::{Role, Settings, StoreKind};

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

/// The id in the file. A missing, empty or damaged file gets a new one: an id is never what another server may have too.
fn own_id(dir: &Path) -> io::Result<String> {
    let path = dir.join(ID_FILE);
    let kept = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => Uuid::try_parse_ascii(read?.trim_ascii()).ok().filter(|id| !id.is_nil()),
    };
    if let Some(id) = kept {
        return Ok(id.simple().to_string());
    }
    let id = Uuid::new_v4().simple().to_string();
    durable::replace(&path, format!("{id}\n"))?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_id_and_an_empty_or_damaged_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let made = own_id(dir.path()).unwrap();
        assert_eq!(own_id(dir.path()).unwrap(), made);
        for damaged in ["", "\n", "0", "00000000000000000000000000000000", &made[1..]] {
            fs::write(dir.path().join(ID_FILE), damaged).unwrap();
            let anew = own_id(dir.path()).unwrap();
            assert!(anew != made && anew.len() == 32, "{damaged:?}: {anew}");
            assert_eq!(own_id(dir.path()).unwrap(), anew, "{damaged:?}");
        }
    }
}
