//! The checks of `keys.toml` in `preflight`. A server does not start without the file if users depend on it, nor with
//! other keys than the nodes that share its tables.

use storage::maintenance::PreflightCheck;
use storage::{Embedded, StoreAdmin};

use crate::keys::{Keys, KeysError};
use crate::settings::{Settings, StoreKind};
use crate::store::{is_empty_store, key_fingerprints};

/// The name of the check of the file.
const KEYS: &str = "keys.toml";

/// Its name in a new installation.
const NONE_YET: &str = "keys.toml (none yet, the server makes them)";

/// The name of the check against other nodes.
const SHARED: &str = "keys.toml, as the other nodes have it";

/// Checks the keys. With DynamoDB, only the tables show whether keys should exist and which: without `tables` that is
/// not checked.
pub async fn check(settings: &Settings, tables: Option<&dyn StoreAdmin>) -> Vec<PreflightCheck> {
    match (Keys::load(&settings.data_dir), settings.store, tables) {
        (Ok(keys), StoreKind::DynamoDb, Some(tables)) => {
            let compared = key_fingerprints::compare(tables, &keys).await;
            vec![
                passed(KEYS),
                PreflightCheck {
                    what: SHARED.to_owned(),
                    outcome: compared.map_err(|error| error.to_string()),
                },
            ]
        }
        (Ok(_), _, _) => vec![passed(KEYS)],
        (Err(error), _, _) => without_keys(error, settings, tables).await.into_iter().collect(),
    }
}

async fn without_keys(
    error: KeysError,
    settings: &Settings,
    tables: Option<&dyn StoreAdmin>,
) -> Option<PreflightCheck> {
    match error {
        KeysError::Missing { .. } if settings.store == StoreKind::DynamoDb => {
            Some(missing_beside(tables?, settings).await)
        }
        KeysError::Missing { .. } if !Embedded::exists(&settings.data_dir) => {
            Some(passed(NONE_YET))
        }
        error => Some(failed(KEYS, error.to_string())),
    }
}

async fn missing_beside(tables: &dyn StoreAdmin, settings: &Settings) -> PreflightCheck {
    let problem = match is_empty_store(tables).await {
        Ok(true) => return passed(NONE_YET),
        Ok(false) => format!(
            "no keys.toml in {}, but users are registered: is data_dir right? else restore it from \
             a backup",
            settings.data_dir.display()
        ),
        Err(error) => {
            format!("it does not exist, and whether users are registered cannot be read: {error}")
        }
    };
    failed(KEYS, problem)
}

fn passed(what: &str) -> PreflightCheck {
    PreflightCheck { what: what.to_owned(), outcome: Ok(()) }
}

fn failed(what: &str, problem: String) -> PreflightCheck {
    PreflightCheck { what: what.to_owned(), outcome: Err(problem) }
}
