//! The contract of a store: the file and the statements of each operation and method.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::TryFutureExt;
use futures_util::future::try_join;
use rusqlite::Connection;
use state_machine::{BridgeRecipient, Chid, Message, MessageKey, Month, RouterRecord, Time, Uaid};
use storage::data_dir::FileKey;
use storage::notifications::{self as versions, NotificationTable};
use storage::receipts::{ExpectedReceipt, deletions};
use storage::registration::NewRecord;
use storage::rules::{finished, receipts, records};
use storage::store::{
    BridgedRegistration, Cursor, EngineState, Page, PageLimit, RegisterResult, Registration,
    SettledMessages, SlowWrites, Store, StoreAnswer, StoreError, StoreFuture, StoreOp, Stored,
    answer, answered,
};
use storage::waiting_limits::WaitingLimits;

use crate::messages::OfTopic;
use crate::record_cache::WrittenRecords;
use crate::router_file::RouterFile;
use crate::write_connections::WriteConnections;
use crate::writer::Target;
use crate::{Embedded, channels, messages, move_messages, router, unwritten, waiting_counts};

impl Store for Embedded {
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer> {
        use StoreAnswer as Answer;
        match op {
            StoreOp::Register(registration) => {
                answer(self.register(registration), Answer::Registered)
            }
            StoreOp::ReadChannels { uaid, month } => {
                answer(self.channels(uaid, month), Answer::Channels)
            }
            StoreOp::Fetch { uaid, month, after, limit, now } => {
                answer(self.fetch(uaid, month, after.as_ref(), limit, now), Answer::Fetched)
            }
            StoreOp::FetchVersions { uaid, after, limit, now } => {
                answer(versions::fetch_page(self, uaid, after, limit, now), Answer::Fetched)
            }
            StoreOp::Delete { uaid, months, messages, acks } => {
                answer(self.settle(uaid, months, deletions(messages, &acks)), Answer::Deleted)
            }
            StoreOp::RecordOffers { uaid, month, messages } => {
                let recorded = self.write_months(uaid, vec![month], move |conn| {
                    messages::record_offers(conn, uaid, &messages).map(|()| 0)
                });
                answer(recorded, |_count| Answer::OffersRecorded)
            }
            StoreOp::AddChannels { uaid, month, channels } => {
                self.write(Some(uaid), FileKey::Month(month), move |conn| {
                    channels::add(conn, uaid, &channels).map(|()| Answer::ChannelsAdded)
                })
            }
            StoreOp::CreateChannels { uaid, month, channels } => {
                self.write(Some(uaid), FileKey::Month(month), move |conn| {
                    channels::create(conn, uaid, &channels).map(|()| Answer::ChannelsAdded)
                })
            }
            StoreOp::RemoveChannel { uaid, months, chid } => {
                answer(self.remove_channel(uaid, months, chid), |_count| Answer::ChannelRemoved)
            }
            StoreOp::RemoveChannelAndVersion { uaid, months, chid } => {
                let removed = self.remove_channel(uaid, months, chid);
                // The writer executes it after the removal.
                let deleted = self.delete_notification(uaid, chid, None);
                Box::pin(try_join(removed, deleted).map_ok(|_done| Answer::ChannelRemoved))
            }
            StoreOp::UpdateMonth(step) => self.write_record(step.uaid, move |conn| {
                finished(records::update_message_month(&RouterFile(conn), &step))
                    .map(Answer::MonthUpdated)
            }),
            StoreOp::FinishMove(step) => self.write_record(step.uaid, move |conn| {
                finished(records::finish_month_move(&RouterFile(conn), &step))
                    .map(Answer::MoveFinished)
            }),
            StoreOp::MoveMessages { uaid, from, to } => {
                let moved = self.writer.submit_paged(Some(uaid), Target::Exclusive, move |files| {
                    move_messages::page(files, uaid, from, to)
                });
                answer(moved, |()| Answer::Moved)
            }
            StoreOp::ClearNode { uaid, binding } => self.write_record(uaid, move |conn| {
                finished(records::clear_node(&RouterFile(conn), uaid, &binding))
                    .map(Answer::NodeCleared)
            }),
        }
    }

    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>> {
        // Before the file, which has it once it is not kept any more.
        let unwritten = self.unwritten.of(uaid);
        let read = self.readers.record(uaid);
        answered(read.map(|record| record.map(|record| unwritten::apply(unwritten, record))))
    }

    fn register_bridged(&self, registration: BridgedRegistration) -> StoreFuture<RegisterResult> {
        let new = NewRecord::from(registration);
        self.write_record(new.uaid, move |conn| router::register(conn, &new))
    }

    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool> {
        self.writer.submit(Some(uaid), Target::File(FileKey::Router), move |files| {
            files.write_records(WrittenRecords::Of(&[uaid]), |conn| router::drop_user(conn, uaid))
        })
    }

    fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> StoreFuture<bool> {
        self.write_record(uaid, move |conn| router::drop_bridged(conn, uaid, &recipient))
    }

    fn channels(&self, uaid: Uaid, month: Month) -> StoreFuture<Option<BTreeSet<Chid>>> {
        self.read(FileKey::Month(month), |conn| channels::read(conn, uaid))
    }

    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored> {
        if let Some(stored) = versions::store(self, uaid, &message) {
            return stored;
        }
        let (key, limits) = (FileKey::Month(month), self.waiting);
        let stored = self.write_admitted(uaid, key, move |files| {
            let StoreResult { stored, gave_way, replaced } =
                files.write(key, |conn| store(conn, uaid, &message, &limits))?;
            if let Some(replaced) = replaced {
                files.write_receipts(|conn| {
                    finished(receipts::cancel(&RouterFile(conn), &replaced))
                })?;
            }
            Ok((stored, gave_way))
        });
        let given_way = Arc::clone(&self.gave_way);
        Box::pin(stored.map_ok(move |(stored, gave_way)| {
            given_way.fetch_add(gave_way as u64, Ordering::Relaxed);
            stored
        }))
    }

    fn ensure_month(&self, month: Month) -> StoreFuture<()> {
        self.writer.submit(None, Target::Exclusive, move |files| files.make_month(month))
    }

    fn months(&self) -> StoreFuture<Vec<Month>> {
        answered(Ok(self.months.list()))
    }

    fn drop_month(&self, month: Month) -> StoreFuture<bool> {
        self.writer.submit(None, Target::Exclusive, move |files| files.drop_month(month))
    }

    fn admits_subscription(&self) -> bool {
        self.space.admit_subscription()
    }

    fn state(&self) -> EngineState {
        EngineState {
            disk: self.space.state(),
            messages_gave_way: self.gave_way.load(Ordering::Relaxed),
            commit_times: Some(self.writer.commit_times()),
            queue: Some(self.writer.queue()),
            record_reads: Some(self.readers.records.reads()),
            failed_reads: Some(self.readers.failed.count()),
        }
    }

    fn take_slow_writes(&self) -> Option<SlowWrites> {
        self.writer.take_slow_batches()
    }

    fn check(&self) -> StoreFuture<()> {
        match self.readers.check(Instant::now()) {
            Ok(()) => self.writer.submit(None, Target::ManyFiles, WriteConnections::check),
            Err(error) => answered(Err(error)),
        }
    }

    fn close(&self) -> StoreFuture<()> {
        self.writer.close()
    }
}

impl Embedded {
    fn register(&self, registration: Registration) -> StoreFuture<RegisterResult> {
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

    fn fetch(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<&Cursor>,
        limit: PageLimit,
        at: Time,
    ) -> StoreFuture<Page> {
        let fetch = |conn: &_| messages::fetch(conn, uaid, after, limit, at);
        let fetched = self.readers.read(FileKey::Month(month), fetch);
        answered(fetched.map(|fetched| {
            let fetched = fetched.unwrap_or_default();
            if let Some(expired) = fetched.expired {
                self.sweep(uaid, month, expired, at);
            }
            fetched.page
        }))
    }

    /// Deletes messages, and leaves their receipts as they are.
    pub(crate) fn delete(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<SettledMessages> {
        if let Some(deleted) = versions::delete(self, uaid, &messages) {
            return deleted;
        }
        let deleted =
            self.write_months(uaid, months, move |conn| messages::delete(conn, uaid, &messages));
        let subscriptions = Vec::new();
        Box::pin(deleted.map_ok(|deleted| SettledMessages { deleted, subscriptions }))
    }

    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> StoreFuture<usize> {
        self.write_months(uaid, months, move |conn| channels::remove(conn, uaid, chid))
    }
}

/// What storing a message has done.
struct StoreResult {
    stored: Stored,
    /// Messages that were deleted for it.
    gave_way: usize,
    /// The receipt that is not expected any more, as a message of the same topic replaced its message.
    replaced: Option<ExpectedReceipt>,
}

/// Stores a message if it fits into the bounds and no greater id of its topic waits.
fn store(
    conn: &Connection,
    uaid: Uaid,
    message: &Message,
    limits: &WaitingLimits,
) -> rusqlite::Result<StoreResult> {
    let there = messages::of_topic(conn, uaid, message)?;
    if let Some(OfTopic { id, .. }) = there.as_ref().filter(|there| message.id < there.id) {
        let stored = match channels::is_registered(conn, uaid, message.chid)? {
            true => Stored::Outranked(*id),
            false => Stored::NoSuchChannel,
        };
        return Ok(StoreResult { stored, gave_way: 0, replaced: None });
    }
    let gave_way = match waiting_counts::make_room(conn, uaid, message, limits)? {
        Ok(gave_way) => gave_way,
        Err(scope) => {
            return Ok(StoreResult { stored: Stored::Full(scope), gave_way: 0, replaced: None });
        }
    };
    let is_inserted = messages::insert(conn, uaid, message)?;
    let is_registered = is_inserted || channels::is_registered(conn, uaid, message.chid)?;
    let stored = if is_registered { Stored::Done } else { Stored::NoSuchChannel };
    let replaced = there.filter(|there| is_inserted && there.id != message.id);
    Ok(StoreResult { stored, gave_way, replaced: replaced.and_then(|there| there.receipt) })
}
