//! kill -9 during writes and reads: no update is lost, and no number stands for two updates.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{Events, FeedClient, Replica, Update};
use crate::harness::{AT_ONCE, KillCountdown, Launch, Server, WireServer, dynamo, until};

/// How a consumer follows a feed.
#[derive(Debug, Clone, Copy)]
enum FollowMode {
    /// Long polls with `?after=&wait=`.
    Polls,
    /// Server-sent events from `Last-Event-ID`.
    Streams,
}

#[actix_web::test]
async fn a_consumer_that_polls_ends_with_every_last_state() {
    writes_and_kills(Launch::default(), FollowMode::Polls, &[60, 7, 130, 41]).await;
}

#[actix_web::test]
async fn a_consumer_that_streams_ends_with_every_last_state() {
    writes_and_kills(Launch::default(), FollowMode::Streams, &[60, 7, 130, 41]).await;
}

#[actix_web::test]
async fn a_consumer_of_feeds_in_dynamodb_ends_with_every_last_state() {
    let wire = WireServer::start();
    let launch = dynamo::launch(&wire.url);
    writes_and_kills(launch.clone(), FollowMode::Streams, &[30, 45]).await;
    writes_and_kills(launch, FollowMode::Polls, &[20]).await;
}

/// Promised and observed updates, over all restarts of a server.
#[derive(Default)]
struct Ledger {
    /// By key: the greatest version that was answered to a write, and its value.
    promised: BTreeMap<String, (u64, String)>,
    /// The update of each number that any consumer saw.
    numbers: BTreeMap<u64, (String, u64)>,
}

/// Four writers, two of which share their keys, and a consumer. The server is killed after a number
/// of answers, repeatedly.
async fn writes_and_kills(launch: Launch, mode: FollowMode, lives: &[usize]) {
    let mut server = Server::launch(launch);
    let ledger = RefCell::<Ledger>::default();
    FeedClient::at(&server, "news").put("first", "1").await;
    // The consumer's saved replica. A crash loses everything after it.
    let mut saved = Replica::default();
    for (life, answers) in lives.iter().enumerate() {
        let countdown = KillCountdown::of(&server, *answers);
        let writers = ["a", "b", "shared", "shared"].into_iter().enumerate();
        let writers = writers.map(|(writer, name)| {
            let (client, text) =
                (FeedClient::at(&server, "news"), format!("life {life} of {writer}"));
            let (countdown, ledger) = (&countdown, &ledger);
            async move { write(&client, name, &text, ledger, countdown).await }
        });
        let client = FeedClient::at(&server, "news");
        let follow = follow(&client, mode, saved, &ledger);
        saved = tokio::join!(follow, join_all(writers)).0;
        server.crash();
    }
    let client = FeedClient::at(&server, "news");
    until(AT_ONCE, "the consumer has what a new one is given, and what was promised", async || {
        while !saved.take(client.page(&format!("after={}", saved.cursor)).await) {}
        ledger.borrow().is_kept(&saved) && saved == Replica::of(&client).await
    })
    .await;
}

/// Writes until the server is killed.
async fn write(
    client: &FeedClient,
    name: &str,
    text: &str,
    ledger: &RefCell<Ledger>,
    countdown: &KillCountdown,
) {
    for number in 0.. {
        let (key, value) = (format!("{name}/{}", number % 5), format!("{text}: {number}"));
        let Some(version) = client.try_put(&key, &value).await else { return };
        ledger.borrow_mut().promise(key, version, value);
        countdown.step();
    }
}

/// Follows the feed until the server is killed, and saves the replica now and then.
async fn follow(
    client: &FeedClient,
    mode: FollowMode,
    mut saved: Replica,
    ledger: &RefCell<Ledger>,
) -> Replica {
    let mut copy = saved.clone();
    let Some(mut reader) = Reader::behind(client, mode, copy.cursor).await else { return saved };
    for step in 0.. {
        let Some(updates) = reader.next(&mut copy).await else { break };
        ledger.borrow_mut().see(&updates);
        if step % 3 == 0 {
            saved = copy.clone();
        }
    }
    saved
}

/// A consumer that follows the feed.
enum Reader<'a> {
    Polls(&'a FeedClient),
    Streams(Events),
}

impl<'a> Reader<'a> {
    async fn behind(client: &'a FeedClient, mode: FollowMode, cursor: u64) -> Option<Self> {
        match mode {
            FollowMode::Polls => Some(Self::Polls(client)),
            FollowMode::Streams => client.try_events(cursor).await.map(Self::Streams),
        }
    }

    /// Applies the next updates; `None` if the server is down.
    async fn next(&mut self, copy: &mut Replica) -> Option<Vec<Update>> {
        match self {
            Self::Polls(client) => {
                let page = client.try_page(&format!("after={}&wait=15", copy.cursor)).await?;
                let updates = page.updates.clone();
                copy.take(page);
                Some(updates)
            }
            Self::Streams(events) => {
                let event = events.next_untimed().await?;
                event.update.clone().into_iter().for_each(|update| copy.update(update));
                copy.cursor = event.id;
                Some(event.update.into_iter().collect())
            }
        }
    }
}

impl Ledger {
    /// The server answered a write.
    fn promise(&mut self, key: String, version: u64, value: String) {
        let known = self.promised.entry(key).or_default();
        assert_ne!(known.0, version, "two writes got the same version");
        if known.0 < version {
            *known = (version, value);
        }
    }

    /// A consumer saw these updates.
    fn see(&mut self, updates: &[Update]) {
        for update in updates {
            let meaning = (update.key.clone(), update.version);
            let known = self.numbers.entry(update.feed_sync_id).or_insert(meaning.clone());
            assert_eq!(*known, meaning, "{} was given twice", update.feed_sync_id);
        }
    }

    /// Whether the replica has every key as promised, or as a later unanswered write left it.
    fn is_kept(&self, copy: &Replica) -> bool {
        self.promised.iter().all(|(key, (promised, value))| {
            let row = copy.rows.get(key).filter(|(_, version, _)| version > promised);
            row.is_some_and(|(_, version, there)| {
                *version > promised + 1 || there.as_deref() == Some(value)
            })
        })
    }
}
