//! Imports broadcasts of another service. The versions that the service lists enter. Writes of the feed `broadcasts`
//! leave.
//!
//! The service is polled in the form of Mozilla's megaphone. A version that differs from the feed's is written; a
//! broadcast that the service no longer has is kept. While the service fails, the feed keeps its versions.
//!
//! - [`broadcast_source`]: the client of the service, on a thread of its own that a stopping server does not wait for.
//! - [`token_file`]: the bearer token of its requests.
//! - [`sync_state`]: the versions that are still to be written.

pub mod broadcast_source;
pub mod sync_state;
pub mod token_file;

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::time::Duration;

use actix::spawn;
use actix_web::web::Data;
use actors::Feeds;
use slog::{Logger, debug, info, warn};
use state_machine::Span;
use state_machine::backoff::Backoff;
use state_machine::feed::{FeedKey, FeedName, FeedValue, WriteResult};
use state_machine::store::PageLimit;
use storage::StoreError;
use tokio::time::sleep;
use url::Url;

use crate::push::app::SharedState;
use crate::settings::{PublicUrl, Settings};
use crate::system::https_client::is_private;
use broadcast_source::{Source, SourceError, Versions};
use sync_state::SyncState;
use token_file::TokenFileError;

/// The size of one page of the feed.
const PAGE: PageLimit = PageLimit { rows: 500, bytes: 1024 * 1024 };

/// The longest wait after failures, unless `broadcast_source_poll_s` is longer. Waits double with each failure.
const RETRY_MAX: Span = Span::from_secs(600);

/// Why a server that imports broadcasts does not start.
#[derive(Debug, thiserror::Error)]
pub enum ImporterError {
    #[error(
        "broadcast_source_token_file is set, and broadcast_source_url is not: set both or none"
    )]
    NoSource,
    /// The token would be readable on the network.
    #[error(
        "broadcast_source_url = `{0}` is not encrypted, and broadcast_source_token_file is set: a token is sent only over \
         https:, or to this machine"
    )]
    PlainToken(String),
    #[error("broadcast_source_token_file: {0}")]
    Token(#[from] TokenFileError),
    #[error("broadcast_source_url: {0}")]
    Source(#[from] SourceError),
}

/// The service that the settings name, if they name one. No request is sent yet.
pub fn source(settings: &Settings) -> Result<Option<Source>, ImporterError> {
    let token_file = settings.broadcast_source_token_file.as_deref();
    let Some(origin) = &settings.broadcast_source_url else {
        return token_file.map_or(Ok(None), |_| Err(ImporterError::NoSource));
    };
    if token_file.is_some() && !Url::parse(origin.as_str()).is_ok_and(|url| is_private(&url)) {
        return Err(ImporterError::PlainToken(origin.as_str().to_owned()));
    }
    token_file.map(token_file::read).transpose()?;
    Ok(Some(Source::at(origin.as_str(), token_file)?))
}

/// Starts the import, which ends with the process or its store. The judge of the server hears why a poll failed.
pub fn start(source: Source, settings: &Settings, common: &Data<SharedState>) {
    let origin = settings.broadcast_source_url.as_ref().map_or("", PublicUrl::as_str);
    let judge = Data::clone(common);
    let importer = Importer {
        source,
        feeds: common.feeds.clone(),
        value_bytes_max: FeedName::broadcasts().value_bytes_max(settings.feed_value_bytes_max),
        every: Span::from_secs(settings.broadcast_source_poll_s),
        sync_state: SyncState::default(),
        health: SyncHealth::Well,
        judged: Box::new(move |failure| *judge.judge.source_failure.lock() = failure),
        log: common.log.new(slog::o!("source" => origin.to_owned())),
    };
    spawn(importer.run());
}

struct Importer {
    source: Source,
    feeds: Feeds,
    value_bytes_max: usize,
    every: Span,
    sync_state: SyncState,
    health: SyncHealth,
    judged: Box<dyn Fn(Option<String>)>,
    log: Logger,
}

/// The result of the last poll, with the reason of a failure. Only a change of the kind is logged.
enum SyncHealth {
    Well,
    Partly(String),
    Failing(String),
}

/// Why a poll imported nothing.
#[derive(Debug, thiserror::Error)]
enum ImportError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
}

impl Importer {
    async fn run(mut self) {
        let mut backoff = Backoff::new(self.every, self.every.max(RETRY_MAX));
        loop {
            let health = match self.import().await {
                Ok(health) => health,
                Err(ImportError::Store(StoreError::Closed)) => return,
                Err(error) => SyncHealth::Failing(error.to_string()),
            };
            let failure = match &health {
                SyncHealth::Well | SyncHealth::Partly(_) => None,
                SyncHealth::Failing(why) => Some(why.clone()),
            };
            if failure.is_none() {
                backoff.reset();
            }
            (self.judged)(failure);
            self.log_change(health);
            sleep(Duration::from_millis(backoff.next().0)).await;
        }
    }

    /// Polls once and writes the versions that differ.
    async fn import(&mut self) -> Result<SyncHealth, ImportError> {
        let answer = self.source.ask().await?;
        let (versions, mut problem) = accepted(answer, self.value_bytes_max);
        self.catch_up().await?;
        for (id, version) in self.sync_state.due(&versions) {
            let written = self.feeds.write(FeedName::broadcasts(), id.clone(), version.clone());
            match written.await? {
                WriteResult::Done(_) => {
                    debug!(self.log, "imported a broadcast"; "id" => %id);
                    self.sync_state.wrote(id, version);
                }
                WriteResult::TooManyKeys => problem = Some(too_many_keys(&self.feeds)),
            }
        }
        Ok(problem.map_or(SyncHealth::Well, SyncHealth::Partly))
    }

    /// Reads the feed up to its head.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        loop {
            let (feed, after) = (FeedName::broadcasts(), self.sync_state.cursor());
            let Some(page) = self.feeds.store().fetch_feed(feed, after, PAGE).await? else {
                return Ok(());
            };
            if page.is_too_late(after) {
                self.sync_state = SyncState::default();
                continue;
            }
            let is_last = page.is_last();
            self.sync_state.apply(page);
            if is_last {
                return Ok(());
            }
        }
    }

    fn log_change(&mut self, health: SyncHealth) {
        if discriminant(&health) == discriminant(&self.health) {
            return;
        }
        match &health {
            SyncHealth::Well => info!(self.log, "the import of broadcasts works again"),
            SyncHealth::Partly(why) => {
                warn!(self.log, "cannot import all broadcasts"; "error" => why);
            }
            SyncHealth::Failing(why) => {
                warn!(self.log, "cannot import broadcasts, will try again"; "error" => why);
            }
        }
        self.health = health;
    }
}

/// The versions that the feed accepts, and why others are refused.
fn accepted(
    answer: Versions,
    value_bytes_max: usize,
) -> (BTreeMap<FeedKey, FeedValue>, Option<String>) {
    let (mut versions, mut unusable) = (BTreeMap::new(), 0_usize);
    for (id, version) in answer {
        let version = Some(version).filter(|version| version.len() <= value_bytes_max);
        let version = version.and_then(|version| FeedValue::parse(&version).ok());
        let id = FeedKey::parse(&id).ok().filter(|id| FeedName::broadcasts().may_have(id));
        match id.zip(version) {
            Some((id, version)) => drop(versions.insert(id, version)),
            None => unusable += 1,
        }
    }
    let problem = (unusable > 0).then(|| {
        format!(
            "{unusable} of its broadcasts have an id that is no key of a feed, or a version longer than \
             {value_bytes_max} bytes"
        )
    });
    (versions, problem)
}

fn too_many_keys(feeds: &Feeds) -> String {
    let keys_max = FeedName::broadcasts().keys_max(feeds.limits().keys_max);
    format!("the feed has {keys_max} keys, with those that were deleted, and takes no other")
}

#[cfg(test)]
mod tests {
    use actors::{Clock, FeedLimits};
    use slog::{Discard, o};
    use state_machine::Time;
    use state_machine::feed::{ConsumerLimits, PublisherLimits};
    use std::sync::Arc;
    use storage::FeedTables;
    use storage_sqlite::{Embedded, EmbeddedOptions};
    use unkind_store::UnkindStore;

    use super::*;

    fn answer(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(id, version)| ((*id).to_owned(), (*version).to_owned())).collect()
    }

    #[test]
    fn a_token_is_sent_over_tls_or_to_this_machine() {
        for (origin, expected) in [
            ("https://source.example", true),
            ("http://localhost:8080", true),
            ("http://127.0.0.2:8080", true),
            ("http://[::1]:8080", true),
            ("http://source.example", false),
            ("http://localhost.example", false),
            ("http://10.0.0.1", false),
            ("http://[fd00::1]", false),
        ] {
            assert_eq!(is_private(&origin.parse().unwrap()), expected, "{origin}");
        }
    }

    #[test]
    fn broadcasts_that_a_feed_refuses_keep_no_others_out() {
        let (versions, problem) = accepted(answer(&[("a/b", "1"), ("c", "12345")]), 5);
        assert_eq!((versions.len(), problem), (2, None));
        let long = "k".repeat(257);
        let (versions, problem) = accepted(
            answer(&[("a/b", "1"), ("", "1"), ("c", "123456"), (&long, "1"), ("errors", "1")]),
            5,
        );
        assert_eq!(versions.keys().map(FeedKey::as_str).collect::<Vec<_>>(), ["a/b"]);
        assert!(problem.unwrap().starts_with("4 of its broadcasts have an id that is no key"));
    }

    fn limits() -> FeedLimits {
        FeedLimits {
            tombstones_keep: None,
            publisher: PublisherLimits { batch_max: 100, retry: Span(10), poll: Span(1000) },
            consumer: ConsumerLimits { page: PAGE, retry: Span(10) },
            feeds_open_max: 100,
            keys_max: 100,
            followers_max: 2,
            sweep: Span::from_secs(60),
            mailbox_max: 100,
        }
    }

    /// Pages of the store have one update.
    #[actix_web::test]
    async fn what_is_published_on_any_page_is_not_due_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), &EmbeddedOptions::new(64)).unwrap();
        let store = Arc::new(UnkindStore::with_short_pages(Arc::new(store)));
        let log = Logger::root(Discard, o!());
        let mut importer = Importer {
            source: Source::at("http://127.0.0.1:1", None).unwrap(),
            feeds: Feeds::start(store.clone(), Clock::starting_at(Time(1)), limits(), log.clone()),
            value_bytes_max: 100,
            every: Span(1),
            sync_state: SyncState::default(),
            health: SyncHealth::Well,
            judged: Box::new(|_| ()),
            log,
        };
        let version = FeedValue::parse("1").unwrap();
        let ids = (0..5).map(|number| FeedKey::parse(&format!("news/{number}")).unwrap());
        let versions: BTreeMap<_, _> = ids.map(|id| (id, version.clone())).collect();
        for (id, version) in &versions {
            let feed = FeedName::broadcasts();
            store.write_key(feed, id.clone(), version.clone(), 100).await.unwrap();
        }
        let mut after = None;
        loop {
            let published = store.publish(FeedName::broadcasts(), after, 100).await.unwrap();
            after = published.and_then(|published| published.next);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(importer.sync_state.due(&versions).len(), 5);
        importer.catch_up().await.unwrap();
        assert_eq!(importer.sync_state.due(&versions), []);
    }
}
