//! A store that keeps its contract in the least convenient way, around a real one, for tests of all callers.
//!
//! - **Pages**: the first one of each reading is empty and has a cursor. A page with a limit has one row.
//! - **Failures** ([`UnkindStore::failing_once`]): the first call of each method fails. Half of the methods have done
//!   nothing then, and the others all of it.
//! - **Repeats** ([`UnkindStore::repeating`]): each write is executed twice, as after a lost answer.
//! - **Slowness** ([`UnkindStore::slow`]): each answer comes after [`SLOWNESS`].

use std::collections::{BTreeSet, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::TryFutureExt;
use parking_lot::Mutex;
use state_machine::feed::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedSyncId, FeedValue, Forgotten, PublishResult,
    Version, WriteResult,
};
use state_machine::{
    BridgeRecipient, Chid, LastConnect, Message, MessageKey, Month, RouterRecord, Time, Uaid,
};
use storage::copied_rows::{CopiedPage, CopiedRow};
use storage::feeds::FeedState;
use storage::maintenance::{
    CopyProgress, InactiveUsers, MarkedUser, MonthRange, PreflightCheck, RecordsByMonth,
    RepairClock, SnapshotStep, Table, TableStatus, Throughput, WaitingPage,
};
use storage::{
    BridgedRegistration, Cursor, EngineState, ExpectedReceipt, ExpiredReceipts, FeedTables,
    Notification, NotificationTable, Page, PageLimit, ReceiptTables, RegisterResult, SlowWrites,
    Store, StoreAdmin, StoreAnswer, StoreError, StoreFuture, StoreOp, Stored,
};
use tokio::time::sleep;

/// The cursor of an empty first page.
const BEGINNING: &str = "unkind";

/// How long an answer of [`UnkindStore::slow`] takes, beside its work.
pub const SLOWNESS: Duration = Duration::from_millis(5);

pub struct UnkindStore {
    store: Arc<dyn StoreAdmin>,
    repeats: bool,
    is_slow: bool,
    /// The methods that have failed already; none if no method fails.
    failed: Option<Mutex<HashSet<&'static str>>>,
    expirations: AtomicU64,
}

impl UnkindStore {
    /// With empty pages, and pages of one row.
    pub fn with_short_pages(store: Arc<dyn StoreAdmin>) -> Self {
        let expirations = AtomicU64::new(0);
        Self { store, repeats: false, is_slow: false, failed: None, expirations }
    }

    /// As [`Self::with_short_pages`], and each answer takes its time.
    pub fn slow(store: Arc<dyn StoreAdmin>) -> Self {
        Self { is_slow: true, ..Self::with_short_pages(store) }
    }

    /// As [`Self::with_short_pages`], and each write is executed twice.
    pub fn repeating(store: Arc<dyn StoreAdmin>) -> Self {
        Self { repeats: true, ..Self::with_short_pages(store) }
    }

    /// As [`Self::with_short_pages`], and the first call of each method fails.
    pub fn failing_once(store: Arc<dyn StoreAdmin>) -> Self {
        Self { failed: Some(Mutex::default()), ..Self::with_short_pages(store) }
    }

    fn read<T: Send + 'static>(
        &self,
        method: &'static str,
        call: impl FnOnce(&dyn StoreAdmin) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        match self.fails(method) {
            true => Box::pin(ready(Err(lost(method)))),
            false => self.in_time(call(&*self.store)),
        }
    }

    /// Holds an answer back. Its call is queued already.
    fn in_time<T: Send + 'static>(&self, answer: StoreFuture<T>) -> StoreFuture<T> {
        match self.is_slow {
            false => answer,
            true => Box::pin(async {
                let answer = answer.await;
                sleep(SLOWNESS).await;
                answer
            }),
        }
    }

    fn write<T: Send + 'static>(
        &self,
        method: &'static str,
        call: impl Fn(&dyn StoreAdmin) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        if self.fails(method) {
            // The same half in each run.
            let is_done = method.len().is_multiple_of(2);
            let done = is_done.then(|| call(&*self.store));
            return Box::pin(async move {
                if let Some(done) = done {
                    done.await?;
                }
                Err(lost(method))
            });
        }
        let answer = self.in_time(call(&*self.store));
        if !self.repeats {
            return answer;
        }
        // Both are queued now, as calling is ordering.
        let again = call(&*self.store);
        Box::pin(async move {
            let answer = answer.await;
            // A repeated call may find nothing to do, or too much.
            let _ = again.await;
            answer
        })
    }

    /// Whether this call of a method is its first one, and fails.
    fn fails(&self, method: &'static str) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.lock().insert(method))
    }

    /// Puts an empty page before the first one. `empty` makes it of a cursor.
    fn paged<T: Send + 'static>(
        &self,
        method: &'static str,
        after: Option<Cursor>,
        empty: impl FnOnce(Option<Cursor>) -> T,
        call: impl FnOnce(&dyn StoreAdmin, Option<Cursor>) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        match after {
            None => Box::pin(ready(Ok(empty(Some(Cursor::new(BEGINNING)))))),
            after => self.read(method, |store| call(store, real(after))),
        }
    }
}

fn one_row_of(limit: PageLimit) -> PageLimit {
    PageLimit { rows: 1, ..limit }
}

fn real(after: Option<Cursor>) -> Option<Cursor> {
    after.filter(|after| after.as_str() != BEGINNING)
}

fn lost(method: &str) -> StoreError {
    StoreError::Failed(format!("the answer of {method} was lost"))
}

macro_rules! reads {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> StoreFuture<$answer> {
            self.read(stringify!($name), |store| store.$name($($arg),*))
        })*
    };
}

macro_rules! writes {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> StoreFuture<$answer> {
            self.write(stringify!($name), |store| store.$name($($arg.clone()),*))
        })*
    };
}

impl Store for UnkindStore {
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer> {
        let empty = |next| StoreAnswer::Fetched(Page { messages: Vec::new(), next });
        match op {
            StoreOp::Fetch { uaid, month, after, limit, now } => {
                let limit = one_row_of(limit);
                self.paged("fetch", after, empty, |store, after| {
                    store.execute(StoreOp::Fetch { uaid, month, after, limit, now })
                })
            }
            StoreOp::FetchVersions { uaid, after, limit, now } => {
                let limit = one_row_of(limit);
                self.paged("fetch_versions", after, empty, |store, after| {
                    store.execute(StoreOp::FetchVersions { uaid, after, limit, now })
                })
            }
            StoreOp::ReadChannels { .. } => self.read("channels", |store| store.execute(op)),
            op => self.write(op_name(&op), |store| store.execute(op.clone())),
        }
    }

    reads! {
        record(uaid: Uaid) -> Option<RouterRecord>;
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>>;
        months() -> Vec<Month>;
        check() -> ();
        close() -> ();
    }

    writes! {
        register_bridged(registration: BridgedRegistration) -> RegisterResult;
        drop_user(uaid: Uaid) -> bool;
        drop_bridged(uaid: Uaid, recipient: BridgeRecipient) -> bool;
        store_message(uaid: Uaid, month: Month, message: Message) -> Stored;
        ensure_month(month: Month) -> ();
        drop_month(month: Month) -> bool;
    }

    fn admits_subscription(&self) -> bool {
        self.store.admits_subscription()
    }

    fn state(&self) -> EngineState {
        self.store.state()
    }

    fn take_slow_writes(&self) -> Option<SlowWrites> {
        self.store.take_slow_writes()
    }
}

/// The name of a write for the failures.
fn op_name(op: &StoreOp) -> &'static str {
    match op {
        StoreOp::Register(_) => "register",
        StoreOp::Fetch { .. } | StoreOp::FetchVersions { .. } => "fetch",
        StoreOp::ReadChannels { .. } => "channels",
        StoreOp::Delete { .. } => "delete",
        StoreOp::RecordOffers { .. } => "record_offers",
        StoreOp::AddChannels { .. } => "add_channels",
        StoreOp::CreateChannels { .. } => "create_channels",
        StoreOp::RemoveChannel { .. } => "remove_channel",
        StoreOp::RemoveChannelAndVersion { .. } => "remove_channel_and_version",
        StoreOp::UpdateMonth(_) => "update_month",
        StoreOp::FinishMove(_) => "finish_move",
        StoreOp::MoveMessages { .. } => "move_messages",
        StoreOp::ClearNode { .. } => "clear_node",
    }
}

impl ReceiptTables for UnkindStore {
    writes! {
        expect_receipt(expected: ExpectedReceipt, messages_max: u64) -> bool;
        cancel_receipt(expected: ExpectedReceipt) -> ();
        withdraw_message(uaid: Uaid, months: Vec<Month>, message: MessageKey) -> bool;
    }

    /// Every second call does nothing, and says that there is more.
    fn expire_receipts(&self, now: Time) -> StoreFuture<ExpiredReceipts> {
        if self.expirations.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            let nothing = ExpiredReceipts { is_more: true, ..ExpiredReceipts::default() };
            return Box::pin(ready(Ok(nothing)));
        }
        self.write("expire_receipts", |store| store.expire_receipts(now))
    }
}

impl NotificationTable for UnkindStore {
    reads! {
        fetch_notifications(uaid: Uaid, after: Option<Chid>, limit: usize) -> Vec<Notification>;
    }

    writes! {
        ensure_notifications() -> ();
        save_notification(uaid: Uaid, notification: Notification) -> bool;
        delete_notification(uaid: Uaid, chid: Chid, version: Option<u64>) -> bool;
    }
}

impl FeedTables for UnkindStore {
    reads! {
        feeds(after: Option<FeedName>, limit: usize) -> Vec<FeedState>;
    }

    writes! {
        ensure_feeds() -> ();
        write_key(feed: FeedName, key: FeedKey, value: FeedValue, keys_max: u64) -> WriteResult;
        republish_key(feed: FeedName, key: FeedKey) -> Option<Version>;
        delete_key(feed: FeedName, key: FeedKey) -> Option<Version>;
        mark_feed(feed: FeedName, mark: FeedMark) -> ();
    }

    fn publish(
        &self,
        feed: FeedName,
        after: Option<FeedKey>,
        _limit: usize,
    ) -> StoreFuture<Option<PublishResult>> {
        self.write("publish", |store| store.publish(feed.clone(), after.clone(), 1))
    }

    fn fetch_feed(
        &self,
        feed: FeedName,
        after: FeedSyncId,
        limit: PageLimit,
    ) -> StoreFuture<Option<FeedPage>> {
        let limit = one_row_of(limit);
        self.read("fetch_feed", |store| store.fetch_feed(feed, after, limit))
    }

    fn forget(
        &self,
        feed: FeedName,
        through: FeedSyncId,
        _limit: usize,
    ) -> StoreFuture<Option<Forgotten>> {
        self.write("forget", |store| store.forget(feed.clone(), through, 1))
    }
}

impl StoreAdmin for UnkindStore {
    reads! {
        preflight(months: BTreeSet<Month>) -> Vec<PreflightCheck>;
        tables() -> Vec<TableStatus>;
        has_rows(month: Month) -> bool;
        count_rows(table: Table) -> u64;
        snapshot(on_step: SnapshotStep) -> ();
        key_fingerprints() -> BTreeSet<String>;
        id_floor() -> Time;
    }

    writes! {
        delete_expired(now: Time) -> u64;
        create_record(record: RouterRecord) -> bool;
        mark_dropped(uaid: Uaid, seen: Option<LastConnect>) -> Option<MarkedUser>;
        delete_rows(uaids: Vec<Uaid>, month: Month) -> bool;
        delete_uaids(uaids: Vec<Uaid>) -> ();
        write_rows(table: Table, rows: Arc<Vec<CopiedRow>>) -> ();
        set_throughput(month: Month, throughput: Throughput) -> ();
        put_key_fingerprints(before: BTreeSet<String>, after: BTreeSet<String>) -> bool;
        raise_id_floor(floor: Time) -> ();
    }

    fn records_by_month(&self, after: Option<Cursor>) -> StoreFuture<RecordsByMonth> {
        let empty = |next| RecordsByMonth { next, ..RecordsByMonth::default() };
        self.paged("records_by_month", after, empty, |store, after| store.records_by_month(after))
    }

    fn waiting_page(&self, month: Month, after: Option<Cursor>) -> StoreFuture<WaitingPage> {
        let empty = |next| WaitingPage { next, ..WaitingPage::default() };
        self.paged("waiting_page", after, empty, |store, after| store.waiting_page(month, after))
    }

    fn inactive_users(
        &self,
        seen: MonthRange,
        after: Option<Cursor>,
    ) -> StoreFuture<InactiveUsers> {
        let empty = |next| InactiveUsers { next, ..InactiveUsers::default() };
        self.paged("inactive_users", after, empty, |store, after| store.inactive_users(seen, after))
    }

    fn copy_rows(
        &self,
        from: Month,
        to: Month,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress> {
        self.paged("copy_rows", after, no_progress, |store, after| store.copy_rows(from, to, after))
    }

    fn move_records(
        &self,
        from: Month,
        to: Month,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress> {
        self.paged("move_records", after, no_progress, |store, after| {
            store.move_records(from, to, after)
        })
    }

    fn repair_records(
        &self,
        clock: RepairClock,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress> {
        self.paged("repair_records", after, no_progress, |store, after| {
            store.repair_records(clock, after)
        })
    }

    /// One row a page: the cursor has the page of the store and the place in it.
    fn read_rows(&self, table: Table, after: Option<Cursor>) -> StoreFuture<CopiedPage> {
        let Some(after) = after else {
            let next = Some(Cursor::new(BEGINNING));
            return Box::pin(ready(Ok(CopiedPage { next, ..CopiedPage::default() })));
        };
        let (at, of_store) = match after.as_str().split_once(' ') {
            Some((at, of_store)) => (at.parse().expect("a cursor of this store"), of_store),
            None => (0, ""),
        };
        let page = (!of_store.is_empty()).then(|| Cursor::new(of_store));
        let read = self.read("read_rows", |store| store.read_rows(table, page));
        let of_store = of_store.to_owned();
        Box::pin(read.map_ok(move |page| one_row(page, at, &of_store)))
    }
}

fn no_progress(next: Option<Cursor>) -> CopyProgress {
    CopyProgress { next, ..CopyProgress::default() }
}

/// The row at a place of a page. What is left out of the page counts with its first one.
fn one_row(page: CopiedPage, at: usize, of_store: &str) -> CopiedPage {
    let is_last = at + 1 >= page.rows.len();
    let (unreadable, acked) = if at == 0 { (page.unreadable, page.acked) } else { (0, 0) };
    let next = match is_last {
        true => page.next.map(|next| Cursor::new(format!("0 {}", next.as_str()))),
        false => Some(Cursor::new(format!("{} {of_store}", at + 1))),
    };
    CopiedPage { rows: page.rows.into_iter().skip(at).take(1).collect(), unreadable, acked, next }
}
