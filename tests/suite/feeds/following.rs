//! Writers and readers when all is well.

use std::collections::BTreeSet;
use std::time::Duration;

use awc::http::Method;
use futures_util::future::join_all;
use kalends::feeds::http::tokens::Scopes;

use super::desk::{token, version};
use super::{Copy, Desk, Page};
use crate::harness::{AT_ONCE, Agent, Launch, Sender, Server, until, within};

#[actix_web::test]
async fn the_update_of_the_seeds_time_table_is_not_lost() {
    let server = Server::start();
    let desk = Desk::at(&server, "kv");
    assert_eq!(desk.put("fred", "bob").await, 1);
    let bob = desk.page("after=&wait=10").await;
    assert_eq!((bob.updates[0].feed_sync_id, bob.updates[0].version, bob.cursor), (1, 2, 1));
    assert_eq!(desk.put("fred", "jim").await, 3);
    let jim = desk.page(&format!("after={}&wait=10", bob.cursor)).await;
    assert_eq!((jim.updates[0].feed_sync_id, jim.updates[0].version), (2, 4));
    assert_eq!(jim.updates[0].value.as_deref(), Some("jim"));
}

#[actix_web::test]
async fn whoever_waits_is_woken_by_a_write_a_republish_and_a_delete() {
    let server = Server::start();
    let (writer, reader) = (Desk::at(&server, "news"), Desk::at(&server, "news"));
    writer.put("a/b%20c", "1").await;
    let mut copy = Copy::default();
    copy.take(reader.page("wait=10").await);
    for (number, path, method) in [
        (2, "/a/b%20c", Method::PUT),
        (3, "/a%2Fb%20c/republish", Method::POST),
        (4, "/a/b%20c", Method::DELETE),
    ] {
        let query = format!("after={}&wait=60", number - 1);
        let change = writer.ask(method, path, "2");
        let (page, answer) = tokio::join!(reader.page(&query), change);
        assert_eq!((answer.status, version(&answer)), (200, 2 * number - 1));
        assert!(copy.take(page));
        assert_eq!(copy.cursor, number);
    }
    assert_eq!(copy.rows["a/b c"], (4, 8, None));
}

#[actix_web::test]
async fn a_wait_that_is_over_brings_nothing_and_the_same_cursor() {
    let server = Server::start();
    let desk = Desk::at(&server, "news");
    desk.put("a", "1").await;
    desk.page("wait=10").await;
    let page = within(AT_ONCE, "the wait ends", desk.page("after=1&wait=1")).await;
    assert_eq!((page.updates.len(), page.cursor, page.head), (0, 1, 1));
}

#[actix_web::test]
async fn two_writers_of_one_key_are_told_their_versions_and_the_last_one_wins() {
    const WRITES: usize = 60;
    let server = Server::start();
    let reader = Desk::at(&server, "news");
    reader.put("first", "0").await;
    let mut events = reader.events(0).await;
    let writers = ["one", "other"].map(async |name| {
        let desk = Desk::at(&server, "news");
        let mut told = Vec::new();
        for number in 0..WRITES {
            let value = format!("{name} {number}");
            told.push((desk.put("key", &value).await, value));
        }
        assert!(told.is_sorted(), "versions grow: {told:?}");
        told
    });
    let told = join_all(writers).await.concat();
    let versions: BTreeSet<_> = told.iter().map(|(version, _)| version).collect();
    assert_eq!(versions.len(), 2 * WRITES, "each write has a version of its own");

    let (last, value) = told.iter().max().expect("there were writes");
    let mut copy = Copy::default();
    while copy.rows.get("key").is_none_or(|(_, version, _)| version <= last) {
        let event = events.next().await.expect("the stream goes on");
        event.update.into_iter().for_each(|update| copy.update(update));
    }
    assert_eq!(copy.value("key"), Some(value.as_str()));
    assert_eq!(copy, Copy::of(&reader).await);
}

#[actix_web::test]
async fn many_who_follow_see_the_same_and_each_to_the_end() {
    const KEYS: usize = 100;
    let server = Server::start_with(&["--feed-page-max=7", "--feed-batch-max=3"]);
    let desk = Desk::at(&server, "news");
    desk.put("0", "x").await;
    let writes = async {
        join_all((1..KEYS).map(async |key| desk.put(&key.to_string(), "x").await)).await;
    };
    let readers = (0..10).map(async |number| {
        let desk = Desk::at(&server, "news");
        let mut copy = Copy::default();
        if number % 2 == 0 {
            let mut events = desk.events(0).await;
            while copy.rows.len() < KEYS {
                let event = events.next().await.expect("the stream goes on");
                event.update.into_iter().for_each(|update| copy.update(update));
            }
        } else {
            while copy.rows.len() < KEYS {
                let page = desk.page(&format!("after={}&wait=10", copy.cursor)).await;
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
    let desk = Desk::at(&server, "broadcasts");
    assert_eq!(Copy::of(&desk).await, Copy::default());
    let mut events = desk.events(0).await;
    let write = desk.put("remote-settings/monitor_changes", "\"v1\"");
    let (page, event, version) = tokio::join!(desk.page("after=0&wait=60"), events.next(), write);
    assert_eq!((version, page.cursor), (1, 1));
    assert_eq!(event.expect("the stream goes on").update, Some(page.updates[0].clone()));
    assert_eq!(page.updates[0].key, "remote-settings/monitor_changes");
}

#[actix_web::test]
async fn a_reader_that_is_gone_gives_its_place_to_another() {
    let server = Server::start_with(&["--feed-followers-max=1", "--feed-keepalive-s=1"]);
    let desk = Desk::at(&server, "news");
    desk.put("a", "1").await;
    let mut first = desk.events(0).await;
    assert_eq!(first.next().await.expect("an event").id, 1);
    let refused = desk.get("?after=1&wait=60").await;
    refused.refused(503, 316);
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(desk.page("wait=60").await.cursor, 1, "what is there needs no place");
    drop(first);
    until(AT_ONCE, "the server notices", async || desk.get("?after=1&wait=1").await.status == 200)
        .await;
}

#[actix_web::test]
async fn a_server_that_stops_answers_who_waits_and_ends_streams() {
    let mut server = Server::start_with(&["--feed-followers-max=2"]);
    let desk = Desk::at(&server, "news");
    desk.put("a", "1").await;
    desk.page("wait=10").await;
    let mut events = desk.events(1).await;
    assert_eq!(events.next().await.expect("where it stands").id, 1);
    let waits = async {
        loop {
            let answer = desk.get("?after=1&wait=60").await;
            if answer.status != 503 {
                return answer;
            }
        }
    };
    let stop = async {
        let other = Desk::at(&server, "news");
        // It is refused once both have their places, and no sooner.
        until(AT_ONCE, "both follow", async || other.get("?after=1&wait=1").await.status == 503)
            .await;
        server.signal("TERM");
    };
    let (answer, end, ()) = tokio::join!(waits, events.next_ever(), stop);
    let page: Page = serde_json::from_slice(&answer.body).expect("a page is JSON");
    assert_eq!((page.updates.len(), page.cursor, end), (0, 1, None));
    assert_eq!(server.ended_within(Duration::from_secs(5)).await.code(), Some(0));
}

#[actix_web::test]
async fn raising_the_epoch_revokes_all_tokens_and_no_endpoint() {
    let mut server = Server::start();
    let (uaid, channel) = Agent::absent(&server).await;
    let desk = Desk::at(&server, "news");
    desk.put("a", "1").await;
    assert!(server.terminate().success());
    server.restart_as(Launch::default().with(&["--feed-tokens-epoch=1"]));
    let old = Desk::with(&server, "news", token(&server, "news", Scopes::Read, None));
    old.get("").await.refused(401, 302);
    Sender::new().push(&channel.endpoint, "still there").await;
    assert_eq!(Agent::back(&server, &uaid).await.take(1).await[0].body(), "still there");
}
