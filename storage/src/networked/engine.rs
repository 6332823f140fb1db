//! What differs between the engines of networked stores: how a server does each call. What a contract says of a method holds
//! for the call of its name; in a write, the turn among the writes of its user agent has come.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::TryFutureExt;
use state_machine::{
    BridgeRecipient, Chid, LastConnect, Message, MessageKey, Month, NodeBinding, RouterRecord,
    Time, Uaid,
};

use super::calls::{Networked, Server};
use crate::copied_rows::{CopiedPage, CopiedRow};
use crate::feeds::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedState, FeedSyncId, FeedTables, FeedValue, Forgotten,
    PublishResult, Version, WriteResult,
};
use crate::maintenance::{
    CopyProgress, InactiveUsers, MarkedUser, MonthRange, PreflightCheck, RecordsByMonth,
    RepairClock, SnapshotStep, StoreAdmin, Table, TableStatus, Throughput, WaitingPage,
};
use crate::notifications::{Notification, NotificationTable};
use crate::queue::Priority::{Messages, Store};
use crate::receipts::{Deletion, ExpectedReceipt, ExpiredReceipts, ReceiptTables, withdrawal};
use crate::record_row::RecordRow;
use crate::registration::NewRecord;
use crate::store::{
    Cursor, MonthStep, Page, PageLimit, RegisterResult, SettledMessages, StoreFuture, Stored,
};

/// Declares parts of an engine.
macro_rules! parts {
    ($($part:ident { $($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        $(pub trait $part: Server {
            $(fn $name(&self, $($arg: $type),*)
                -> impl Future<Output = Result<$answer, Self::Error>> + Send;)*
        })*
    };
}

/// Implements a contract of which each method is one call of a part. Those that name a user agent are in the order of its
/// writes.
macro_rules! contract {
    ($contract:ident: $($part:ident { $(
        $name:ident($($arg:ident: $type:ty),*) -> $answer:ty $(, of $agent:ident)?;
    )* })*) => {
        parts! { $($part { $($name($($arg: $type),*) -> $answer;)* })* }

        impl<E: Engine> $contract for Networked<E> {
            $($(fn $name(&self, $($arg: $type),*) -> StoreFuture<$answer> {
                let agent = None$(.or(Some($agent)))?;
                call!(self, Messages, agent, $name($($arg),*))
            })*)*
        }
    };
}

parts! {
    RouterCalls {
        register(new: NewRecord) -> RegisterResult;
        record(uaid: Uaid) -> Option<RecordRow>;
        update_month(step: MonthStep) -> bool;
        finish_move(step: MonthStep) -> bool;
        clear_node(uaid: Uaid, binding: NodeBinding) -> bool;
        drop_user(uaid: Uaid) -> bool;
        drop_bridged(uaid: Uaid, recipient: BridgeRecipient) -> bool;
        check() -> ();
    }
    MonthCalls {
        ensure_month(month: Month) -> ();
        months() -> Vec<Month>;
        drop_month(month: Month) -> bool;
    }
    ChannelCalls {
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>>;
        add_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> ();
        create_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> ();
        remove_channel(uaid: Uaid, months: Vec<Month>, chid: Chid) -> ();
    }
    MessageCalls {
        store(uaid: Uaid, month: Month, message: Message) -> Stored;
        fetch(uaid: Uaid, month: Month, after: Option<Cursor>, limit: PageLimit, now: Time) -> Page;
        delete(uaid: Uaid, months: Vec<Month>, messages: Vec<MessageKey>) -> usize;
        settle(uaid: Uaid, months: Vec<Month>, deletions: Vec<Deletion>) -> SettledMessages;
        record_offers(uaid: Uaid, month: Month, messages: Vec<MessageKey>) -> ();
        move_messages(uaid: Uaid, from: Month, to: Month) -> ();
    }
    ReceiptCalls {
        expect_receipt(expected: ExpectedReceipt, messages_max: u64) -> bool;
        cancel_receipt(expected: ExpectedReceipt) -> ();
        expire_receipts(now: Time) -> ExpiredReceipts;
    }
}

contract! {
    NotificationTable:
    VersionCalls {
        ensure_notifications() -> ();
        fetch_notifications(uaid: Uaid, after: Option<Chid>, limit: usize) -> Vec<Notification>;
        save_notification(uaid: Uaid, notification: Notification) -> bool, of uaid;
        delete_notification(uaid: Uaid, chid: Chid, version: Option<u64>) -> bool, of uaid;
    }
}

contract! {
    FeedTables:
    FeedCalls {
        ensure_feeds() -> ();
        write_key(feed: FeedName, key: FeedKey, value: FeedValue, keys_max: u64) -> WriteResult;
        republish_key(feed: FeedName, key: FeedKey) -> Option<Version>;
        delete_key(feed: FeedName, key: FeedKey) -> Option<Version>;
        publish(feed: FeedName, after: Option<FeedKey>, limit: usize) -> Option<PublishResult>;
        fetch_feed(feed: FeedName, after: FeedSyncId, limit: PageLimit) -> Option<FeedPage>;
        forget(feed: FeedName, through: FeedSyncId, limit: usize) -> Option<Forgotten>;
        mark_feed(feed: FeedName, mark: FeedMark) -> ();
        feeds(after: Option<FeedName>, limit: usize) -> Vec<FeedState>;
    }
}

contract! {
    StoreAdmin:
    TableCalls {
        preflight(months: BTreeSet<Month>) -> Vec<PreflightCheck>;
        risks() -> Vec<String>;
        tables() -> Vec<TableStatus>;
        waiting_page(month: Month, after: Option<Cursor>) -> WaitingPage;
        delete_expired(now: Time) -> u64;
        set_throughput(month: Month, throughput: Throughput) -> ();
        snapshot(on_step: SnapshotStep) -> ();
    }
    RecordCalls {
        records_by_month(after: Option<Cursor>) -> RecordsByMonth;
        create_record(record: RouterRecord) -> bool;
        mark_dropped(uaid: Uaid, seen: Option<LastConnect>) -> Option<MarkedUser>;
        delete_uaids(uaids: Vec<Uaid>) -> ();
        move_records(from: Month, to: Month, after: Option<Cursor>) -> CopyProgress;
        repair_records(clock: RepairClock, after: Option<Cursor>) -> CopyProgress;
    }
    UserCalls {
        inactive_users(seen: MonthRange, after: Option<Cursor>) -> InactiveUsers;
        delete_rows(uaids: Vec<Uaid>, month: Month) -> bool;
        has_rows(month: Month) -> bool;
    }
    CopyCalls {
        copy_rows(from: Month, to: Month, after: Option<Cursor>) -> CopyProgress;
        read_rows(table: Table, after: Option<Cursor>) -> CopiedPage;
        count_rows(table: Table) -> u64;
        write_rows(table: Table, rows: Arc<Vec<CopiedRow>>) -> ();
    }
    NodeCalls {
        key_fingerprints() -> BTreeSet<String>;
        put_key_fingerprints(before: BTreeSet<String>, after: BTreeSet<String>) -> bool;
        id_floor() -> Time;
        raise_id_floor(floor: Time) -> ();
    }
}

impl<E: Engine> ReceiptTables for Networked<E> {
    fn expect_receipt(&self, expected: ExpectedReceipt, messages_max: u64) -> StoreFuture<bool> {
        call!(self, Store, None, expect_receipt(expected, messages_max))
    }

    fn cancel_receipt(&self, expected: ExpectedReceipt) -> StoreFuture<()> {
        call!(self, Messages, None, cancel_receipt(expected))
    }

    fn withdraw_message(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        message: MessageKey,
    ) -> StoreFuture<bool> {
        let withdrawn = self.settle(uaid, months, vec![withdrawal(message)]);
        Box::pin(withdrawn.map_ok(|settled| settled.deleted > 0))
    }

    fn expire_receipts(&self, now: Time) -> StoreFuture<ExpiredReceipts> {
        call!(self, Messages, None, expire_receipts(now))
    }
}

macro_rules! all_parts {
    ($($part:ident),*) => {
        /// All parts of an engine.
        pub trait Engine: $($part +)* {}

        impl<E: $($part +)*> Engine for E {}
    };
}

all_parts! {
    RouterCalls, MonthCalls, ChannelCalls, MessageCalls, ReceiptCalls, VersionCalls, FeedCalls,
    TableCalls, RecordCalls, UserCalls, CopyCalls, NodeCalls
}

/// Implements calls of a part: each runs one function.
#[macro_export]
macro_rules! engine_calls {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty = |$engine:ident| $call:expr;)*) => {
        $(async fn $name(&self, $($arg: $type),*)
            -> Result<$answer, <Self as $crate::networked::calls::Server>::Error>
        {
            let $engine = self;
            $call.await.map_err(Into::into)
        })*
    };
}

/// Implements [`RouterCalls::update_month`] and the further calls that are rules over
/// [the rows of records](crate::rules::record_rows::RecordRows). A macro, because only the engine knows that its futures
/// are `Send`.
#[macro_export]
macro_rules! router_rules {
    () => {
        $crate::engine_calls! {
            record(uaid: state_machine::Uaid) -> Option<$crate::record_row::RecordRow> =
                |rows| $crate::rules::record_rows::RecordRows::record(rows, uaid);

            update_month(step: $crate::MonthStep) -> bool =
                |rows| $crate::rules::records::update_message_month(rows, &step);

            finish_move(step: $crate::MonthStep) -> bool =
                |rows| $crate::rules::records::finish_month_move(rows, &step);

            clear_node(uaid: state_machine::Uaid, binding: state_machine::NodeBinding) -> bool =
                |rows| $crate::rules::records::clear_node(rows, uaid, &binding);
        }
    };
}

/// As [`router_rules`](crate::router_rules), for [`RecordCalls`].
#[macro_export]
macro_rules! record_rules {
    () => {
        $crate::engine_calls! {
            records_by_month(after: Option<$crate::Cursor>) -> $crate::maintenance::RecordsByMonth =
                |rows| $crate::rules::records::count(rows, after.as_ref());

            mark_dropped(uaid: state_machine::Uaid, seen: Option<state_machine::LastConnect>)
                -> Option<$crate::maintenance::MarkedUser> =
                |rows| $crate::rules::records::mark_dropped(rows, uaid, seen);

            move_records(
                from: state_machine::Month, to: state_machine::Month, after: Option<$crate::Cursor>
            ) -> $crate::maintenance::CopyProgress =
                |rows| $crate::rules::records::rename_month(rows, from, to, after.as_ref());

            repair_records(clock: $crate::maintenance::RepairClock, after: Option<$crate::Cursor>)
                -> $crate::maintenance::CopyProgress =
                |rows| $crate::rules::records::repair(rows, clock, after.as_ref());
        }
    };
}
