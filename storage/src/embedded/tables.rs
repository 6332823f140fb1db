//! The contract of a store: the file and the statements of each method.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::TryFutureExt;
use futures_util::future::try_join;
use state_machine::{
    BridgeRecipient, Chid, Message, MessageKey, Month, NodeId, RouterRecord, Time, Uaid,
};

use super::files::FileKey;
use super::messages::StoreResult;
use super::record_cache::Changed;
use super::write_connections::WriteConnections;
use super::writer::Target;
use super::{Embedded, channels, messages, notifications, router, unwritten};
use crate::notifications::{self as versions, Notification, NotificationTable};
use crate::registration::NewRecord;
use crate::rules::{finished, receipts, records};
use crate::store::{
    BridgedRegistration, CommitTimes, Cursor, DiskSpace, MessageTables, MonthStep, Page, PageLimit,
    QueueState, RecordReads, RegisterResult, Registration, RouterTable, SlowWrites, Store,
    StoreError, StoreFuture, Stored,
};

impl RouterTable for Embedded {
    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>> {
        // Before the file, which has it once it is not kept any more.
        let unwritten = self.unwritten.of(uaid);
        let read = self.readers.record(uaid);
        now(read.map(|record| record.map(|record| unwritten::apply(unwritten, record))))
    }

    fn register_user(&self, registration: Registration) -> StoreFuture<RegisterResult> {
        let (uaid, order) = (registration.uaid, NewRecord::from(&registration));
        let written = self.write_record(uaid, move |conn| router::register(conn, &order));
        let (readers, unwritten) = (Arc::clone(&self.readers), Arc::clone(&self.unwritten));
        Box::pin(async move {
            match written.await {
                Err(StoreError::NoSpace) => unwritten.keep(registration, readers.record(uaid)?),
                written => written,
            }
        })
    }

    fn register_bridged(&self, registration: BridgedRegistration) -> StoreFuture<RegisterResult> {
        let new = NewRecord::from(registration);
        self.write_record(new.uaid, move |conn| router::register(conn, &new))
    }

    fn update_message_month(&self, step: MonthStep) -> StoreFuture<bool> {
        self.write_record(step.uaid, move |conn| {
            finished(records::update_message_month(conn, &step))
        })
    }

    fn finish_month_move(&self, step: MonthStep) -> StoreFuture<bool> {
        self.write_record(step.uaid, move |conn| finished(records::finish_month_move(conn, &step)))
    }

    fn clear_node(&self, uaid: Uaid, node: NodeId, connected_at: Time) -> StoreFuture<bool> {
        self.write_record(uaid, move |conn| {
            finished(records::clear_node(conn, uaid, &node, connected_at))
        })
    }

    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool> {
        self.writer.submit(Some(uaid), Target::File(FileKey::Router), move |files| {
            files.write_records(Changed::Of(&[uaid]), |conn| router::drop_user(conn, uaid))
        })
    }

    fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> StoreFuture<bool> {
        self.write_record(uaid, move |conn| router::drop_bridged(conn, uaid, &recipient))
    }
}

impl MessageTables for Embedded {
    fn channels(&self, uaid: Uaid, month: Month) -> StoreFuture<Option<BTreeSet<Chid>>> {
        self.read(FileKey::Month(month), |conn| channels::read(conn, uaid))
    }

    fn add_channels(&self, uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> StoreFuture<()> {
        self.write(Some(uaid), FileKey::Month(month), move |conn| {
            channels::add(conn, uaid, &channels)
        })
    }

    fn create_channels(
        &self,
        uaid: Uaid,
        month: Month,
        channels: BTreeSet<Chid>,
    ) -> StoreFuture<()> {
        self.write(Some(uaid), FileKey::Month(month), move |conn| {
            channels::create(conn, uaid, &channels)
        })
    }

    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> StoreFuture<()> {
        let removed =
            self.write_months(uaid, months, move |conn| channels::remove(conn, uaid, chid));
        Box::pin(async { removed.await.map(|_count| ()) })
    }

    fn remove_channel_and_version(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        chid: Chid,
    ) -> StoreFuture<()> {
        let removed = self.remove_channel(uaid, months, chid);
        // The writer executes it after the removal.
        let deleted = self.delete_notification(uaid, chid, None);
        Box::pin(try_join(removed, deleted).map_ok(|_done| ()))
    }

    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored> {
        let (space, refusals) = (Arc::clone(&self.space), Arc::clone(&self.space));
        let refused = move |error: &StoreError| {
            if *error == StoreError::NoSpace {
                refusals.count_refused();
            }
        };
        let limits = self.waiting;
        let version = Notification::of(&message);
        let key = version.as_ref().map_or(FileKey::Month(month), |_| FileKey::Router);
        let stored = self.writer.submit(Some(uaid), Target::File(key), move |files| {
            space.admit()?;
            if let Some(version) = &version {
                // A higher version that is there has replaced it.
                let saved = files.write(key, |conn| notifications::save(conn, uaid, version));
                return saved.map(|_is_higher| (Stored::Done, 0));
            }
            let StoreResult { stored, gave_way, replaced } =
                files.write(key, |conn| messages::store(conn, uaid, &message, &limits))?;
            if let Some(replaced) = replaced {
                files.write_receipts(|conn| finished(receipts::cancel(conn, &replaced)))?;
            }
            Ok((stored, gave_way))
        });
        let given_way = Arc::clone(&self.gave_way);
        Box::pin(stored.inspect_err(refused).map_ok(move |(stored, gave_way)| {
            given_way.fetch_add(gave_way as u64, Ordering::Relaxed);
            stored
        }))
    }

    fn fetch_messages(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        at: Time,
    ) -> StoreFuture<Page> {
        let fetch = |conn: &_| messages::fetch(conn, uaid, after.as_ref(), limit, at);
        let fetched = self.readers.read(FileKey::Month(month), fetch);
        now(fetched.map(|fetched| {
            let fetched = fetched.unwrap_or_default();
            if let Some(expired) = fetched.expired {
                self.sweep(uaid, month, expired, at);
            }
            fetched.page
        }))
    }

    fn fetch_versions(
        &self,
        uaid: Uaid,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page> {
        versions::fetch_page(self, uaid, after, limit, now)
    }

    fn delete_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<usize> {
        if let Some(deleted) = versions::delete(self, uaid, &messages) {
            return deleted;
        }
        self.write_months(uaid, months, move |conn| messages::delete(conn, uaid, &messages))
    }

    fn record_offers(
        &self,
        uaid: Uaid,
        month: Month,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<()> {
        let recorded = self.write_months(uaid, vec![month], move |conn| {
            messages::record_offers(conn, uaid, &messages).map(|()| 0)
        });
        Box::pin(async { recorded.await.map(|_count| ()) })
    }

    fn move_messages(&self, uaid: Uaid, from: Month, to: Month) -> StoreFuture<()> {
        self.writer.submit_paged(Some(uaid), Target::Exclusive, move |files| {
            files.move_messages(uaid, from, to)
        })
    }

    fn ensure_month(&self, month: Month) -> StoreFuture<()> {
        self.writer.submit(None, Target::Exclusive, move |files| files.make_month(month))
    }

    fn months(&self) -> StoreFuture<Vec<Month>> {
        now(Ok(self.months.list()))
    }

    fn drop_month(&self, month: Month) -> StoreFuture<bool> {
        self.writer.submit(None, Target::Exclusive, move |files| files.drop_month(month))
    }
}

impl Store for Embedded {
    fn disk_space(&self) -> Option<DiskSpace> {
        self.space.state()
    }

    fn admits_subscription(&self) -> bool {
        self.space.admit_subscription()
    }

    fn messages_gave_way(&self) -> u64 {
        self.gave_way.load(Ordering::Relaxed)
    }

    fn commit_times(&self) -> Option<CommitTimes> {
        Some(self.writer.commit_times())
    }

    fn queue(&self) -> Option<QueueState> {
        Some(self.writer.queue())
    }

    fn record_reads(&self) -> Option<RecordReads> {
        Some(self.readers.records.reads())
    }

    fn take_slow_writes(&self) -> Option<SlowWrites> {
        self.writer.take_slow_batches()
    }

    fn check(&self) -> StoreFuture<()> {
        match self.readers.check(Instant::now()) {
            Ok(()) => self.writer.submit(None, Target::ManyFiles, WriteConnections::check),
            Err(error) => now(Err(error)),
        }
    }

    fn failed_reads(&self) -> Option<u64> {
        Some(self.readers.failed.count())
    }

    fn close(&self) -> StoreFuture<()> {
        self.writer.close()
    }
}

/// A result that is ready, as that of a read.
pub(super) fn now<T: Send + 'static>(answer: Result<T, StoreError>) -> StoreFuture<T> {
    Box::pin(ready(answer))
}
