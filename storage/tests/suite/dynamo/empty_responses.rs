//! Successful replies without a body, as of a failing proxy, make no agent unknown.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use storage::{Store, StoreError};
use storage_dynamodb::DynamoOptions;

use crate::dynamo::script::{ROUTER, Script, ok, refused};
use crate::dynamo::things::*;
use crate::wire_engine::overrides;

const TOLD: &str = "the server answered 200 without a body";

#[tokio::test]
async fn a_reply_without_a_body_is_no_missing_item() {
    let script = Script::new([ok(""), ok(""), ok("")]);
    let told = format!("GetItem on table router: {TOLD}");
    assert_eq!(script.open().record(AGENT).await, Err(StoreError::Failed(told)));
    assert_eq!(script.asked(), ["GetItem"; 3]);
    let script = Script::new([ok(""), ok(""), ok("")]);
    let told = format!("GetItem on table message_2026_11: {TOLD}");
    let read = script.open().channels(AGENT, november()).await;
    assert_eq!(read, Err(StoreError::Failed(told)));
    assert_eq!(script.asked(), ["GetItem"; 3]);
}

#[tokio::test]
async fn a_request_whose_reply_had_no_body_is_made_again() {
    let script = Script::new([ok(""), ok("{}")]);
    assert_eq!(script.open().record(AGENT).await, Ok(None));
    let script = Script::new([ok(""), ok("{}")]);
    assert_eq!(script.open().channels(AGENT, november()).await, Ok(None));
    assert!(script.is_done());
}

/// Whether it was executed is unknown.
#[tokio::test]
async fn a_write_whose_reply_had_no_body_is_indeterminate() {
    let throttled = || refused("ThrottlingException");
    let script = Script::new([ok(""), throttled(), throttled()]);
    let dropped = script.open().drop_user(AGENT).await;
    assert!(matches!(dropped, Err(StoreError::Failed(_))), "{dropped:?}");
}

/// A body that has to be read to find that it is empty is as little.
#[tokio::test]
async fn an_empty_body_is_an_error_with_and_without_a_content_length() {
    for empty in ["Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || serve(&listener, empty));
        let options = DynamoOptions { endpoint_url: Some(url), ..options() };
        let store = storage_dynamodb::open_with(&options, overrides(None)).unwrap();
        let told = format!("GetItem on table router: {TOLD}");
        assert_eq!(store.record(AGENT).await, Err(StoreError::Failed(told)), "{empty}");
    }
}

/// Describes the router table, and sends an empty reply to any other request. One request a
/// connection; ends with the last attempt.
fn serve(listener: &TcpListener, empty: &str) {
    let described = format!("Content-Length: {}\r\n\r\n{ROUTER}", ROUTER.len());
    for answer in [&*described, empty, empty, empty] {
        let (mut stream, _peer) = listener.accept().unwrap();
        read_request(&stream);
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n{answer}").unwrap();
    }
}

fn read_request(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    for line in reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()) {
        let header = line.to_lowercase();
        length =
            header.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap());
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
}
