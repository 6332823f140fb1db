//! Tombstones that are forgotten by several servers over one store, while others write and read.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use futures_util::future::join_all;
use hyper::Method;

use super::{FeedClient, Page, Replica};
use crate::harness::{AT_ONCE, Server, WireServer, dynamo, until};

/// The keys of each writer, which it writes and deletes in turn. A deleted one stays so for longer than its tombstone.
const KEYS: usize = 2000;

/// One key of so many is not deleted until its next turn.
const KEPT_EACH: usize = 50;

/// A consumer that starts over when its cursor is too old.
#[derive(Default)]
struct Consumer {
    copy: Replica,
    horizon: u64,
}

impl Consumer {
    /// Reads up to the head.
    async fn read(&mut self, client: &FeedClient) {
        loop {
            let Some(page) = page(client, self.copy.cursor).await else {
                self.copy = Replica::default();
                continue;
            };
            assert!(self.horizon <= page.horizon, "the horizon decreased");
            self.horizon = page.horizon;
            if self.copy.take(page) {
                return;
            }
        }
    }

    fn values(&self) -> BTreeMap<String, String> {
        let rows = self.copy.rows.iter();
        rows.filter_map(|(key, (.., value))| Some((key.clone(), value.clone()?))).collect()
    }
}

/// A page; none if the cursor is below the horizon.
async fn page(client: &FeedClient, after: u64) -> Option<Page> {
    let answer = client.get(&format!("?after={after}")).await;
    if answer.status == 200 {
        return Some(serde_json::from_slice(&answer.body).expect("a page is JSON"));
    }
    answer.assert_error(410, 318);
    assert_ne!(after, 0, "no cursor is never too old");
    None
}

#[actix_web::test]
async fn nodes_that_forget_tombstones_at_once_and_are_killed_lose_no_deletion_and_no_value() {
    let wire = WireServer::start();
    let quick = ["--feed-poll-ms=50", "--feed-sweep-s=1", "--feed-tombstones-keep-s=1"];
    let launch = || Server::launch(dynamo::launch(&wire.url).with(&quick));
    let nodes: Vec<_> = (0..2).map(|_| launch()).collect();
    let mut killed = launch();
    let reader = FeedClient::at(&nodes[0], "news");
    FeedClient::at(&nodes[0], "news").put("first", "1").await;
    let (is_over, written) = (Cell::new(false), RefCell::new(BTreeMap::new()));
    written.borrow_mut().insert("first".to_owned(), "1".to_owned());
    let write = nodes.iter().enumerate().map(async |(node, server)| {
        let client = FeedClient::at(server, "news");
        for number in 0.. {
            let (key, value) = (format!("{node}/{}", number % KEYS), number.to_string());
            client.put(&key, &value).await;
            if number % KEPT_EACH == 0 {
                written.borrow_mut().insert(key, value);
            } else {
                client.request(Method::DELETE, &format!("/{key}"), "").await;
            }
            if is_over.get() {
                return;
            }
        }
    });
    let read = async {
        let mut consumer = Consumer::default();
        until(AT_ONCE, "something is published", async || {
            consumer.read(&reader).await;
            consumer.copy.cursor > 0
        })
        .await;
        let absent = consumer.copy.cursor;
        for _ in 0..2 {
            let before = consumer.horizon;
            until(AT_ONCE, "the horizon rises", async || {
                consumer.read(&reader).await;
                consumer.horizon > before
            })
            .await;
            killed.kill();
            killed = launch();
        }
        is_over.set(true);
        (consumer, absent)
    };
    let (_, (mut consumer, absent)) = tokio::join!(join_all(write), read);
    assert_eq!(page(&reader, absent).await, None, "a consumer that was away starts over");
    let written = written.into_inner();
    until(AT_ONCE, "the consumer has all values and no deleted one", async || {
        consumer.read(&reader).await;
        consumer.values() == written
    })
    .await;
    let other = FeedClient::at(&killed, "news");
    until(AT_ONCE, "every tombstone is forgotten", async || {
        let mut anew = Consumer::default();
        anew.read(&other).await;
        // A value that is just published again has no number for a moment.
        anew.values() == written && anew.copy.rows.len() == written.len()
    })
    .await;
}
