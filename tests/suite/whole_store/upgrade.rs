//! Files of each older version are brought up to date with all their rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rusqlite::Connection;
use storage::Store as _;
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;

use super::dump::{Dump, files};
use super::stopped_with_samples;
use crate::harness::Launch;

/// What undoes a migration, and the table whose rows get these values at their end when it is done again.
pub(crate) type Back = (&'static str, &'static str, &'static str);

/// From the newest version to the first one. A migration without a row here fails the test.
pub(crate) const ROUTER: [Back; 7] = [
    ("DROP TABLE id_floor", "", ""),
    (
        "ALTER TABLE sequences DROP COLUMN horizon; ALTER TABLE sequences DROP COLUMN forgotten;
         ALTER TABLE sequences DROP COLUMN mark; ALTER TABLE sequences DROP COLUMN marked_at",
        "sequences",
        ", Integer(0), Integer(0), Null, Null",
    ),
    ("DROP TABLE receipts_expected", "", ""),
    ("ALTER TABLE notifications DROP COLUMN data", "notifications", ", Null"),
    ("ALTER TABLE router DROP COLUMN router_data", "router", ", Null"),
    ("DROP TABLE sequences; DROP TABLE feed_keys", "", ""),
    ("DROP INDEX router_by_last_connect; DROP TABLE notifications", "", ""),
];

pub(super) const MESSAGES: [Back; 3] = [
    ("ALTER TABLE messages DROP COLUMN receipt", "messages", ", Null"),
    (
        "DROP TRIGGER waiting_inserted; DROP TRIGGER waiting_replaced; DROP TRIGGER waiting_deleted;
         DROP TABLE waiting; DROP INDEX messages_by_expiry",
        "",
        "",
    ),
    ("ALTER TABLE messages DROP COLUMN offers", "messages", ", Integer(0)"),
];

/// What an open store writes for itself.
const OF_THE_STORE: [&str; 2] = ["health", "id_floor"];

#[actix_web::test]
async fn files_of_each_older_version_are_brought_up_to_date_with_each_row() {
    let (_server, dir, _rows) = stopped_with_samples(Launch::default()).await;
    let newest = files(&dir);
    for (is_it, steps) in [("router", &ROUTER[..]), ("messages_", &MESSAGES)] {
        let mut ends = BTreeMap::<&str, String>::new();
        for (at, (_, table, end)) in steps.iter().enumerate() {
            // What was added first is before what was added later.
            let end_so_far = ends.entry(table).or_default();
            *end_so_far = format!("{end}{end_so_far}");
            let home = TempDir::new().expect("a temporary directory can be made");
            copy_files(&dir, home.path());
            for file in databases(home.path()).iter().filter(|file| file.contains(is_it)) {
                set_back(&home.path().join(file), &steps[..=at], steps.len());
            }
            let older = files(home.path());
            let store = Embedded::open(home.path(), &EmbeddedOptions::new(4096));
            let store = store.unwrap_or_else(|error| panic!("{is_it}, {at}: {error}"));
            store.check().await.expect("the store works");
            store.close().await.expect("the store closes");
            assert_upgraded(&older, &files(home.path()), &newest, &ends);
        }
    }
}

/// Undoes these migrations of a file, which has so many behind the first one.
pub(crate) fn set_back(file: &Path, undone: &[Back], all: usize) {
    let conn = Connection::open(file).expect("it is a database");
    let version: u32 =
        conn.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("it has a version");
    assert_eq!(version as usize, all + 1, "{}: a migration is not in the list", file.display());
    for (back, ..) in undone {
        conn.execute_batch(back).unwrap_or_else(|error| panic!("{back}: {error}"));
    }
    conn.execute_batch(&format!("PRAGMA user_version = {}", version - undone.len() as u32))
        .expect("it is written");
}

/// Each row of the older files is there, with the values of its new columns, and no other one. A table that the older files
/// did not have is empty, but what waits is counted as before.
fn assert_upgraded(older: &Dump, upgraded: &Dump, newest: &Dump, ends: &BTreeMap<&str, String>) {
    let names = |dump: &Dump| dump.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(upgraded), names(newest));
    for (table, rows) in upgraded {
        let expected = match older.get(table) {
            _ if OF_THE_STORE.contains(&table.as_str()) => continue,
            Some(older) => {
                let end = ends.get(table.as_str()).map_or("", String::as_str);
                let whole = |row: &String| {
                    let row = row.strip_suffix(']').expect("it is a list");
                    format!("{row}{end}]")
                };
                let mut expected: Vec<_> = older.iter().map(whole).collect();
                expected.sort();
                expected
            }
            None if table == "waiting" => newest[table].clone(),
            None => Vec::new(),
        };
        let wrong = rows.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "{table} with {ends:?}");
        assert_eq!(rows.len(), expected.len(), "{table}");
    }
}

pub(super) fn databases(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("it exists").map(|entry| entry.expect("it is listed"));
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".db")).collect()
}

pub(super) fn copy_files(from: &Path, to: &Path) {
    for file in databases(from) {
        fs::copy(from.join(&file), to.join(&file)).expect("a file can be copied");
    }
}
