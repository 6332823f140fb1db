//! Opens the store that the settings name, and prepares it for a server. Settings and keys enter; an open store leaves,
//! or why a server may not start on it. What is shared by all servers on a store is written here.
//!
//! - [`announcements`]: what servers tell those that start later.
//! - [`copy_marker`]: the mark of an unfinished copy.
//! - `sqlite`, `dynamodb`, `postgresql`: open an engine. Only these name one; a build may leave one out (a feature of its name).
//! - [`message_tables`]: creates the tables of the months.
//! - [`items_version`]: refuses the rows of a newer version.
//! - [`key_fingerprints`]: checks that all nodes on a store have the same keys.

pub(crate) mod announcements;
pub(crate) mod copy_marker;
#[cfg(feature = "dynamodb")]
mod dynamodb;
pub(crate) mod items_version;
pub mod key_fingerprints;
pub mod message_tables;
mod open_error;
#[cfg(feature = "postgresql")]
mod postgresql;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use state_machine::Month;
use storage::StoreError;
use storage::maintenance::{RecordsByMonth, StoreAdmin};
use storage::upgrade::UpgradeWatch;

pub use self::open_error::OpenStoreError;
#[cfg(feature = "sqlite")]
pub use self::sqlite::check_restored;
use super::{Settings, StoreKind};

/// Opens the store and blocks until it is usable. `creates` missing tables of a store that is shared, as a server does
/// with `create_tables`. The watch follows the upgrade of SQLite files.
pub fn open(
    settings: &Settings,
    creates: bool,
    watch: UpgradeWatch<'_>,
) -> Result<Arc<dyn StoreAdmin>, OpenStoreError> {
    // Each is of some engines, which a build may leave out.
    let (_creates, _watch) = (creates, watch);
    match settings.store {
        #[cfg(feature = "sqlite")]
        StoreKind::Embedded => sqlite::open(settings, watch),
        #[cfg(not(feature = "sqlite"))]
        StoreKind::Embedded => Err(OpenStoreError::NotBuilt("SQLite")),
        #[cfg(feature = "dynamodb")]
        StoreKind::DynamoDb => dynamodb::open(settings, creates),
        #[cfg(not(feature = "dynamodb"))]
        StoreKind::DynamoDb => Err(OpenStoreError::NotBuilt("DynamoDB")),
        #[cfg(feature = "postgresql")]
        StoreKind::PostgreSql => postgresql::open(settings, creates),
        #[cfg(not(feature = "postgresql"))]
        StoreKind::PostgreSql => Err(OpenStoreError::NotBuilt("PostgreSQL")),
    }
}

/// The database that the settings name, for an operator. It has no password.
pub fn place(settings: &Settings) -> String {
    match settings.store {
        StoreKind::Embedded => format!("SQLite in {}", settings.data_dir.display()),
        StoreKind::DynamoDb => match (&settings.dynamodb_endpoint_url, &settings.dynamodb_region) {
            (Some(url), _) => format!("DynamoDB at {}", url.as_str()),
            (None, Some(region)) => format!("DynamoDB in the region {}", region.as_str()),
            (None, None) => "DynamoDB".to_owned(),
        },
        #[cfg(feature = "postgresql")]
        StoreKind::PostgreSql => postgresql::place(settings),
        #[cfg(not(feature = "postgresql"))]
        StoreKind::PostgreSql => "PostgreSQL".to_owned(),
    }
}

/// The SQL that makes the tables, with those of these months. None if the engine has none.
pub fn statements(settings: &Settings, months: &[Month]) -> Option<String> {
    let schema = settings.postgresql_schema.as_str();
    match settings.store {
        #[cfg(feature = "postgresql")]
        StoreKind::PostgreSql => Some(storage_postgresql::statements(schema, months)),
        _ => {
            let _unused_without_the_engine = (schema, months);
            None
        }
    }
}

#[cfg(not(feature = "sqlite"))]
pub fn check_restored(
    _dir: &std::path::Path,
    _watch: UpgradeWatch<'_>,
) -> Result<(), OpenStoreError> {
    Err(OpenStoreError::NotBuilt("SQLite"))
}

/// Whether no user agent is registered.
pub async fn is_empty_store(store: &dyn StoreAdmin) -> Result<bool, StoreError> {
    let has_agents = |page: &RecordsByMonth| !page.curmonth.is_empty() || page.unreadable > 0;
    Ok(!any_page(store, has_agents).await?)
}

/// Whether a user agent behind a bridge is registered.
pub async fn has_bridged_agents(store: &dyn StoreAdmin) -> Result<bool, StoreError> {
    any_page(store, |page| page.bridged > 0).await
}

async fn any_page(
    store: &dyn StoreAdmin,
    is_found: impl Fn(&RecordsByMonth) -> bool,
) -> Result<bool, StoreError> {
    let mut after = None;
    loop {
        let page = store.records_by_month(after).await?;
        if is_found(&page) {
            return Ok(true);
        }
        after = page.next;
        if after.is_none() {
            return Ok(false);
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use std::sync::Arc;

    use state_machine::{BridgeName, BridgeRecipient, LastConnect, Month, Time, Uaid};
    use storage::copied_rows::CopiedRow;
    use storage::maintenance::Table;
    use storage::record_row::RecordRow;
    use storage_sqlite::{Embedded, EmbeddedOptions};
    use unkind_store::UnkindStore;

    use super::*;

    const NOW: Time = Time(1_793_700_000_000);

    /// The first page of the store is empty, and each one behind it has one row.
    #[tokio::test]
    async fn agents_are_found_behind_the_first_page() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), &EmbeddedOptions::new(64)).unwrap();
        let store = UnkindStore::with_short_pages(Arc::new(store));
        let looks = async || {
            [is_empty_store(&store).await, has_bridged_agents(&store).await].map(Result::unwrap)
        };
        assert_eq!(looks().await, [true, false]);
        for (byte, expected) in [(1, [false, false]), (2, [false, true])] {
            let (app, token) = ("app".into(), "token".into());
            let recipient = BridgeRecipient { bridge: BridgeName::Fcm, app, token, aps: None };
            let is_bridged = byte == 2;
            let row = RecordRow {
                uaid: Uaid([byte; 16]),
                router_type: if is_bridged { "fcm" } else { "webpush" }.to_owned(),
                recipient: is_bridged.then_some(recipient),
                node: None,
                connected_at: NOW,
                last_connect: LastConnect::of(NOW, Uaid([byte; 16]), 1),
                curmonth: Some(Month::of(NOW)),
                oldmonth: None,
            };
            store.write_rows(Table::Router, Arc::new(vec![CopiedRow::Record(row)])).await.unwrap();
            assert_eq!(looks().await, expected);
        }
    }
}
