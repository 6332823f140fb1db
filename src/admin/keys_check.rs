//! What `preflight` says of `keys.toml`: it is beside the store in either engine, and a server does not
//! start without it where users depend on it, nor with other keys than the nodes it shares its tables with.

use storage::{Embedded, StoreAdmin};

use super::output::CheckRow;
use crate::keys::{Keys, KeysError};
use crate::server::key_fingerprints;
use crate::server::open_store::is_empty_store;
use crate::settings::{Settings, StoreKind};

/// What is looked at.
const KEYS: &str = "keys.toml";

/// The same in a new installation.
const NONE_YET: &str = "keys.toml (none yet, the server makes them)";

/// Where other nodes may have them too.
const SHARED: &str = "keys.toml, as the other nodes have it";

/// Looks at them. Whether there should be any, and which, only the tables know where these are elsewhere: without
/// them, nothing is said of that.
pub async fn check(settings: &Settings, tables: Option<&dyn StoreAdmin>) -> Vec<CheckRow> {
    match (Keys::load(&settings.data_dir), settings.store, tables) {
        (Ok(keys), StoreKind::DynamoDb, Some(tables)) => {
            let compared = key_fingerprints::compare(tables, &keys).await;
            vec![row(KEYS, None), row(SHARED, compared.err().map(|error| error.to_string()))]
        }
        (Ok(_), _, _) => vec![row(KEYS, None)],
        (Err(error), _, _) => without_keys(error, settings, tables).await.into_iter().collect(),
    }
}

async fn without_keys(
    error: KeysError,
    settings: &Settings,
    tables: Option<&dyn StoreAdmin>,
) -> Option<CheckRow> {
    match error {
        KeysError::Missing { .. } if settings.store == StoreKind::DynamoDb => {
            Some(missing_beside(tables?, settings).await)
        }
        KeysError::Missing { .. } if !Embedded::exists(&settings.data_dir) => {
            Some(row(NONE_YET, None))
        }
        error => Some(row(KEYS, Some(error.to_string()))),
    }
}

async fn missing_beside(tables: &dyn StoreAdmin, settings: &Settings) -> CheckRow {
    let problem = match is_empty_store(tables).await {
        Ok(true) => return row(NONE_YET, None),
        Ok(false) => format!(
            "no keys.toml in {}, but users are registered: is data_dir right? else restore it from \
             a backup",
            settings.data_dir.display()
        ),
        Err(error) => {
            format!("there are none, and whether users are registered is not seen: {error}")
        }
    };
    row(KEYS, Some(problem))
}

fn row(what: &str, problem: Option<String>) -> CheckRow {
    CheckRow { what: what.to_owned(), problem }
}
