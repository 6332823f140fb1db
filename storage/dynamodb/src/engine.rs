//! What each call of the store runs.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;

use state_machine::{BridgeRecipient, Chid, Message, MessageKey, Month, RouterRecord, Time, Uaid};
use storage::copied_rows::{CopiedPage, CopiedRow};
use storage::feeds::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedState, FeedSyncId, FeedValue, Forgotten,
    PublishResult, Version, WriteResult,
};
use storage::maintenance::{
    CopyProgress, InactiveUsers, MonthRange, PreflightCheck, SnapshotStep, Table, TableStatus,
    Throughput, WaitingPage,
};
use storage::networked::{
    ChannelCalls, CopyCalls, FeedCalls, MessageCalls, MonthCalls, NodeCalls, ReceiptCalls,
    RecordCalls, RouterCalls, Server, TableCalls, UserCalls, VersionCalls,
};
use storage::receipts::{Deletion, ExpectedReceipt, ExpiredReceipts};
use storage::registration::NewRecord;
use storage::rules::feeds::Rewrite;
use storage::rules::{feeds as rules, receipts as receipt_rules};
use storage::store::{
    Cursor, Page, PageLimit, RegisterResult, SettledMessages, StoreError, Stored,
};
use storage::{Notification, engine_calls, record_rules, router_rules};

use crate::client::DynamoClient;
use crate::month_rows::MonthRows;
use crate::{
    channels, copied_rows, copy_table, dropped_users, feeds, fetch, id_floor, inactive_users,
    key_fingerprints, messages, move_messages, notifications, preflight, receipts, registration,
    router, tables,
};

impl Server for DynamoClient {
    type Error = StoreError;

    fn gave_way(&self) -> u64 {
        Self::gave_way(self)
    }
}

impl RouterCalls for DynamoClient {
    router_rules!();

    engine_calls! {
        register(new: NewRecord) -> RegisterResult = |client| registration::register(client, &new);

        drop_user(uaid: Uaid) -> bool = |client| router::drop_user(client, uaid);

        drop_bridged(uaid: Uaid, recipient: BridgeRecipient) -> bool =
            |client| router::drop_bridged(client, uaid, &recipient);

        check() -> () = |client| router::check(client);
    }
}

impl RecordCalls for DynamoClient {
    record_rules!();

    engine_calls! {
        create_record(record: RouterRecord) -> bool = |client| registration::create(client, record);

        delete_uaids(uaids: Vec<Uaid>) -> () = |client| dropped_users::delete_records(client, uaids);
    }
}

impl MonthCalls for DynamoClient {
    engine_calls! {
        ensure_month(month: Month) -> () = |client| tables::ensure_month(client, month);

        months() -> Vec<Month> = |client| tables::months(client);

        drop_month(month: Month) -> bool = |client| tables::drop_month(client, month);
    }
}

impl ChannelCalls for DynamoClient {
    engine_calls! {
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>> =
            |client| channels::read(&MonthRows::new(client, uaid, month));

        add_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> () =
            |client| channels::add(&MonthRows::new(client, uaid, month), &channels);

        create_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> () =
            |client| channels::create(&MonthRows::new(client, uaid, month), &channels);

        remove_channel(uaid: Uaid, months: Vec<Month>, chid: Chid) -> () =
            |client| channels::remove(client, uaid, &months, chid);
    }
}

impl MessageCalls for DynamoClient {
    engine_calls! {
        store(uaid: Uaid, month: Month, message: Message) -> Stored =
            |client| messages::store(&MonthRows::new(client, uaid, month), &message);

        fetch(uaid: Uaid, month: Month, after: Option<Cursor>, limit: PageLimit, now: Time) -> Page =
            |client| fetch::fetch(&MonthRows::new(client, uaid, month), after.as_ref(), limit, now);

        delete(uaid: Uaid, months: Vec<Month>, messages: Vec<MessageKey>) -> usize =
            |client| messages::delete(client, uaid, &months, &messages);

        settle(uaid: Uaid, months: Vec<Month>, deletions: Vec<Deletion>) -> SettledMessages =
            |client| receipts::settle(client, uaid, &months, deletions);

        record_offers(uaid: Uaid, month: Month, messages: Vec<MessageKey>) -> () =
            |client| messages::record_offers(&MonthRows::new(client, uaid, month), &messages);

        move_messages(uaid: Uaid, from: Month, to: Month) -> () =
            |client| move_messages::run(client, uaid, from, to);
    }
}

impl VersionCalls for DynamoClient {
    engine_calls! {
        ensure_notifications() -> () = |client| tables::ensure_legacy(client);

        fetch_notifications(uaid: Uaid, after: Option<Chid>, limit: usize) -> Vec<Notification> =
            |client| notifications::fetch(client, uaid, after, limit);

        save_notification(uaid: Uaid, notification: Notification) -> bool =
            |client| tables::ensure_if_missing(tables::ensure_legacy(client), || {
                notifications::put(client, uaid, &notification)
            });

        delete_notification(uaid: Uaid, chid: Chid, version: Option<u64>) -> bool =
            |client| notifications::delete(client, uaid, chid, version);
    }
}

impl FeedCalls for DynamoClient {
    engine_calls! {
        ensure_feeds() -> () = |client| tables::ensure_feeds(client);

        write_key(feed: FeedName, key: FeedKey, value: FeedValue, keys_max: u64) -> WriteResult =
            |client| tables::ensure_if_missing(tables::ensure_feeds(client), || {
                rules::write(client, &feed, &key, &value, keys_max)
            });

        republish_key(feed: FeedName, key: FeedKey) -> Option<Version> =
            |client| feeds::rewrite(client, &feed, &key, Rewrite::Republish);

        delete_key(feed: FeedName, key: FeedKey) -> Option<Version> =
            |client| feeds::rewrite(client, &feed, &key, Rewrite::Delete);

        publish(feed: FeedName, after: Option<FeedKey>, limit: usize) -> Option<PublishResult> =
            |client| rules::publish(client, &feed, after.as_ref(), limit);

        fetch_feed(feed: FeedName, after: FeedSyncId, limit: PageLimit) -> Option<FeedPage> =
            |client| rules::fetch(client, &feed, after, limit);

        forget(feed: FeedName, through: FeedSyncId, limit: usize) -> Option<Forgotten> =
            |client| rules::forget(client, &feed, through, limit);

        mark_feed(feed: FeedName, mark: FeedMark) -> () = |client| feeds::mark(client, &feed, mark);

        feeds(after: Option<FeedName>, limit: usize) -> Vec<FeedState> =
            |client| feeds::list(client, after.as_ref(), limit);
    }
}

impl ReceiptCalls for DynamoClient {
    engine_calls! {
        expect_receipt(expected: ExpectedReceipt, messages_max: u64) -> bool =
            |client| tables::ensure_if_missing(tables::ensure_feeds(client), || {
                receipt_rules::expect(client, &expected, messages_max)
            });

        cancel_receipt(expected: ExpectedReceipt) -> () =
            |client| receipt_rules::cancel(client, &expected);

        expire_receipts(now: Time) -> ExpiredReceipts = |client| receipt_rules::expire(client, now);
    }
}

impl TableCalls for DynamoClient {
    engine_calls! {
        preflight(months: BTreeSet<Month>) -> Vec<PreflightCheck> =
            |client| preflight::run(client, months);

        risks() -> Vec<String> = |_none| ready(Ok::<_, StoreError>(Vec::new()));

        tables() -> Vec<TableStatus> = |client| tables::statuses(client);

        waiting_page(_month: Month, _after: Option<Cursor>) -> WaitingPage =
            |_none| ready(Err(StoreError::Unsupported(NO_COUNT)));

        delete_expired(_now: Time) -> u64 = |_the_ttl_deletes_them| ready(Ok::<_, StoreError>(0));

        set_throughput(month: Month, throughput: Throughput) -> () =
            |client| tables::set_throughput(client, month, throughput);

        snapshot(_on_step: SnapshotStep) -> () = |_none| ready(Err(StoreError::Unsupported(NO_SNAPSHOT)));
    }
}

impl UserCalls for DynamoClient {
    engine_calls! {
        inactive_users(seen: MonthRange, after: Option<Cursor>) -> InactiveUsers =
            |client| inactive_users::find(client, seen, after);

        delete_rows(uaids: Vec<Uaid>, month: Month) -> bool =
            |client| dropped_users::delete_rows(client, uaids, month);

        has_rows(month: Month) -> bool = |client| dropped_users::has_rows(client, month);
    }
}

impl CopyCalls for DynamoClient {
    engine_calls! {
        copy_rows(from: Month, to: Month, after: Option<Cursor>) -> CopyProgress =
            |client| copy_table::copy(client, from, to, after);

        read_rows(table: Table, after: Option<Cursor>) -> CopiedPage =
            |client| copied_rows::read(client, table, after);

        count_rows(table: Table) -> u64 = |client| copied_rows::count(client, table);

        write_rows(table: Table, rows: Arc<Vec<CopiedRow>>) -> () =
            |client| copied_rows::write(client, table, &rows);
    }
}

impl NodeCalls for DynamoClient {
    engine_calls! {
        key_fingerprints() -> BTreeSet<String> = |client| key_fingerprints::read(client);

        put_key_fingerprints(before: BTreeSet<String>, after: BTreeSet<String>) -> bool =
            |client| key_fingerprints::swap(client, before, after);

        id_floor() -> Time = |client| id_floor::read(client);

        raise_id_floor(floor: Time) -> () = |client| id_floor::raise(client, floor);
    }
}

const NO_COUNT: &str = "counting the messages of all user agents would read the whole table";

const NO_SNAPSHOT: &str = "the tables are in DynamoDB: use its point-in-time recovery, and copy keys.toml (docs/operations.md)";
