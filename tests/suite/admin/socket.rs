//! `admin.sock` of a real server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::Place;
use crate::harness::{AT_ONCE, Neighbour, until, within};

fn socket(place: &Place) -> PathBuf {
    place.server.data_dir().join("admin.sock")
}

#[actix_web::test]
async fn it_is_the_owners_and_lives_as_long_as_the_server() {
    let mut place = Place::embedded(&[]);
    assert_eq!(fs::metadata(socket(&place)).unwrap().permissions().mode() & 0o7777, 0o600);
    place.server.kill();
    assert!(socket(&place).exists());
    // Nobody answers on it, so the store is opened.
    place.done("tables list").await;
    place.server.restart();
    place.done("tables list").await;
    assert!(place.server.log().contains("an operator's command ended"));
    assert!(place.server.terminate().success());
    assert!(!socket(&place).exists());
    place.server.restart();
}

#[actix_web::test]
async fn garbage_on_it_is_refused_and_the_server_stays_up() {
    let place = Place::embedded(&[]);
    let mut neighbour = Neighbour::beside(&place.server).await;
    let long = vec![b'{'; 1_000_000];
    for garbage in [&b"hello\n"[..], b"\0\xff\n", &long, b"{}\n", b"[1, 2"] {
        let mut stream = UnixStream::connect(socket(&place)).await.unwrap();
        // It may be refused before all of it is read.
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        // What it did not read makes the end of the connection an error.
        let _ = within(AT_ONCE, "an answer", stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains("failed"), "{answer}");
    }
    neighbour.notices_nothing().await;
    place.done("tables list").await;
}

#[actix_web::test]
async fn with_dynamodb_there_is_none() {
    let place = Place::dynamo(&[]);
    assert!(!socket(&place).exists());
}

#[actix_web::test]
async fn a_server_ends_in_time_beside_connections_that_say_nothing() {
    let mut place = Place::embedded(&[]);
    let silent = UnixStream::connect(socket(&place)).await.unwrap();
    place.server.signal("TERM");
    assert_eq!(place.server.ended_within(AT_ONCE).await.code(), Some(0));
    drop(silent);
}

#[actix_web::test]
async fn a_command_that_waits_for_a_store_gives_up_with_what_to_do() {
    let mut place = Place::embedded(&[]);
    assert!(place.server.terminate().success());
    // Somebody who has the store and takes no commands.
    let options = storage::EmbeddedOptions::default();
    let other = storage::Embedded::open(&place.server.data_dir(), &options).unwrap();
    let why = place.refused("tables list").await;
    assert!(why.contains("in use by another process that takes no commands"), "{why}");

    let waiting = place.command(&["tables", "list"]).stdout(Stdio::null()).spawn();
    storage::Store::close(&other).await.unwrap();
    drop(other);
    let mut waiting = waiting.unwrap();
    until(AT_ONCE, "the command has the store", async || {
        waiting.try_wait().unwrap().is_some_and(|status| status.success())
    })
    .await;
    place.server.restart();
}
