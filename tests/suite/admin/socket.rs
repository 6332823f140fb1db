//! `admin.sock` of a running server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::AdminFixture;
use crate::harness::{AT_ONCE, Bystander, until, within};

fn socket(fixture: &AdminFixture) -> PathBuf {
    fixture.server.data_dir().join("admin.sock")
}

#[actix_web::test]
async fn the_socket_is_private_and_exists_while_the_server_runs() {
    let mut fixture = AdminFixture::embedded(&[]);
    assert_eq!(fs::metadata(socket(&fixture)).unwrap().permissions().mode() & 0o7777, 0o600);
    fixture.server.kill();
    assert!(socket(&fixture).exists());
    // No process listens on it, so the command opens the store itself.
    fixture.stdout_of("tables list").await;
    fixture.server.restart();
    fixture.stdout_of("tables create").await;
    fixture.server.logged("an operator's command ended").await;
    assert!(fixture.server.terminate().success());
    assert!(!socket(&fixture).exists());
    fixture.server.restart();
}

/// Commands that monitoring may run each minute, and those beside them.
const READING: [&str; 11] = [
    "health",
    "status",
    "nodes",
    "refusals",
    "tables list",
    "tables status",
    "access list",
    "feed list",
    "broadcast list",
    "feed tail broadcasts --once",
    "inspect 0123456789abcdef0123456789abcdef",
];

#[actix_web::test]
async fn a_command_that_only_reads_is_in_the_log_at_debug_alone() {
    let line = "an operator's command ended";
    let of_commands = |fixture: &AdminFixture| {
        let log = fixture.server.log();
        let lines = log.lines().filter(|line| line.contains("an operator's command"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let fixture = AdminFixture::embedded(&[]);
    fixture.stdout_of("broadcast put news/front 1").await;
    fixture.server.logged(line).await;
    for words in READING {
        fixture.stdout_of(words).await;
    }
    fixture.stdout_of("tables create").await;
    until(AT_ONCE, "it has ended", async || of_commands(&fixture).len() >= 4).await;
    let lines = of_commands(&fixture);
    let is_writing =
        |line: &String| line.contains("broadcast put") || line.contains("tables create");
    assert!(lines.len() == 4 && lines.iter().all(is_writing), "{lines:#?}");

    let fixture = AdminFixture::embedded(&["--log-level=debug"]);
    fixture.stdout_of("status").await;
    assert!(fixture.server.logged(line).await.contains("status"), "{}", fixture.server.log());
}

#[actix_web::test]
async fn garbage_is_rejected_and_the_server_stays_up() {
    let fixture = AdminFixture::embedded(&[]);
    let mut bystander = Bystander::connect(&fixture.server).await;
    let long = vec![b'{'; 1_000_000];
    let get = b"GET / HTTP/1.1\r\n\r\n";
    let post = b"POST /commands HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n{}\n";
    for garbage in [&b"hello\r\n\r\n"[..], b"\0\xff\r\n\r\n", &long, post, get] {
        let mut stream = UnixStream::connect(socket(&fixture)).await.unwrap();
        // The server may reject the request before it has read all of it.
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        // The unread rest of the request turns the end of the connection into an error.
        let _ = within(AT_ONCE, "an answer", stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    bystander.is_unaffected().await;
    fixture.stdout_of("tables list").await;
}

#[actix_web::test]
async fn the_socket_is_private_with_dynamodb_too_and_commands_on_the_store_need_none() {
    let fixture = AdminFixture::dynamo(&[]);
    assert_eq!(fs::metadata(socket(&fixture)).unwrap().permissions().mode() & 0o7777, 0o600);
    fs::remove_file(socket(&fixture)).unwrap();
    fixture.stdout_of("tables list").await;
}

#[actix_web::test]
async fn a_server_with_silent_connections_ends_in_time() {
    let mut fixture = AdminFixture::embedded(&[]);
    let silent = UnixStream::connect(socket(&fixture)).await.unwrap();
    fixture.server.signal("TERM");
    assert_eq!(fixture.server.ended_within(AT_ONCE).await.code(), Some(0));
    drop(silent);
}

#[actix_web::test]
async fn a_command_whose_store_stays_locked_fails_with_a_remedy() {
    let mut fixture = AdminFixture::embedded(&[]);
    assert!(fixture.server.terminate().success());
    // A process that holds the store and accepts no commands.
    let options = storage_sqlite::EmbeddedOptions::new(4096);
    let other = storage_sqlite::Embedded::open(&fixture.server.data_dir(), &options).unwrap();
    let reason = "in use by another process that accepts no commands";
    fixture.refuses("tables list", reason).await;

    let waiting = fixture.command(&["tables", "list"]).stdout(Stdio::null()).spawn();
    storage::Store::close(&other).await.unwrap();
    drop(other);
    let mut waiting = waiting.unwrap();
    until(AT_ONCE, "the command has the store", async || {
        waiting.try_wait().unwrap().is_some_and(|status| status.success())
    })
    .await;
    fixture.server.restart();
}
