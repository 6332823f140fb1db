//! What a start leaves of files that it cannot use, what it copies before it changes files, and files of a newer version
//! that it can use.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use storage::Store as _;
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;

use super::dump::files;
use super::stopped_with_samples;
use super::upgrade::{MESSAGES, ROUTER, copy_files, databases, set_back};
use crate::harness::{Agent, Bystander, Launch, Program, Sender, Server, kalends};

const COPIES: &str = concat!("before-", env!("CARGO_PKG_VERSION"));

/// The files of a directory that are no lock, and those of the folders in it.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("it exists") {
        let path = entry.expect("it is listed").path();
        match path.is_dir() {
            true => contents.extend(self::contents(&path)),
            false => drop(contents.insert(path.clone(), fs::read(&path).expect("it can be read"))),
        }
    }
    contents.retain(|path, _| path.file_name().is_none_or(|name| name != "lock"));
    contents
}

pub(super) fn sql(file: &Path, statements: &str) {
    let conn = Connection::open(file).expect("it is a database");
    conn.execute_batch(statements).unwrap_or_else(|error| panic!("{statements}: {error}"));
}

/// Undoes the newest migration of each file but `but`.
pub(super) fn make_old(dir: &Path, but: &str) {
    for file in databases(dir).iter().filter(|file| *file != but) {
        match file == "router.db" {
            true => set_back(&dir.join(file), &ROUTER[..1], ROUTER.len()),
            false => set_back(&dir.join(file), &MESSAGES[..1], MESSAGES.len()),
        }
    }
}

/// A directory with each kind of file, and the name of one of its months.
pub(super) async fn copied_samples(keys: bool) -> (TempDir, String) {
    let (_server, dir, _rows) = stopped_with_samples(Launch::default()).await;
    let home = TempDir::new().expect("a temporary directory can be made");
    copy_files(&dir, home.path());
    if keys {
        fs::copy(dir.join("keys.toml"), home.path().join("keys.toml")).expect("it can be copied");
    }
    let month = databases(home.path()).into_iter().find(|file| file.starts_with("messages_"));
    (home, month.expect("there is a month"))
}

#[actix_web::test]
async fn with_one_file_that_cannot_be_used_no_file_is_changed() {
    type Spoil = fn(&Path);
    let newer = |file: &Path| sql(file, "PRAGMA user_version = 99");
    let foreign = |file: &Path| sql(file, "PRAGMA application_id = 7");
    let damaged =
        |file: &Path| fs::write(file, "uaid,node\n".repeat(1000)).expect("it is writable");
    let missing = |file: &Path| fs::remove_file(file).expect("it was there");
    let cases: [(&str, Spoil, &[&str]); 4] = [
        ("newer", newer, &["has schema version 99 of a newer kalends", "run the newer version"]),
        ("foreign", foreign, &["is not the database that its name promises", "restore it"]),
        ("damaged", damaged, &["not a database", "restore it"]),
        ("missing", missing, &["is missing", "restore it"]),
    ];
    for (name, spoil, expected) in cases {
        for is_router in [true, false] {
            let (home, month) = copied_samples(true).await;
            let file = if is_router { "router.db" } else { &month };
            make_old(home.path(), file);
            spoil(&home.path().join(file));
            let before = contents(home.path());
            let mut serve = kalends(&["serve", "--listen=127.0.0.1:0", "--metrics-listen=off"]);
            serve.arg("--data-dir").arg(home.path());
            Program::run(serve).await.refused_start(2, expected);
            assert_eq!(
                contents(home.path()).keys().collect::<Vec<_>>(),
                before.keys().collect::<Vec<_>>()
            );
            assert!(contents(home.path()) == before, "{name}: a file was changed beside {file}");
        }
    }
}

fn open(dir: &Path, free_bytes_min: u64) -> Result<Embedded, storage_sqlite::OpenError> {
    let options =
        EmbeddedOptions { migration_copy: true, free_bytes_min, ..EmbeddedOptions::new(64) };
    Embedded::open(dir, &options)
}

async fn close(store: Embedded) {
    store.close().await.expect("the store closes");
}

#[actix_web::test]
async fn a_file_is_copied_before_it_is_changed() {
    let (home, month) = copied_samples(false).await;
    let (dir, copies) = (home.path(), home.path().join(COPIES));
    close(open(dir, 0).expect("the files are new")).await;
    assert!(!copies.exists(), "nothing was changed");

    make_old(dir, "");
    let old = files(dir);
    close(open(dir, 0).expect("the files are old")).await;
    assert_eq!(files(&copies), old);
    assert_ne!(files(dir), old);
    assert_eq!(databases(&copies).len(), databases(dir).len());

    // A crash before the last file was changed: its copy is made anew, and the others stay.
    let kept = contents(&copies);
    set_back(&dir.join(&month), &MESSAGES[..1], MESSAGES.len());
    sql(&dir.join(&month), "DELETE FROM messages");
    let unfinished = copies.join(format!("{month}.new"));
    fs::write(&unfinished, "half of a copy").expect("it is writable");
    close(open(dir, 0).expect("one file is old")).await;
    let changed: Vec<_> = contents(&copies)
        .into_iter()
        .filter(|(path, bytes)| kept.get(path) != Some(bytes))
        .collect();
    assert_eq!(changed.len(), 1, "only the copy of the month");
    assert_eq!(changed[0].0, copies.join(&month));
    assert!(!unfinished.exists());

    // The copies are a store, of the older version.
    close(open(&copies, 0).expect("they can be opened")).await;
}

#[actix_web::test]
async fn without_space_for_a_copy_no_file_is_changed_unless_none_is_wanted() {
    let (home, _month) = copied_samples(false).await;
    make_old(home.path(), "");
    let before = contents(home.path());
    let refused = open(home.path(), u64::MAX / 2).err().expect("no disk is so large");
    assert!(refused.is_final(), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("is of an older version") && text.contains("migration_copy = false"),
        "{text}"
    );
    assert!(contents(home.path()) == before, "a file was changed");
    close(Embedded::open(home.path(), &EmbeddedOptions::new(64)).expect("it needs no space")).await;
    assert!(!home.path().join(COPIES).exists());
}

#[actix_web::test]
async fn copies_are_not_written_through_a_link_nor_over_a_file() {
    let (home, _month) = copied_samples(false).await;
    let (copies, elsewhere) = (home.path().join(COPIES), TempDir::new().expect("it can be made"));
    make_old(home.path(), "");
    let before = databases(home.path());
    for is_link in [true, false] {
        match is_link {
            true => symlink(elsewhere.path(), &copies).expect("it is new"),
            false => fs::write(&copies, "a text").expect("it is new"),
        }
        let refused = open(home.path(), 0).err().expect("there is no place for the copies");
        let expected =
            format!("{} is no directory, and it is to have the copies", copies.display());
        assert!(refused.is_final() && refused.to_string().starts_with(&expected), "{refused}");
        assert_eq!(contents(elsewhere.path()), BTreeMap::new());
        fs::remove_file(&copies).expect("it is still no directory");
    }
    close(open(home.path(), 0).expect("the files are old as before")).await;
    assert_eq!(databases(&copies), before);
}

/// The next version adds columns, indexes and tables, and names this one as the oldest that may open its files.
#[actix_web::test]
async fn files_of_a_newer_version_that_only_added_are_served() {
    let mut server = Server::start();
    let uaid = Agent::offline(&server).await.0;
    assert!(server.terminate().success());
    let dir = server.data_dir();
    for file in databases(&dir) {
        let (table, known) = match file == "router.db" {
            true => ("router", ROUTER.len() + 1),
            false => ("messages", MESSAGES.len() + 1),
        };
        let version = (known << 16) + known + 1;
        sql(
            &dir.join(file),
            &format!(
                "ALTER TABLE {table} ADD COLUMN added TEXT DEFAULT 'new';
                 CREATE INDEX added_index ON {table} (added); CREATE TABLE added_table (x INTEGER) STRICT;
                 PRAGMA user_version = {version}"
            ),
        );
    }
    server.restart();
    Bystander::connect(&server).await.is_unaffected().await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let channel = agent.register().await;
    agent.leave().await;
    assert_eq!(Sender::new().push(&channel.endpoint, "a text").await.status, 201);
    let archive = dir.with_file_name("backup.tar");
    server.run(&["backup", archive.to_str().expect("the path is text")]).await.succeeded();
    assert!(server.terminate().success());
    assert!(!dir.join(COPIES).exists(), "nothing was migrated");
    let copy = TempDir::new().expect("a temporary directory can be made");
    let mut restore = kalends(&["restore"]);
    restore.arg(&archive).arg("--data-dir").arg(copy.path().join("data"));
    Program::run(restore).await.succeeded();
    for dir in [dir, copy.path().join("data")] {
        for file in databases(&dir) {
            let conn = Connection::open(dir.join(file)).expect("it is a database");
            let version = conn.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0));
            assert!(version.expect("it has one") > 1 << 16, "the versions stay");
        }
    }
}
