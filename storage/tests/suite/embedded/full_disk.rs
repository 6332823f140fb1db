//! A disk that fills. The store is in a child process, which mounts a small file system of its own.

use std::fs;
use std::path::{Path, PathBuf};

use state_machine::Uaid;
use storage::data_dir::DirError;
use storage::{RegisterResult, Store, StoreAdmin, StoreError, Stored};
use storage_sqlite::{Embedded, EmbeddedOptions, OpenError};

use crate::embedded::{
    CHID, NOW, agent, furnish, message, month, on_small_disk, registration, until, waiting,
};
use crate::store_calls::StoreCalls;

const MIB: u64 = 1 << 20;

/// A store on a disk of 64 MiB that keeps `free_mib` free.
fn open(dir: &Path, free_mib: u64) -> Embedded {
    let free_bytes_min = free_mib * MIB;
    let options = EmbeddedOptions { free_bytes_min, ..EmbeddedOptions::new(4096) };
    Embedded::open(&dir.join("data"), &options).unwrap()
}

async fn furnished(dir: &Path, free_mib: u64) -> Embedded {
    let store = open(dir, free_mib);
    furnish(&store).await;
    store
}

/// Fills the disk with a file until only so much is free. Returns the file.
fn fill(dir: &Path, store: &Embedded, free_bytes: u64) -> PathBuf {
    let file = dir.join("filler");
    let free = store.state().disk.unwrap().free_bytes;
    fs::write(&file, vec![1; usize::try_from(free - free_bytes).unwrap()]).unwrap();
    file
}

/// Fills the disk and the logs of both files, whose space SQLite reuses.
async fn fill_up(dir: &Path, store: &Embedded) -> PathBuf {
    let file = fill(dir, store, 0);
    let mut number = 100;
    let mut push = async || {
        number += 1;
        store.store_message(agent(1), month(), message(number)).await
    };
    until(&mut push, Result::is_err).await;
    until(async || store.check().await, Result::is_err).await;
    file
}

#[tokio::test]
async fn on_a_low_disk_messages_are_refused_and_all_else_is_done() {
    let Some(dir) = on_small_disk() else { return };
    let store = furnished(&dir, 16).await;
    let filler = fill(&dir, &store, 15 * MIB);
    // The writer looks at the disk from time to time.
    let push = async |number| store.store_message(agent(1), month(), message(number)).await;
    until(async || push(2).await, Result::is_err).await;
    let space = store.state().disk.unwrap();
    assert_eq!((space.is_low(), space.messages_refused), (true, 1));

    let registered = store.register_user(registration(agent(1), 2)).await;
    assert!(matches!(registered, Ok(RegisterResult::Registered(..))), "{registered:?}");
    assert!(store.admits_subscription(), "half of the reserve is free");
    store.add_channels(agent(2), month(), [CHID].into()).await.unwrap();
    store.remove_channel(agent(2), vec![month()], CHID).await.unwrap();
    let deleted = store.delete_messages(agent(1), vec![month()], vec![message(1).key()]).await;
    assert_eq!(deleted, Ok(1));
    store.check().await.unwrap();

    fs::remove_file(filler).unwrap();
    until(async || push(3).await, |stored| *stored == Ok(Stored::Done)).await;
    assert!(waiting(&store, agent(1), NOW).await.contains(&message(3)));
}

#[tokio::test]
async fn new_records_and_channels_are_refused_before_the_reserve_is_used_up() {
    let Some(dir) = on_small_disk() else { return };
    let store = furnished(&dir, 16).await;
    let filler = fill(&dir, &store, 7 * MIB);
    // The engine looks at the disk from time to time.
    until(async || store.admits_subscription(), |admits| !admits).await;
    assert!(!store.admits_subscription());
    assert_eq!(store.state().disk.unwrap().subscriptions_refused, 2);

    let registered = store.register_user(registration(agent(1), 2)).await;
    assert!(matches!(registered, Ok(RegisterResult::Registered(..))), "{registered:?}");
    let deleted = store.delete_messages(agent(1), vec![month()], vec![message(1).key()]).await;
    assert_eq!(deleted, Ok(1));

    fs::remove_file(filler).unwrap();
    assert!(store.admits_subscription());
}

#[tokio::test]
async fn on_a_full_disk_a_known_agent_is_registered_and_its_record_is_written_later() {
    let Some(dir) = on_small_disk() else { return };
    let store = furnished(&dir, 0).await;
    let first = store.record(agent(1)).await.unwrap().unwrap();
    let filler = fill_up(&dir, &store).await;

    let registered = store.register_user(registration(agent(1), 5)).await.unwrap();
    let RegisterResult::Registered(record, before) = registered else { panic!("{registered:?}") };
    assert_eq!(before, first.binding());
    assert_eq!(store.record(agent(1)).await.unwrap(), Some(record.clone()));
    assert_eq!(waiting(&store, agent(1), NOW).await[0], message(1));
    let older = store.register_user(registration(agent(1), 4)).await;
    assert_eq!(older, Ok(RegisterResult::Superseded(record.connected_at)));
    let unknown = storage::Registration { create_in: None, ..registration(agent(9), 5) };
    assert_eq!(store.register_user(unknown).await, Ok(RegisterResult::UnknownAgent));
    let new = store.register_user(registration(agent(9), 5)).await;
    assert_eq!(
        new,
        Err(StoreError::NoSpace),
        "a new record has channels, which a crash would lose"
    );

    fs::remove_file(filler).unwrap();
    // A write of another agent is followed by those that wait.
    store.add_channels(agent(2), month(), [CHID].into()).await.unwrap();
    until_on_disk(&dir, &store, agent(1), 5).await;
    store.close().await.unwrap();
    assert_eq!(open(&dir, 0).record(agent(1)).await.unwrap(), Some(record));
}

#[tokio::test]
async fn a_record_that_waits_for_space_is_written_before_its_next_change_and_at_close() {
    let Some(dir) = on_small_disk() else { return };
    let store = furnished(&dir, 0).await;
    store.register_user(registration(agent(2), 1)).await.unwrap();
    let filler = fill_up(&dir, &store).await;
    for known in [agent(1), agent(2)] {
        let registered = store.register_user(registration(known, 5)).await.unwrap();
        assert!(matches!(registered, RegisterResult::Registered(..)), "{registered:?}");
    }
    fs::remove_file(filler).unwrap();
    let own = registration(agent(1), 5);
    let cleared = store.clear_node(agent(1), own.node.clone(), own.connected_at).await;
    assert_eq!(cleared, Ok(true), "the condition is that of the registration");
    let record = store.record(agent(1)).await.unwrap().unwrap();
    assert_eq!((record.node, record.connected_at), (None, own.connected_at));
    store.close().await.unwrap();
    let store = open(&dir, 0);
    for known in [agent(1), agent(2)] {
        assert_eq!(store.record(known).await.unwrap().unwrap().connected_at, own.connected_at);
    }
}

#[tokio::test]
async fn a_full_disk_is_the_error_of_an_open_and_of_a_preflight() {
    let Some(dir) = on_small_disk() else { return };
    let store = furnished(&dir, 0).await;
    let filler = fill_up(&dir, &store).await;
    let checks = store.preflight([month()].into()).await.unwrap();
    let error = checks.last().unwrap().outcome.clone().unwrap_err();
    assert!(error.contains("move another file away") && error.contains("free bytes: 0"), "{error}");

    // The close of the logs frees some space.
    let _logs_are_left = store.close().await;
    let rest = dir.join("rest");
    fs::write(&rest, vec![1; 64 << 20]).unwrap_err();
    let options = EmbeddedOptions::new(4096);
    let error = Embedded::open(&dir.join("data"), &options).err().expect("the disk is full");
    assert!(matches!(error, OpenError::Dir(DirError::NoSpace { free_bytes: 0, .. })), "{error}");
    fs::remove_file(filler).unwrap();
    fs::remove_file(rest).unwrap();
    open(&dir, 0);
}

/// Writes until the record on disk has this `connected_at`.
async fn until_on_disk(dir: &Path, store: &Embedded, uaid: Uaid, connected_at: i64) {
    let file = rusqlite::Connection::open(dir.join("data/router.db")).unwrap();
    let read = || {
        let statement = "SELECT connected_at FROM router WHERE uaid = ?1";
        file.query_row(statement, [uaid.0], |row| row.get::<_, i64>(0)).unwrap()
    };
    let read_after_write = async || {
        store.check().await.unwrap();
        read()
    };
    until(read_after_write, |read| *read == connected_at).await;
}
