//! Files with SQLite's rollback journal, which earlier versions could leave after an error of the disk.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use storage::Store;
use storage::upgrade::UpgradeWatch;
use storage_sqlite::check_restored;
use storage_sqlite::{Embedded, EmbeddedOptions};

use crate::embedded::{
    NOW, agent, furnish, furnished, message, month, open, refusal, registration, waiting,
};
use crate::store_calls::StoreCalls;

const FILES: [&str; 2] = ["router.db", "messages_2026_11.db"];

/// A closed store whose files have the rollback journal.
async fn home_with_rollback_journals() -> tempfile::TempDir {
    let (home, store) = furnished().await;
    store.close().await.unwrap();
    for name in FILES {
        set_mode(&home.path().join(name), "delete");
    }
    home
}

/// The files as a killed process leaves them.
async fn copy_of_an_open_store() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let (home, _store) = furnished().await;
    for entry in fs::read_dir(home.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn set_mode(file: &Path, mode: &str) {
    let conn = Connection::open(file).unwrap();
    let set = conn.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0));
    assert_eq!(set, Ok(mode.to_owned()));
}

/// As the header of the file has it, which no connection changes.
fn has_log(file: &Path) -> bool {
    fs::read(file).unwrap()[18..20] == [2, 2]
}

#[tokio::test]
async fn a_file_with_a_rollback_journal_gets_a_log_at_the_next_start() {
    let home = home_with_rollback_journals().await;
    assert_eq!(FILES.map(|name| has_log(&home.path().join(name))), [false, false]);
    let store = open(home.path());
    assert_eq!(waiting(&store, agent(1), NOW).await, [message(1)]);
    store.store_message(agent(1), month(), message(2)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(FILES.map(|name| has_log(&home.path().join(name))), [true, true]);
    assert_eq!(waiting(&open(home.path()), agent(1), NOW).await, [message(1), message(2)]);
}

#[tokio::test]
async fn a_restored_file_with_a_rollback_journal_gets_a_log() {
    let home = home_with_rollback_journals().await;
    check_restored(home.path(), UpgradeWatch::NONE).unwrap();
    assert_eq!(FILES.map(|name| has_log(&home.path().join(name))), [true, true]);
}

#[tokio::test]
async fn a_file_that_keeps_its_rollback_journal_is_refused() {
    for name in FILES {
        let home = home_with_rollback_journals().await;
        let other = Connection::open(home.path().join(name)).unwrap();
        other.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema").unwrap();
        let refusal = refusal(home.path());
        assert!(refusal.contains(home.path().join(name).to_str().unwrap()), "{refusal}");
        assert!(refusal.contains("cannot be given a write-ahead log"), "{refusal}");
        assert!(refusal.contains("close other programs that use the file"), "{refusal}");
        drop(other);
        open(home.path()).close().await.unwrap();
    }
}

#[tokio::test]
async fn a_file_whose_log_another_program_takes_away_is_written_no_more() {
    let home = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { months_open_max: 1, ..EmbeddedOptions::new(64) };
    let store = Embedded::open(home.path(), &options).unwrap();
    furnish(&store).await;
    let other = "2026_12".parse().unwrap();
    store.ensure_month(other).await.unwrap();
    store.add_channels(agent(1), other, [].into()).await.unwrap();
    // In a batch of its own: the writer closed the older month after the one before.
    store.register_user(registration(agent(2), 1)).await.unwrap();
    set_mode(&home.path().join(FILES[1]), "delete");
    let error = store.store_message(agent(1), month(), message(2)).await.unwrap_err().to_string();
    let expected =
        "cannot write messages_2026_11.db: the file has the journal mode delete and not wal";
    assert!(error.starts_with(expected), "{error}");
    let error = store.channels(agent(1), month()).await.unwrap_err().to_string();
    assert!(error.contains("journal mode delete"), "{error}");
}

/// The log of a killed process, in which the last commit may look written only.
#[tokio::test]
async fn a_log_that_a_killed_process_left_is_empty_before_the_first_write() {
    let copy = copy_of_an_open_store().await;
    let log = copy.path().join("messages_2026_11.db-wal");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    let database = fs::read(copy.path().join(FILES[1])).unwrap();
    let copied = open(copy.path());
    assert_ne!(fs::read(copy.path().join(FILES[1])).unwrap(), database, "it has the rows now");
    assert!(!log.exists() || fs::metadata(&log).unwrap().len() == 0);
    assert_eq!(waiting(&copied, agent(1), NOW).await, [message(1)]);
}

#[tokio::test]
async fn a_log_that_another_program_reads_refuses_the_start() {
    let copy = copy_of_an_open_store().await;
    let other = Connection::open(copy.path().join(FILES[1])).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM messages").unwrap();
    let refusal = refusal(copy.path());
    assert!(refusal.contains("another program reads"), "{refusal}");
    assert!(refusal.contains(FILES[1]), "{refusal}");
    drop(other);
    assert_eq!(waiting(&open(copy.path()), agent(1), NOW).await, [message(1)]);
}
