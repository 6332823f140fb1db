//! The checks of `keys.toml` and `bridges_file` in `preflight`. A server does not start without the file if users depend on it, nor with
//! other keys than the nodes that share its tables.

use actors::Clock;
use slog::{Discard, Logger, o};
use storage::maintenance::PreflightCheck;
use storage::{Embedded, StoreAdmin};

use crate::push::bridges::Bridges;
use crate::settings::keys::{Keys, KeysError};
use crate::settings::store::{is_empty_store, key_fingerprints};
use crate::settings::{Settings, StoreKind};
use crate::system::clock;

/// Checks `bridges_file`, if there is one. Must be called in a runtime.
pub fn check_bridges(settings: &Settings) -> Option<PreflightCheck> {
    settings.bridges_file.as_ref()?;
    let bridges = Bridges::load(
        settings,
        Clock::starting_at(clock::unix_now()),
        &Logger::root(Discard, o!()),
    );
    let (what, outcome) = match bridges {
        Ok(bridges) => (format!("bridges_file ({})", bridges.names()), Ok(())),
        Err(error) => ("bridges_file".to_owned(), Err(error.to_string())),
    };
    Some(PreflightCheck { what, outcome })
}

/// The name of the check of the file.
const KEYS: &str = "keys.toml";

/// Its name in a new installation.
const NONE_YET: &str = "keys.toml (none yet, the server makes them)";

/// The name of the check against other nodes.
const SHARED: &str = "keys.toml, as the other nodes have it";

/// Checks the keys. With DynamoDB, only the tables show whether keys should exist and which: without `tables` that is
/// not checked.
pub async fn check(settings: &Settings, tables: Option<&dyn StoreAdmin>) -> Vec<PreflightCheck> {
    let check = |what: &str, outcome| PreflightCheck { what: what.to_owned(), outcome };
    let is_shared = settings.store == StoreKind::DynamoDb;
    let error = match (Keys::load(&settings.data_dir), tables) {
        (Ok(keys), Some(tables)) if is_shared => {
            let compared = key_fingerprints::compare(tables, &keys).await;
            let compared = compared.map_err(|error| error.to_string());
            return vec![check(KEYS, Ok(())), check(SHARED, compared)];
        }
        (Ok(_), _) => return vec![check(KEYS, Ok(()))],
        (Err(error), _) => error,
    };
    let outcome = match (&error, tables) {
        (KeysError::Missing { .. }, None) if is_shared => return Vec::new(),
        (KeysError::Missing { .. }, Some(tables)) if is_shared => {
            match is_empty_store(tables).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!(
                    "no keys.toml in {}, but users are registered: is data_dir right? else restore it from \
                     a backup",
                    settings.data_dir.display()
                )),
                Err(error) => Err(format!(
                    "it does not exist, and whether users are registered cannot be read: {error}"
                )),
            }
        }
        (KeysError::Missing { .. }, _) if !Embedded::exists(&settings.data_dir) => Ok(()),
        _ => Err(error.to_string()),
    };
    let what = if outcome.is_ok() { NONE_YET } else { KEYS };
    vec![check(what, outcome)]
}
