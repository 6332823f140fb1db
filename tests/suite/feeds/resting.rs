//! Followers of a feed that does not change: each costs little memory.

use futures_util::future::join_all;

use super::FeedClient;
use crate::harness::{AT_ONCE, Raw, Server};

#[actix_web::test]
async fn a_follower_at_rest_costs_at_most_six_kib() {
    const FIRST: usize = 500;
    const FURTHER: u64 = 1500;
    const FOLLOWER_KIB_MAX: u64 = 6;
    let server = Server::start();
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    client.page("wait=10").await;
    let mut followers = follow(&server, &client, FIRST).await;
    let before = server.memory_kib();
    followers.extend(follow(&server, &client, FURTHER as usize).await);
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < FURTHER * FOLLOWER_KIB_MAX, "{FURTHER} followers cost {grown} KiB");
}

/// Opens so many event streams, which have nothing to send after their beginning.
async fn follow(server: &Server, client: &FeedClient, count: usize) -> Vec<Raw> {
    let request = format!(
        "GET /v1/feeds/news?after=1 HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\
         Authorization: {}\r\n\r\n",
        client.authorization()
    );
    let mut followers = Vec::new();
    while followers.len() < count {
        followers.extend(
            join_all((0..50).map(|_| async {
                let mut raw = Raw::open(server).await;
                raw.write(&request).await;
                raw.until(AT_ONCE, "retry: 1000\n\n").await;
                raw
            }))
            .await,
        );
    }
    followers
}
