//! Followers that do not read: each costs one page of memory, and others are unaffected.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{FeedClient, Replica};
use crate::harness::{AT_ONCE, Bystander, Server, until, within};

const KEYS: usize = 150;
const VALUE_BYTES: usize = 60_000;

#[actix_web::test]
async fn followers_that_do_not_read_cost_one_page_each_and_lose_nothing() {
    const READERS: u64 = 12;
    // If everything was buffered, each would have 9 MB.
    const MEMORY_KIB_MAX: u64 = READERS * 2048;
    // Tests run unoptimised and concurrently: a busy server must not close the other streams for a
    // timeout.
    let patient = "--request-headers-timeout-ms=60000";
    let server = Server::start_with(&["--feed-page-bytes-max=131072", patient]);
    let client = large(&server).await;
    let mut bystander = Bystander::connect(&server).await;
    let before = server.memory_kib();
    let mut slow = join_all((0..READERS).map(|_| stuck(&server, &client))).await;
    // When a follower that reads has all updates, the others are blocked.
    let mut copy = Replica::default();
    let mut events = client.events(0).await;
    while copy.rows.len() < KEYS {
        let event = events.next().await.expect("the stream is open");
        event.update.into_iter().for_each(|update| copy.update(update));
    }
    bystander.is_unaffected().await;
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < MEMORY_KIB_MAX, "the server took {grown} KiB more");

    let last = format!("id: {}\n", copy.cursor);
    let mut reader = slow.pop().expect("there are readers");
    within(AT_ONCE, "the whole stream arrives", read_to(&mut reader, &last)).await;
}

#[actix_web::test]
async fn a_follower_that_never_reads_is_disconnected() {
    let server = Server::start_with(&["--tcp-user-timeout-ms=1000", "--feed-followers-max=1"]);
    let client = large(&server).await;
    let end = Replica::of(&client).await.cursor;
    let _stuck = stuck(&server, &client).await;
    let waits = format!("?after={end}&wait=1");
    until(AT_ONCE, "its place is taken", async || client.get(&waits).await.status == 503).await;
    until(Duration::from_secs(30), "the system ends its connection", async || {
        client.get(&waits).await.status == 200
    })
    .await;
}

#[actix_web::test]
async fn unread_pages_are_limited_and_small_ones_are_still_answered() {
    let large_pages = ["--feed-page-bytes-max=100000000", "--feed-pages-max=2"];
    let server = Server::start_with(&large_pages);
    let client = large(&server).await;
    let mut stuck = Vec::new();
    for _ in 0..2 {
        stuck.push(stuck_at(&server, &client, "application/json").await);
    }
    let refused = client.get("?limit=20").await;
    assert!(refused.status == 503 && refused.header("retry-after").is_some(), "{refused}");
    assert_eq!(client.get("?limit=1").await.status, 200);
    drop(stuck);
    until(AT_ONCE, "their places are free", async || client.get("?limit=20").await.status == 200)
        .await;
}

/// A feed with more data than the kernel buffers of a connection hold.
async fn large(server: &Server) -> FeedClient {
    let client = FeedClient::at(server, "large");
    let value = "x".repeat(VALUE_BYTES);
    for key in 0..KEYS {
        client.put(&key.to_string(), &value).await;
    }
    let is_published = async || client.page("limit=1").await.head == KEYS as u64;
    until(AT_ONCE, "all is published", is_published).await;
    client
}

/// A follower that requests everything and reads next to nothing.
async fn stuck(server: &Server, client: &FeedClient) -> TcpStream {
    stuck_at(server, client, "text/event-stream").await
}

/// Like [`stuck`], with this `Accept` header.
async fn stuck_at(server: &Server, client: &FeedClient, accept: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    socket.set_recv_buffer_size(4096).expect("a socket has a buffer");
    let mut stream = socket.connect(server.address()).await.expect("the server is there");
    let request = format!(
        "GET /v1/feeds/large HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\
         Authorization: {}\r\n\r\n",
        client.authorization()
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
