//! Periodic work of a server, until its store is closed or the process ends.
//!
//! Each minute: message tables ahead of the month, corrections of the clock, the floor of message ids, the space of the disk
//! the count of waiting messages and what is wrong. At intervals of their own: expired messages, their receipts, and the reports of limits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::spawn;
use actix_web::web::Data;
use actors::Clock;
use slog::{Logger, debug, info, warn};
use state_machine::log_limiter::LogLimiter;
use state_machine::{Span, Time};
use storage::maintenance::WaitingPage;
use storage::{ExpiredReceipts, SlowWrites, StoreAdmin, StoreError};
use tokio::time::{sleep, timeout};

use super::disk_watch::DiskWatch;
use super::message_id_floor::{IdFloor, RAISE_EVERY};
use crate::limits::Limits;
use crate::push::app::{AppState, MessageIds, SharedState};
use crate::push::judge::{Check, Finding};
use crate::settings::Settings;
use crate::settings::store::message_tables::MonthTables;
use crate::system::clock::SystemClock;

/// Time between two counts of the waiting messages, which metrics show.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// Time between two looks at what is wrong, which are logged.
const JUDGE_EVERY: Duration = Duration::from_secs(60);

/// Maximum time for the store to name its risks: a store that hangs is judged too.
const RISKS_WAIT: Duration = Duration::from_secs(2);

/// Period in which the limits report what they refused.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Minimum time between two log lines of one kind of failure.
const LOG_EVERY: Span = Span::from_secs(60);

/// Smallest correction of the system clock that is followed.
const CORRECTION_MIN: Span = Span::from_secs(1);

/// What is kept up to date in the store.
pub(super) struct Upkeep {
    pub(super) tables: MonthTables,
    /// None of a node that gives no message ids.
    pub(super) id_floor: Option<IdFloor>,
}

impl Upkeep {
    pub(super) fn message_ids(&self) -> MessageIds {
        self.id_floor.as_ref().map_or_else(|| MessageIds::after(Time(0)), IdFloor::ids)
    }
}

pub(super) fn start(
    settings: &Settings,
    node: &AppState,
    store: &Arc<dyn StoreAdmin>,
    system_clock: SystemClock,
    upkeep: Upkeep,
) {
    let common = || Data::clone(&node.common);
    report_refusals(Arc::clone(&node.common.limits));
    spawn(keep_up(common(), system_clock, upkeep));
    if settings.expiry_interval_s > 0 {
        let interval = Duration::from_secs(settings.expiry_interval_s);
        spawn(delete_expired(interval, Arc::clone(store), common()));
    }
    if node.endpoints.is_some() {
        let interval = Duration::from_secs(settings.feed_sweep_s);
        spawn(write_receipts(interval, Arc::clone(store), common()));
    }
    spawn(count_waiting(Arc::clone(store), common()));
    spawn(watch(Arc::clone(store), node.clone()));
}

/// The work of each minute.
async fn keep_up(common: Data<SharedState>, system_clock: SystemClock, upkeep: Upkeep) {
    let SharedState { store, clock, log, .. } = &**common;
    let Upkeep { mut tables, id_floor } = upkeep;
    let mut disk_watch = DiskWatch::default();
    loop {
        sleep(RAISE_EVERY).await;
        follow(clock, system_clock.now(), log);
        if let Some(id_floor) = &id_floor {
            id_floor.raise(clock.now(), log).await;
        }
        if let Some(SlowWrites { count, longest_ms }) = store.take_slow_writes() {
            warn!(log, "the disk is slow, writes waited for it"; "commits" => count, "longest_ms" => longest_ms);
        }
        if let Some(disk) = store.state().disk {
            disk_watch.look(disk, log);
        }
        if let Err(error) = make_tables(&common, &mut tables).await {
            warn!(log, "cannot create the message tables, retrying"; "error" => %error);
        }
    }
}

/// Creates the tables of the months, and tells the judge which are missing.
pub(super) async fn make_tables(
    SharedState { store, clock, judge, .. }: &SharedState,
    tables: &mut MonthTables,
) -> Result<(), StoreError> {
    let made = tables.make(&**store, clock.now()).await;
    judge.missing_months.lock().clone_from(tables.missing());
    made
}

/// Logs what begins to be wrong, and what is well again.
async fn watch(store: Arc<dyn StoreAdmin>, node: AppState) {
    let SharedState { judge, log, .. } = &**node.common;
    let mut known = Vec::new();
    loop {
        match timeout(RISKS_WAIT, store.risks()).await {
            Ok(Ok(risks)) => *judge.risks.lock() = risks,
            Ok(Err(StoreError::Closed)) => return,
            // The last answer stays. The check of the store tells that it fails.
            Ok(Err(_)) | Err(_) => {}
        }
        sleep(JUDGE_EVERY).await;
        let findings = node.judge().await.findings;
        for finding in &findings {
            let Finding { check, found, remedy, .. } = finding;
            if !known.contains(check) {
                warn!(log, "a check found something wrong"; "check" => check.name(), "found" => found,
                    "error" => judge.whole_reason(finding), "remedy" => &**remedy);
            }
        }
        let found: Vec<_> = findings.iter().map(|finding| finding.check).collect();
        for check in known.iter().filter(|check: &&Check| !found.contains(check)) {
            info!(log, "a check finds nothing wrong any more"; "check" => check.name());
        }
        known = found;
    }
}

/// Deletes expired messages of all user agents.
async fn delete_expired(interval: Duration, store: Arc<dyn StoreAdmin>, common: Data<SharedState>) {
    let mut log_limiter = LogLimiter::new(LOG_EVERY);
    loop {
        sleep(interval).await;
        match store.delete_expired(common.clock.now()).await {
            Ok(0) => {}
            Ok(messages) => {
                common.messages_expired.fetch_add(messages, Ordering::Relaxed);
                debug!(common.log, "deleted expired messages"; "messages" => messages);
            }
            Err(StoreError::Closed) => return,
            Err(error) => {
                if let Some(suppressed) = log_limiter.allow(common.clock.now()) {
                    warn!(common.log, "cannot delete expired messages, retrying";
                        "error" => %error, "failures" => suppressed + 1);
                }
            }
        }
    }
}

/// Writes the receipts of expired messages, and removes receipt subscriptions that have ended. Every node with endpoints
/// does so: a receipt is written once.
async fn write_receipts(interval: Duration, store: Arc<dyn StoreAdmin>, common: Data<SharedState>) {
    let mut log_limiter = LogLimiter::new(LOG_EVERY);
    loop {
        let written = expire_receipts(&*store, &common.clock, |expired| {
            common.feeds.publish(&expired.subscriptions);
            if expired.receipts + expired.ended > 0 {
                debug!(common.log, "messages with receipts have expired";
                    "receipts" => expired.receipts, "subscriptions_ended" => expired.ended);
            }
        });
        match written.await {
            Ok(()) => {}
            Err(StoreError::Closed) => return,
            Err(error) => {
                if let Some(suppressed) = log_limiter.allow(common.clock.now()) {
                    warn!(common.log, "cannot write the receipts of expired messages, retrying";
                        "error" => %error, "failures" => suppressed + 1);
                }
            }
        }
        sleep(interval).await;
    }
}

/// Writes the receipts that are due, a page at a time. Passes each page to `written`.
pub(super) async fn expire_receipts(
    store: &dyn StoreAdmin,
    clock: &Clock,
    mut written: impl FnMut(ExpiredReceipts),
) -> Result<(), StoreError> {
    loop {
        let expired = store.expire_receipts(clock.now()).await?;
        let is_more = expired.is_more;
        written(expired);
        if !is_more {
            return Ok(());
        }
    }
}

/// Counts the messages that wait in the store. Of an engine that cannot count, nothing is known. A count takes about a
/// microsecond for each user agent for which messages wait.
async fn count_waiting(store: Arc<dyn StoreAdmin>, common: Data<SharedState>) {
    loop {
        match waiting(&*store).await {
            Ok(counted) => {
                *common.waiting.lock() = Some(counted);
            }
            Err(StoreError::Closed | StoreError::Unsupported(_)) => return,
            Err(error) => {
                warn!(common.log, "cannot count the waiting messages, retrying"; "error" => %error);
            }
        }
        sleep(COUNT_EVERY).await;
    }
}

/// The waiting messages of all months.
pub(super) async fn waiting(store: &dyn StoreAdmin) -> Result<WaitingPage, StoreError> {
    let mut all = WaitingPage::default();
    for month in store.months().await? {
        let mut after = None;
        loop {
            let page = store.waiting_page(month, after).await?;
            (all.messages, all.bytes) = (all.messages + page.messages, all.bytes + page.bytes);
            after = page.next;
            if after.is_none() {
                break;
            }
            // Each page is read on this thread.
            tokio::task::yield_now().await;
        }
    }
    Ok(all)
}

/// Logs the rest of a flood that limits refused. Runs until the process ends.
fn report_refusals(limits: Arc<Limits>) {
    spawn(async move {
        loop {
            sleep(REPORT_EVERY).await;
            limits.report();
        }
    });
}

/// The server's clock advances by itself; when the system clock was set, it is set too.
fn follow(clock: &Clock, unix_now: Time, log: &Logger) {
    let shown = clock.of_machine();
    let off = shown.since(unix_now).max(unix_now.since(shown));
    if off > CORRECTION_MIN {
        info!(log, "the system clock was set, following it"; "off_ms" => off.0);
        clock.set(unix_now);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{LocalSet, yield_now};
    use tokio::time::advance;

    use state_machine::feed::{FeedKey, FeedName};
    use state_machine::{Chid, Message, MessageId, Month, ReceiptRequest};
    use storage::ExpectedReceipt;

    use super::*;
    use crate::command::fixture::{Fixture, NOW, uaid};
    use crate::system::telemetry::fixture::Log;

    /// The store of a fixture has empty pages, and pages of one row.
    #[tokio::test]
    async fn messages_of_all_pages_of_all_months_are_counted() {
        let fixture = Fixture::with(&["2026_10", "2026_11"]).await;
        let store = &*fixture.context.store;
        for (number, text) in [(1, "2026_10"), (2, "2026_11"), (3, "2026_11")] {
            fixture.channel_of(number, text).await;
            let month: Month = text.parse().unwrap();
            let id = MessageId::from_uuid_v7(u128::from(number), false);
            let message = Message::new(id, Chid([1; 16]), NOW, Span(u64::MAX));
            store.store_message(uaid(number), month, message).await.unwrap();
        }
        assert_eq!(waiting(store).await.unwrap().messages, 3);
    }

    #[tokio::test]
    async fn all_receipts_that_are_due_are_written_before_the_next_interval() {
        let fixture = Fixture::with_short_pages(&[]).await;
        let store = &*fixture.context.store;
        let subscription = FeedName::receipts(Time(u64::MAX), 7);
        // More than one page of the store.
        for number in 0..150 {
            let key = FeedKey::parse(&number.to_string()).unwrap();
            let request = ReceiptRequest { subscription: subscription.clone(), key };
            let expected = ExpectedReceipt { request, deadline: NOW };
            assert!(store.expect_receipt(expected, 1000).await.unwrap());
        }
        let (clock, mut receipts) = (Clock::starting_at(NOW), 0);
        expire_receipts(store, &clock, |expired| receipts += expired.receipts).await.unwrap();
        assert_eq!(receipts, 150);
    }

    #[tokio::test(start_paused = true)]
    async fn a_correction_of_more_than_a_second_is_followed_once_in_both_directions() {
        let (logger, mut log) = Log::new();
        let clock = Clock::starting_at(NOW);
        for (unix_now, shown, lines) in [
            (NOW + Span(1000), NOW, 0),
            (NOW + Span(1001), NOW + Span(1001), 1),
            (NOW, NOW, 1),
            (NOW, NOW, 0),
        ] {
            follow(&clock, unix_now, &logger);
            assert_eq!((clock.now(), log.read().count()), (shown, lines), "{unix_now:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_flood_is_logged_once_without_a_further_refusal() {
        let (clock, (logger, mut log)) = (Clock::starting_at(Time(1_000_000)), Log::new());
        let settings = Settings { connects_per_second_max: 1, ..Settings::default() };
        let limits = Limits::new(&settings, clock, logger);
        let agent = limits.of_agent(None, None).expect("no address, no limit");
        let refused = (0..10).filter(|_| agent.hello(None).is_err()).count();
        assert_eq!((refused, log.read().count()), (9, 1));
        let local = LocalSet::new();
        let watched = local.run_until(async {
            report_refusals(limits);
            yield_now().await;
            for _ in 0..5 {
                advance(REPORT_EVERY).await;
                yield_now().await;
            }
        });
        watched.await;
        assert_eq!(log.read().count(), 1);
    }
}
