//! Readers that do not read: they cost a page of memory each, and nobody else anything.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{Copy, Desk};
use crate::harness::{AT_ONCE, Neighbour, Server, until, within};

const KEYS: usize = 150;
const VALUE_BYTES: usize = 60_000;

#[actix_web::test]
async fn readers_that_do_not_read_cost_a_page_each_and_lose_nothing() {
    const READERS: u64 = 12;
    // They would have 9 MB each if all was kept for them.
    const MEMORY_KIB_MAX: u64 = READERS * 2048;
    // Tests run unoptimised, and many at once: a server that is busy with one is not to time the others out.
    let patient = "--request-headers-timeout-ms=60000";
    let server = Server::start_with(&["--feed-page-bytes-max=131072", patient]);
    let desk = large(&server).await;
    let mut neighbour = Neighbour::beside(&server).await;
    let before = server.memory_kib();
    let mut slow = join_all((0..READERS).map(|_| stuck(&server, &desk))).await;
    // By when one that reads has all of it, the others stand still.
    let mut copy = Copy::default();
    let mut events = desk.events(0).await;
    while copy.rows.len() < KEYS {
        let event = events.next().await.expect("the stream goes on");
        event.update.into_iter().for_each(|update| copy.update(update));
    }
    neighbour.notices_nothing().await;
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < MEMORY_KIB_MAX, "the server took {grown} KiB more");

    let last = format!("id: {}\n", copy.cursor);
    let mut reader = slow.pop().expect("there are readers");
    within(AT_ONCE, "the whole stream comes", read_to(&mut reader, &last)).await;
}

#[actix_web::test]
async fn a_reader_that_does_not_read_at_all_is_disconnected() {
    let server = Server::start_with(&["--tcp-user-timeout-ms=1000", "--feed-followers-max=1"]);
    let desk = large(&server).await;
    let end = Copy::of(&desk).await.cursor;
    let _stuck = stuck(&server, &desk).await;
    let waits = format!("?after={end}&wait=1");
    until(AT_ONCE, "its place is taken", async || desk.get(&waits).await.status == 503).await;
    until(Duration::from_secs(30), "the system ends its connection", async || {
        desk.get(&waits).await.status == 200
    })
    .await;
}

#[actix_web::test]
async fn pages_that_nobody_reads_are_counted_and_small_ones_still_answered() {
    let large_pages = ["--feed-page-bytes-max=100000000", "--feed-pages-max=2"];
    let server = Server::start_with(&large_pages);
    let desk = large(&server).await;
    let mut stuck = Vec::new();
    for _ in 0..2 {
        stuck.push(stuck_at(&server, &desk, "application/json").await);
    }
    let refused = desk.get("?limit=20").await;
    assert!(refused.status == 503 && refused.header("retry-after").is_some(), "{refused}");
    assert_eq!(desk.get("?limit=1").await.status, 200);
    drop(stuck);
    until(AT_ONCE, "their places are free", async || desk.get("?limit=20").await.status == 200)
        .await;
}

/// A feed with more in it than the system keeps for a connection.
async fn large(server: &Server) -> Desk {
    let desk = Desk::at(server, "large");
    let value = "x".repeat(VALUE_BYTES);
    for key in 0..KEYS {
        desk.put(&key.to_string(), &value).await;
    }
    let is_published = async || desk.page("limit=1").await.head == KEYS as u64;
    until(AT_ONCE, "all is published", is_published).await;
    desk
}

/// A reader of a stream that asks for everything and takes next to nothing.
async fn stuck(server: &Server, desk: &Desk) -> TcpStream {
    stuck_at(server, desk, "text/event-stream").await
}

/// The same for what is accepted.
async fn stuck_at(server: &Server, desk: &Desk, accept: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    socket.set_recv_buffer_size(4096).expect("a socket has a buffer");
    let mut stream = socket.connect(server.address()).await.expect("the server is there");
    let request = format!(
        "GET /v1/feeds/large HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\
         Authorization: {}\r\n\r\n",
        desk.authorization()
    );
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut start = [0; 12];
    let read = within(AT_ONCE, "the stream begins", stream.read_exact(&mut start)).await;
    read.expect("the server writes");
    assert_eq!(&start, b"HTTP/1.1 200");
    stream
}

async fn read_to(stream: &mut TcpStream, last: &str) {
    let mut tail = Vec::new();
    while !String::from_utf8_lossy(&tail).contains(last) {
        let keep = tail.len().saturating_sub(last.len());
        tail.drain(..keep);
        let mut bytes = vec![0; 65_536];
        let count = stream.read(&mut bytes).await.expect("the connection is open");
        assert!(count > 0, "the stream ended");
        tail.extend_from_slice(&bytes[..count]);
    }
}
