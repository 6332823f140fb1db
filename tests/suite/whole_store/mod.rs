//! A store with rows of each kind, the odd ones among them, and what must keep all of them: copies between the engines,
//! backups, restarts, commands.
//!
//! The rows are compared as the databases have them, by none of the queries that are under test.

mod copies;
mod dump;
mod imported;
mod kept;
mod releases;
mod samples;
pub(crate) mod upgrade;
mod upgrade_progress;
mod upgrade_refusals;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use state_machine::Time;
use storage::copied_rows::CopiedRow;
use storage::maintenance::Table;
use storage::{Store, StoreAdmin};
use storage_sqlite::{Embedded, EmbeddedOptions};

use crate::harness::{Launch, Server};

/// A stopped server whose files have all samples.
async fn stopped_with_samples(launch: Launch) -> (Server, PathBuf, Vec<(Table, CopiedRow)>) {
    let mut server = Server::launch(launch);
    assert!(server.terminate().success());
    let dir = server.data_dir();
    let rows = samples::all(now());
    write(&dir, &rows).await;
    (server, dir, rows)
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    Time(now.as_millis() as u64)
}

async fn write(dir: &Path, rows: &[(Table, CopiedRow)]) {
    let store = Embedded::open(dir, &EmbeddedOptions::new(4096)).expect("the server has closed it");
    for table in rows.iter().map(|(table, _)| *table).collect::<BTreeSet<_>>() {
        if let Table::Messages(month) = table {
            store.ensure_month(month).await.expect("the store works");
        }
        let rows = rows.iter().filter(|(of, _)| *of == table).map(|(_, row)| row.clone());
        store.write_rows(table, Arc::new(rows.collect())).await.expect("the store works");
    }
    store.close().await.expect("the store closes");
}
