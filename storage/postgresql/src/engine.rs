//! The calls that are rules of feeds and receipts, each in a transaction, and those on tables as wholes.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::atomic::Ordering;

use state_machine::{Month, Time};
use storage::engine_calls;
use storage::feeds::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedState, FeedSyncId, FeedValue, Forgotten,
    PublishResult, Version, WriteResult,
};
use storage::maintenance::{PreflightCheck, SnapshotStep, TableStatus, Throughput, WaitingPage};
use storage::networked::{FeedCalls, ReceiptCalls, Server, TableCalls};
use storage::receipts::{ExpectedReceipt, ExpiredReceipts};
use storage::rules::feeds::{self, Rewrite};
use storage::rules::receipts;
use storage::store::{Cursor, PageLimit, StoreError};

use crate::client::{PostgresClient, transact};
use crate::error::SqlError;
use crate::feed_rows::{self, Feeds};
use crate::{maintenance, messages, preflight, waiting_counts};

impl Server for PostgresClient {
    type Error = SqlError;

    fn gave_way(&self) -> u64 {
        self.gave_way.load(Ordering::Relaxed)
    }
}

/// Runs a rule in a transaction.
macro_rules! on_feeds {
    ($client:ident, $rule:path $(, $arg:expr)*) => {
        async { transact!($client, |transaction| $rule(&Feeds::writing(&transaction) $(, $arg)*).await) }
    };
}

impl FeedCalls for PostgresClient {
    engine_calls! {
        ensure_feeds() -> () = |_made_with_the_router| ready(Ok::<_, SqlError>(()));

        write_key(feed: FeedName, key: FeedKey, value: FeedValue, keys_max: u64) -> WriteResult =
            |client| on_feeds!(client, feeds::write, &feed, &key, &value, keys_max);

        republish_key(feed: FeedName, key: FeedKey) -> Option<Version> =
            |client| on_feeds!(client, feeds::rewrite, &feed, &key, Rewrite::Republish);

        delete_key(feed: FeedName, key: FeedKey) -> Option<Version> =
            |client| on_feeds!(client, feeds::rewrite, &feed, &key, Rewrite::Delete);

        publish(feed: FeedName, after: Option<FeedKey>, limit: usize) -> Option<PublishResult> =
            |client| on_feeds!(client, feeds::publish, &feed, after.as_ref(), limit);

        fetch_feed(feed: FeedName, after: FeedSyncId, limit: PageLimit) -> Option<FeedPage> =
            |client| feed_rows::fetch(client, &feed, after, limit);

        forget(feed: FeedName, through: FeedSyncId, limit: usize) -> Option<Forgotten> =
            |client| on_feeds!(client, feeds::forget, &feed, through, limit);

        mark_feed(feed: FeedName, mark: FeedMark) -> () = |client| feed_rows::mark(client, &feed, mark);

        feeds(after: Option<FeedName>, limit: usize) -> Vec<FeedState> =
            |client| feed_rows::list(client, after.as_ref(), limit);
    }
}

impl ReceiptCalls for PostgresClient {
    engine_calls! {
        expect_receipt(expected: ExpectedReceipt, messages_max: u64) -> bool =
            |client| on_feeds!(client, receipts::expect, &expected, messages_max);

        cancel_receipt(expected: ExpectedReceipt) -> () =
            |client| on_feeds!(client, receipts::cancel, &expected);

        expire_receipts(now: Time) -> ExpiredReceipts = |client| on_feeds!(client, receipts::expire, now);
    }
}

impl TableCalls for PostgresClient {
    engine_calls! {
        preflight(months: BTreeSet<Month>) -> Vec<PreflightCheck> =
            |client| preflight::run(client, months);

        risks() -> Vec<String> = |client| preflight::risks(client);

        tables() -> Vec<TableStatus> = |client| maintenance::statuses(client);

        waiting_page(month: Month, after: Option<Cursor>) -> WaitingPage =
            |client| waiting_counts::page(client, month, after);

        delete_expired(now: Time) -> u64 = |client| messages::delete_expired(client, now);

        set_throughput(_month: Month, _throughput: Throughput) -> () =
            |_none| ready(Err(StoreError::Unsupported(NO_THROUGHPUT)));

        snapshot(_on_step: SnapshotStep) -> () = |_none| ready(Err(StoreError::Unsupported(NO_SNAPSHOT)));
    }
}

const NO_THROUGHPUT: &str =
    "tables in PostgreSQL have no throughput: they give what the server can do";

const NO_SNAPSHOT: &str = "the tables are in PostgreSQL: use pg_dump or its continuous archiving, and copy keys.toml (docs/operations.md)";
