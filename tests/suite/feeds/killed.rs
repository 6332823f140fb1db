//! kill -9 while some write and others follow: no update is lost, no number means two things.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{Copy, Desk, Events, Update};
use crate::harness::{AT_ONCE, Fuse, Launch, Server, WireServer, dynamo, until};

/// How a consumer follows.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// `?after=&wait=`
    Polls,
    /// As events.
    Streams,
}

#[actix_web::test]
async fn a_consumer_that_polls_ends_with_every_last_state() {
    writes_and_kills(Launch::default(), Way::Polls, &[60, 7, 130, 41]).await;
}

#[actix_web::test]
async fn a_consumer_that_streams_ends_with_every_last_state() {
    writes_and_kills(Launch::default(), Way::Streams, &[60, 7, 130, 41]).await;
}

#[actix_web::test]
async fn a_consumer_of_feeds_in_dynamodb_ends_with_every_last_state() {
    let wire = WireServer::start();
    let launch = dynamo::launch(&wire.url);
    writes_and_kills(launch.clone(), Way::Streams, &[30, 45]).await;
    writes_and_kills(launch, Way::Polls, &[20]).await;
}

/// What was promised and seen, over all lives of a server.
#[derive(Default)]
struct Ledger {
    /// By key: the greatest version that a write was told, and what it wrote.
    promised: BTreeMap<String, (u64, String)>,
    /// What each number meant to whoever saw it.
    numbers: BTreeMap<u64, (String, u64)>,
}

/// Four writers, two of which share their keys, and a consumer, with a server that is killed after so many answers,
/// again and again.
async fn writes_and_kills(launch: Launch, way: Way, lives: &[usize]) {
    let mut server = Server::launch(launch);
    let ledger = RefCell::<Ledger>::default();
    Desk::at(&server, "news").put("first", "1").await;
    // What the consumer has saved. A crash costs it all that came later.
    let mut saved = Copy::default();
    for (life, answers) in lives.iter().enumerate() {
        let fuse = Fuse::of(&server, *answers);
        let writers = ["a", "b", "shared", "shared"].into_iter().enumerate();
        let writers = writers.map(|(writer, name)| {
            let (desk, text) = (Desk::at(&server, "news"), format!("life {life} of {writer}"));
            let (fuse, ledger) = (&fuse, &ledger);
            async move { write(&desk, name, &text, ledger, fuse).await }
        });
        let desk = Desk::at(&server, "news");
        let follow = follow(&desk, way, saved, &ledger);
        saved = tokio::join!(follow, join_all(writers)).0;
        server.kill();
        server.restart();
    }
    let desk = Desk::at(&server, "news");
    until(AT_ONCE, "the consumer has what a new one is given, and what was promised", async || {
        while !saved.take(desk.page(&format!("after={}", saved.cursor)).await) {}
        ledger.borrow().is_kept(&saved) && saved == Copy::of(&desk).await
    })
    .await;
}

/// Writes until the server is gone.
async fn write(desk: &Desk, name: &str, text: &str, ledger: &RefCell<Ledger>, fuse: &Fuse) {
    for number in 0.. {
        let (key, value) = (format!("{name}/{}", number % 5), format!("{text}: {number}"));
        let Some(version) = desk.try_put(&key, &value).await else { return };
        ledger.borrow_mut().promise(key, version, value);
        fuse.burn();
    }
}

/// Follows until the server is gone, and saves some of what it sees, then and when.
async fn follow(desk: &Desk, way: Way, mut saved: Copy, ledger: &RefCell<Ledger>) -> Copy {
    let mut copy = saved.clone();
    let Some(mut reader) = Reader::behind(desk, way, copy.cursor).await else { return saved };
    for step in 0.. {
        let Some(updates) = reader.next(&mut copy).await else { break };
        ledger.borrow_mut().see(&updates);
        if step % 3 == 0 {
            saved = copy.clone();
        }
    }
    saved
}

/// One that follows.
enum Reader<'a> {
    Polls(&'a Desk),
    Streams(Events),
}

impl<'a> Reader<'a> {
    async fn behind(desk: &'a Desk, way: Way, cursor: u64) -> Option<Self> {
        match way {
            Way::Polls => Some(Self::Polls(desk)),
            Way::Streams => desk.try_events(cursor).await.map(Self::Streams),
        }
    }

    /// Takes in what comes next; none where the server is gone.
    async fn next(&mut self, copy: &mut Copy) -> Option<Vec<Update>> {
        match self {
            Self::Polls(desk) => {
                let page = desk.try_page(&format!("after={}&wait=15", copy.cursor)).await?;
                let updates = page.updates.clone();
                copy.take(page);
                Some(updates)
            }
            Self::Streams(events) => {
                let event = events.next_ever().await?;
                event.update.clone().into_iter().for_each(|update| copy.update(update));
                copy.cursor = event.id;
                Some(event.update.into_iter().collect())
            }
        }
    }
}

impl Ledger {
    /// A write was answered.
    fn promise(&mut self, key: String, version: u64, value: String) {
        let known = self.promised.entry(key).or_default();
        assert_ne!(known.0, version, "two writes were told one version");
        if known.0 < version {
            *known = (version, value);
        }
    }

    /// Updates were seen.
    fn see(&mut self, updates: &[Update]) {
        for update in updates {
            let meaning = (update.key.clone(), update.version);
            let known = self.numbers.entry(update.feed_sync_id).or_insert(meaning.clone());
            assert_eq!(*known, meaning, "{} was given twice", update.feed_sync_id);
        }
    }

    /// Whether a copy has every key as it was promised, or as a later write left it that was not answered.
    fn is_kept(&self, copy: &Copy) -> bool {
        self.promised.iter().all(|(key, (promised, value))| {
            let row = copy.rows.get(key).filter(|(_, version, _)| version > promised);
            row.is_some_and(|(_, version, there)| {
                *version > promised + 1 || there.as_deref() == Some(value)
            })
        })
    }
}
