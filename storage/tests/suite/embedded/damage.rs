//! Files that are damaged, missing, or of another program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use storage::{Store, StoreError};
use storage_sqlite::Embedded;
use tempfile::TempDir;

use crate::embedded::{agent, furnished, month, open, refusal};
use crate::store_calls::StoreCalls;

/// A data directory with a router table and one month, closed.
async fn data_dir() -> TempDir {
    let (home, store) = furnished().await;
    store.close().await.unwrap();
    home
}

/// The same, open once more.
async fn reopened() -> (TempDir, Embedded) {
    let home = data_dir().await;
    let store = open(home.path());
    (home, store)
}

fn router(home: &TempDir) -> PathBuf {
    home.path().join("router.db")
}

fn messages(home: &TempDir) -> PathBuf {
    home.path().join("messages_2026_11.db")
}

fn pragma(file: &Path, set: &str) {
    Connection::open(file).unwrap().execute_batch(&format!("PRAGMA {set}")).unwrap();
}

/// The store does not open, names the faulty file, and changes nothing.
fn assert_refused(home: &TempDir, file: &Path, reason: &str) {
    let before = fs::read(file).ok();
    let refusal = refusal(home.path());
    assert!(refusal.contains(file.to_str().unwrap()), "{refusal}");
    assert!(refusal.contains(reason), "{refusal}");
    assert_eq!(fs::read(file).ok(), before);
}

type Files = &'static [fn(&TempDir) -> PathBuf];

/// A case, the files that are damaged, how, and what the refusal says.
type Damage = (&'static str, Files, fn(&Path), &'static str);

const DAMAGES: [Damage; 8] = [
    (
        "no database",
        BOTH,
        |file| fs::write(file, "uaid,node\n".repeat(1000)).unwrap(),
        "not a database",
    ),
    ("empty", BOTH, |file| fs::write(file, "").unwrap(), ANOTHER),
    (
        "truncated",
        BOTH,
        |file| overwrite(file, |bytes| bytes.truncate(bytes.len() / 2)),
        "malformed",
    ),
    ("of another program", BOTH, replace_by_another, ANOTHER),
    ("of a newer schema", BOTH, |file| pragma(file, "user_version = 99"), "schema version 99"),
    ("a message table", &[router], replace_by_messages, ANOTHER),
    ("a directory", &[router], replace_by_directory, "unable to open"),
    ("damaged behind its header", &[router], damage, "malformed"),
];
const BOTH: Files = &[router, messages];
const ANOTHER: &str = "not the database that its name promises";

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_as_it_is() {
    for (name, files, damage, reason) in DAMAGES {
        for file in files {
            let home = data_dir().await;
            println!("{name}: {}", file(&home).display());
            damage(&file(&home));
            assert_refused(&home, &file(&home), reason);
        }
    }
}

fn replace_by_another(file: &Path) {
    fs::remove_file(file).unwrap();
    let other = Connection::open(file).unwrap();
    other.execute_batch("CREATE TABLE router (uaid TEXT)").unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
}

fn replace_by_messages(file: &Path) {
    fs::copy(file.with_file_name("messages_2026_11.db"), file).unwrap();
}

fn replace_by_directory(file: &Path) {
    fs::remove_file(file).unwrap();
    fs::create_dir(file).unwrap();
}

/// Overwrites every page but the first: the header still looks fine.
fn damage(file: &Path) {
    overwrite(file, |bytes| bytes[4096..].fill(0xa5));
}

fn overwrite(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn a_missing_router_table_beside_messages_is_refused() {
    let home = data_dir().await;
    fs::remove_file(router(&home)).unwrap();
    assert_refused(&home, &router(&home), "missing");
    assert!(!router(&home).exists());
}

#[tokio::test]
async fn a_missing_router_table_beside_its_own_log_is_refused() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("router.db-wal"), "frames").unwrap();
    assert_refused(&home, &router(&home), "missing");
}

#[tokio::test]
async fn a_data_directory_that_is_a_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("data");
    fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("cannot use"), "{}", refusal(&file));
}

#[tokio::test]
async fn a_missing_month_is_refused_and_its_log_is_kept() {
    let home = data_dir().await;
    let log = home.path().join("messages_2026_11.db-wal");
    fs::write(&log, "frames").unwrap();
    fs::remove_file(messages(&home)).unwrap();
    assert_refused(&home, &messages(&home), "missing");
    assert!(log.exists() && !messages(&home).exists());
}

#[tokio::test]
async fn a_dropped_month_is_not_missed() {
    let (home, store) = reopened().await;
    assert_eq!(store.drop_month(month()).await, Ok(true));
    store.close().await.unwrap();
    assert_eq!(open(home.path()).months().await, Ok(vec![]));
}

#[tokio::test]
async fn a_router_table_that_is_removed_while_running_shows_in_the_check() {
    let (home, store) = reopened().await;
    assert_eq!(store.check().await, Ok(()));
    fs::remove_file(router(&home)).unwrap();
    assert!(matches!(store.check().await, Err(StoreError::Failed(_))));
}

#[tokio::test]
async fn a_message_table_that_is_removed_or_locked_while_running_shows_in_the_check() {
    let (home, store) = reopened().await;
    let table = messages(&home);
    let other = Connection::open(&table).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(store.check().await, Err(StoreError::Failed(_))));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.check().await, Ok(()));
    fs::remove_file(table).unwrap();
    assert!(matches!(store.check().await, Err(StoreError::Failed(_))));
}

#[tokio::test]
async fn damage_found_while_running_is_an_error_and_not_an_empty_answer() {
    let (home, store) = reopened().await;
    damage(&router(&home));
    damage(&messages(&home));
    let all = storage::PageLimit { rows: 10, bytes: 10_000 };
    let answers = [
        store.record(agent(1)).await.map(drop),
        store.channels(agent(1), month()).await.map(drop),
        store.fetch_messages(agent(1), month(), None, all, crate::embedded::NOW).await.map(drop),
        store.register_user(crate::embedded::registration(agent(1), 2)).await.map(drop),
        store.store_message(agent(1), month(), crate::embedded::message(2)).await.map(drop),
    ];
    for answer in answers {
        let malformed =
            matches!(&answer, Err(StoreError::Failed(text)) if text.contains("malformed"));
        assert!(malformed, "{answer:?}");
    }
}

#[tokio::test]
async fn reads_that_fail_while_running_show_in_the_check() {
    let (home, store) = reopened().await;
    let healthy = fs::read(messages(&home)).unwrap();
    damage(&messages(&home));
    store.channels(agent(1), month()).await.unwrap_err();
    // The disk is well again, and the reason stays for a minute.
    fs::write(messages(&home), healthy).unwrap();
    let error = store.check().await.unwrap_err().to_string();
    assert!(error.starts_with("a read failed in the last minute: cannot read messages"), "{error}");
    assert_eq!(store.state().failed_reads, Some(1));
}

#[tokio::test]
async fn pages_that_only_a_write_needs_show_in_the_check() {
    let (home, store) = reopened().await;
    let healthy = fs::read(messages(&home)).unwrap();
    damage(&messages(&home));
    store.store_message(agent(1), month(), crate::embedded::message(2)).await.unwrap_err();
    fs::write(messages(&home), healthy).unwrap();
    let error = store.check().await.unwrap_err().to_string();
    assert!(error.contains("cannot write messages_2026_11.db"), "{error}");
}

#[tokio::test]
async fn files_with_other_names_are_left_alone() {
    let home = data_dir().await;
    for name in ["messages_2026_11.db.bak", "messages_2026_13.db", "keys.toml"] {
        fs::write(home.path().join(name), "not ours").unwrap();
    }
    let store: Embedded = open(home.path());
    assert_eq!(store.months().await, Ok(vec![month()]));
    assert_eq!(fs::read_to_string(home.path().join("messages_2026_13.db")).unwrap(), "not ours");
}
