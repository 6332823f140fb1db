//! Writers and followers without faults.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use hyper::Method;
use kalends::feeds::http::tokens::Scopes;

use super::client::{token, version};
use super::{FeedClient, Page, Replica};
use crate::harness::{AT_ONCE, Agent, Launch, Sender, Server, until, within};

#[actix_web::test]
async fn a_republished_last_update_is_not_lost() {
    let server = Server::start();
    let client = FeedClient::at(&server, "kv");
    assert_eq!(client.put("fred", "bob").await, 1);
    let bob = client.page("after=&wait=10").await;
    assert_eq!((bob.updates[0].feed_sync_id, bob.updates[0].version, bob.cursor), (1, 2, 1));
    assert_eq!(client.put("fred", "jim").await, 3);
    let jim = client.page(&format!("after={}&wait=10", bob.cursor)).await;
    assert_eq!((jim.updates[0].feed_sync_id, jim.updates[0].version), (2, 4));
    assert_eq!(jim.updates[0].value.as_deref(), Some("jim"));
}

#[actix_web::test]
async fn a_long_poll_is_answered_after_a_write_a_republish_and_a_delete() {
    let server = Server::start();
    let (writer, reader) = (FeedClient::at(&server, "news"), FeedClient::at(&server, "news"));
    writer.put("a/b%20c", "1").await;
    let mut copy = Replica::default();
    copy.take(reader.page("wait=10").await);
    for (number, path, method) in [
        (2, "/a/b%20c", Method::PUT),
        (3, "/a%2Fb%20c/republish", Method::POST),
        (4, "/a/b%20c", Method::DELETE),
    ] {
        let query = format!("after={}&wait=60", number - 1);
        let change = writer.request(method, path, "2");
        let (page, answer) = tokio::join!(reader.page(&query), change);
        assert_eq!((answer.status, version(&answer)), (200, 2 * number - 1));
        assert!(copy.take(page));
        assert_eq!(copy.cursor, number);
    }
    assert_eq!(copy.rows["a/b c"], (4, 8, None));
}

#[actix_web::test]
async fn a_long_poll_that_times_out_returns_the_same_cursor() {
    let server = Server::start();
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    client.page("wait=10").await;
    let page = within(AT_ONCE, "the wait ends", client.page("after=1&wait=1")).await;
    assert_eq!((page.updates.len(), page.cursor, page.head), (0, 1, 1));
}

#[actix_web::test]
async fn concurrent_writers_of_a_key_get_distinct_versions_and_the_last_one_wins() {
    const WRITES: usize = 60;
    let server = Server::start();
    let reader = FeedClient::at(&server, "news");
    reader.put("first", "0").await;
    let mut events = reader.events(0).await;
    let writers = ["one", "other"].map(async |name| {
        let client = FeedClient::at(&server, "news");
        let mut versions = Vec::new();
        for number in 0..WRITES {
            let value = format!("{name} {number}");
            versions.push((client.put("key", &value).await, value));
        }
        assert!(versions.is_sorted(), "versions grow: {versions:?}");
        versions
    });
    let writes = join_all(writers).await.concat();
    let versions: BTreeSet<_> = writes.iter().map(|(version, _)| version).collect();
    assert_eq!(versions.len(), 2 * WRITES, "each write has a version of its own");

    let (last, value) = writes.iter().max().expect("there were writes");
    let mut copy = Replica::default();
    while copy.rows.get("key").is_none_or(|(_, version, _)| version <= last) {
        let event = events.next().await.expect("the stream is open");
        event.update.into_iter().for_each(|update| copy.update(update));
    }
    assert_eq!(copy.value("key"), Some(value.as_str()));
    assert_eq!(copy, Replica::of(&reader).await);
}

#[actix_web::test]
async fn all_followers_see_the_same_updates_to_the_end() {
    const KEYS: usize = 100;
    let server = Server::start_with(&["--feed-page-max=7", "--feed-batch-max=3"]);
    let client = FeedClient::at(&server, "news");
    client.put("0", "x").await;
    let writes = async {
        join_all((1..KEYS).map(async |key| client.put(&key.to_string(), "x").await)).await;
    };
    let readers = (0..10).map(async |number| {
        let client = FeedClient::at(&server, "news");
        let mut copy = Replica::default();
        if number % 2 == 0 {
            let mut events = client.events(0).await;
            while copy.rows.len() < KEYS {
                let event = events.next().await.expect("the stream is open");
                event.update.into_iter().for_each(|update| copy.update(update));
            }
        } else {
            while copy.rows.len() < KEYS {
                let page = client.page(&format!("after={}&wait=10", copy.cursor)).await;
                assert!(page.updates.len() <= 7);
                copy.take(page);
            }
        }
        copy
    });
    let (copies, ()) = tokio::join!(join_all(readers), writes);
    assert!(copies.iter().all(|copy| *copy == copies[0]));
    let numbers: BTreeSet<_> = copies[0].rows.values().map(|(number, ..)| *number).collect();
    assert!(numbers.into_iter().eq(1..=KEYS as u64), "no number is left out or given twice");
}

#[actix_web::test]
async fn broadcasts_can_be_followed_before_there_is_one() {
    let server = Server::start();
    let client = FeedClient::at(&server, "broadcasts");
    assert_eq!(Replica::of(&client).await, Replica::default());
    let mut events = client.events(0).await;
    let write = client.put("remote-settings/monitor_changes", "\"v1\"");
    let (page, event, version) = tokio::join!(client.page("after=0&wait=60"), events.next(), write);
    assert_eq!((version, page.cursor), (1, 1));
    assert_eq!(event.expect("the stream is open").update, Some(page.updates[0].clone()));
    assert_eq!(page.updates[0].key, "remote-settings/monitor_changes");
}

#[actix_web::test]
async fn a_closed_stream_frees_its_slot() {
    let server = Server::start_with(&["--feed-followers-max=1", "--feed-keepalive-s=1"]);
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    let mut first = client.events(0).await;
    assert_eq!(first.next().await.expect("an event").id, 1);
    let refused = client.get("?after=1&wait=60").await;
    refused.assert_error(503, 316);
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(client.page("wait=60").await.cursor, 1, "what is there needs no place");
    drop(first);
    until(AT_ONCE, "the server notices", async || {
        client.get("?after=1&wait=1").await.status == 200
    })
    .await;
}

#[actix_web::test]
async fn a_stopping_server_answers_long_polls_and_ends_streams() {
    let mut server = Server::start_with(&["--feed-followers-max=2", "--shutdown-wait-ms=600000"]);
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    client.page("wait=10").await;
    let mut events = client.events(1).await;
    assert_eq!(events.next().await.expect("where it stands").id, 1);
    let waits = async {
        loop {
            let answer = client.get("?after=1&wait=60").await;
            if answer.status != 503 {
                return answer;
            }
        }
    };
    let stop = async {
        let other = FeedClient::at(&server, "news");
        // Only a third follower is rejected.
        until(AT_ONCE, "both follow", async || other.get("?after=1&wait=1").await.status == 503)
            .await;
        server.signal("TERM");
    };
    let (answer, end, ()) = tokio::join!(waits, events.next_untimed(), stop);
    let page: Page = serde_json::from_slice(&answer.body).expect("a page is JSON");
    assert_eq!((page.updates.len(), page.cursor, end), (0, 1, None));
    assert_eq!(server.ended_within(AT_ONCE).await.code(), Some(0));
}

#[actix_web::test]
async fn raising_the_epoch_revokes_tokens_and_keeps_endpoints() {
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    assert!(server.terminate().success());
    server.restart_as(Launch::default().with(&["--feed-tokens-epoch=1"]));
    let old = FeedClient::with(&server, "news", token(&server, "news", Scopes::Read, None));
    old.get("").await.assert_error(401, 302);
    Sender::new().push(&channel.endpoint, "still there").await;
    assert_eq!(Agent::reconnect(&server, &uaid).await.take(1).await[0].body(), "still there");
}
