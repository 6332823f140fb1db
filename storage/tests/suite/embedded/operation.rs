//! Living with the store: locks, modes, bounds, disk space.

use std::collections::BTreeSet;
use std::env::current_exe;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures_util::FutureExt;
use rusqlite::Connection;
use state_machine::{Message, Month, Span};
use storage::{PageLimit, Store, StoreError, Stored};
use storage_sqlite::{Embedded, EmbeddedOptions};

use crate::embedded::{
    CHID, CHILD_DIR, NOW, agent, furnish, furnished, message, month, open, opened, refusal,
    registration, this_test, until, waiting,
};
use crate::names::output_of;
use crate::store_calls::StoreCalls;

#[tokio::test]
async fn a_second_process_is_refused_with_the_name_of_the_directory() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        println!("refusal: {}", refusal(Path::new(&dir)));
        return;
    }
    let (home, store) = furnished().await;
    let mut child = this_test(current_exe().unwrap());
    let output = output_of(child.env(CHILD_DIR, home.path()));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let expected = format!("refusal: the data directory {} is in use", home.path().display());
    assert!(printed.contains(&expected), "{printed}");
    assert_eq!(waiting(&store, agent(1), NOW).await, [message(1)]);
}

#[tokio::test]
async fn the_directory_is_free_again_once_the_store_is_closed() {
    let (home, store) = opened();
    assert!(refusal(home.path()).contains("in use"));
    store.close().await.unwrap();
    open(home.path());
}

#[tokio::test]
async fn a_move_of_many_messages_moves_all_of_them_while_others_are_stored() {
    const MESSAGES: u32 = 450;
    let (_home, store) = furnished().await;
    let old: Month = "2026_10".parse().unwrap();
    store.ensure_month(old).await.unwrap();
    store.add_channels(agent(1), old, [CHID].into()).await.unwrap();
    let is_old = |number: &u32| number.is_multiple_of(2);
    for number in (2..=MESSAGES * 2).filter(is_old) {
        drop(store.store_message(agent(1), old, message(number)));
    }
    let moved = store.move_messages(agent(1), old, month());
    for number in (2..=MESSAGES * 2).filter(|number| !is_old(number)) {
        drop(store.store_message(agent(1), month(), message(number)));
    }
    moved.await.unwrap();
    let one = PageLimit { rows: 1, bytes: 1 };
    let left = store.fetch_messages(agent(1), old, None, one, NOW).await.unwrap();
    assert_eq!(left.messages, []);
    store.check().await.unwrap();
    let expected: Vec<Message> = (1..=MESSAGES * 2).map(message).collect();
    assert_eq!(waiting(&store, agent(1), NOW).await, expected);
}

/// The writer lets go of the lock when it has finished: waiting for the lock is waiting for that.
#[tokio::test]
async fn dropping_the_store_finishes_what_was_queued() {
    let (home, store) = furnished().await;
    for number in 2..=500 {
        drop(store.store_message(agent(1), month(), message(number)));
    }
    drop(store);
    let lock = File::open(home.path().join("lock")).unwrap();
    until(async || lock.try_lock().map_err(|error| error.to_string()), Result::is_ok).await;
    lock.unlock().unwrap();
    let store = open(home.path());
    assert_eq!(waiting(&store, agent(1), NOW).await.len(), 500);
}

#[tokio::test]
async fn other_users_cannot_read_the_files() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("made/by/the/store");
    let store = open(&dir);
    furnish(&store).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let files = names_in(&dir);
    assert_eq!(files.len(), 7, "two databases with log and index, and the lock: {files:?}");
    for file in files {
        assert_eq!(mode(&dir.join(&file)), 0o600, "{file}");
    }
}

/// Another connection holds the file's lock, so that the writer waits.
#[tokio::test]
async fn a_full_queue_is_answered_busy_at_once_and_nothing_of_it_is_done() {
    let options =
        EmbeddedOptions { write_queue_max: 4, write_batch_max: 1, ..EmbeddedOptions::new(4096) };
    let home = tempfile::tempdir().unwrap();
    let store = Embedded::open(home.path(), &options).unwrap();
    furnish(&store).await;
    let shell = Connection::open(home.path().join("messages_2026_11.db")).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (mut refused, mut queued) = (0, Vec::new());
    for number in 2..=50 {
        let mut answer = store.store_message(agent(1), month(), message(number));
        match (&mut answer).now_or_never() {
            Some(answer) => {
                assert_eq!(answer, Err(StoreError::Busy));
                refused += 1;
            }
            None => queued.push((number, answer)),
        }
    }
    assert!(queued.len() <= 6, "one in work, one taken, four waiting: {}", queued.len());
    assert_eq!(refused + queued.len(), 49);
    shell.execute_batch("ROLLBACK").unwrap();
    let mut expected = vec![message(1)];
    for (number, answer) in queued {
        assert_eq!(answer.await, Ok(Stored::Done));
        expected.push(message(number));
    }
    assert_eq!(waiting(&store, agent(1), NOW).await, expected);
}

#[tokio::test]
async fn reads_go_on_while_the_writer_waits() {
    let (home, store) = furnished().await;
    let shell = Connection::open(home.path().join("messages_2026_11.db")).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut stored = store.store_message(agent(1), month(), message(2));
    assert_eq!(waiting(&store, agent(1), NOW).await, [message(1)]);
    assert!((&mut stored).now_or_never().is_none());
    shell.execute_batch("ROLLBACK").unwrap();
    assert_eq!(stored.await, Ok(Stored::Done));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn dropping_a_month_gives_its_disk_space_back_at_once() {
    let (home, store) = furnished().await;
    for number in 2..=200 {
        drop(store.store_message(agent(1), month(), message(number)));
    }
    assert_eq!(waiting(&store, agent(1), NOW).await[0], message(1));
    assert!(open_files(home.path()).iter().any(|name| name.contains("messages")));
    assert_eq!(store.drop_month(month()).await, Ok(true));
    let is_of_month = |name: &String| name.contains("messages");
    let left = names_in(home.path());
    assert!(!left.iter().any(is_of_month), "{left:?}");
    let held = open_files(home.path());
    assert!(
        !held.iter().any(is_of_month),
        "an unlinked file that is open keeps its space: {held:?}"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn many_months_do_not_hold_many_files_open() {
    let home = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { months_open_max: 2, readers: 1, ..EmbeddedOptions::new(4096) };
    let store = Embedded::open(home.path(), &options).unwrap();
    let months: Vec<Month> =
        std::iter::successors(Some(month()), |month| Some(month.previous())).take(24).collect();
    for month in &months {
        store.ensure_month(*month).await.unwrap();
        store.add_channels(agent(1), *month, [CHID].into()).await.unwrap();
        store.store_message(agent(1), *month, message(1)).await.unwrap();
    }
    for month in &months {
        let channels = store.channels(agent(1), *month).await;
        assert_eq!(channels, Ok(Some([CHID].into())));
    }
    let deleted = store.delete_messages(agent(1), months.clone(), vec![message(1).key()]).await;
    assert_eq!(deleted, Ok(24));
    // Files beyond the limit are closed when their batch has ended, which the second batch shows.
    for _ in 0..2 {
        store.check().await.unwrap();
    }
    let names: BTreeSet<String> = open_files(home.path()).into_iter().collect();
    let databases = names.iter().filter(|name| name.ends_with(".db") && name.contains("mess"));
    assert!(databases.count() <= 4, "two of the writer, two of the reader: {names:?}");
}

#[tokio::test]
async fn expired_messages_are_deleted_when_their_agent_fetches() {
    let (home, store) = furnished().await;
    for number in 2..=20 {
        let ttl = Span::from_secs(if number % 2 == 0 { 5 } else { 60 });
        let message = Message { ttl, ..message(number) };
        store.store_message(agent(1), month(), message).await.unwrap();
    }
    let later = NOW + Span::from_secs(5);
    assert_eq!(waiting(&store, agent(1), later).await.len(), 10);
    store.close().await.unwrap();
    let file = Connection::open(home.path().join("messages_2026_11.db")).unwrap();
    let rows = file.query_row("SELECT count(*) FROM messages", [], |row| row.get(0));
    assert_eq!(rows, Ok(10));
}

/// An agent with many expired messages does not block the reading thread.
#[tokio::test]
async fn a_fetch_looks_at_a_bounded_number_of_rows() {
    let (_home, store) = furnished().await;
    let expired = |number| Message { ttl: Span::ZERO, ..message(number) };
    for number in 2..=1500 {
        drop(store.store_message(agent(1), month(), expired(number)));
    }
    store.store_message(agent(1), month(), message(1501)).await.unwrap();
    let limit = PageLimit { rows: 100, bytes: 100_000 };
    let first = store.fetch_messages(agent(1), month(), None, limit, NOW).await.unwrap();
    assert_eq!(first.messages, [message(1)]);
    assert!(first.next.is_some());
    let second = store.fetch_messages(agent(1), month(), first.next, limit, NOW).await.unwrap();
    assert_eq!((second.messages, second.next), (vec![message(1501)], None));
}

#[tokio::test]
async fn closing_leaves_whole_files_without_logs() {
    let (home, store) = furnished().await;
    assert!(store.record(agent(1)).await.unwrap().is_some());
    store.register_user(registration(agent(1), 2)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(names_in(home.path()), ["lock", "messages_2026_11.db", "router.db"]);
}

/// Names of the files in a directory, in order.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Names of the files in a directory that this process has open, those unlinked included.
fn open_files(dir: &Path) -> Vec<String> {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
    links
        .filter_map(|link| fs::read_link(link.path()).ok())
        .filter(|file| file.starts_with(dir))
        .map(|file| file.to_str().unwrap().to_owned())
        .collect()
}
