//! A store whose engine calls a server that many nodes share.
//!
//! Each call of the contracts is one of the [`Engine`], in the [`queue`](crate::queue): with a priority, and for a write
//! in the order of its user agent's writes. The engine's future runs on the engine's threads, and is finished even if the
//! caller has stopped.

mod engine;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::TryFutureExt;
use state_machine::{BridgeRecipient, Chid, Message, Month, RouterRecord, Uaid};

pub use self::engine::{
    ChannelCalls, CopyCalls, Engine, FeedCalls, MessageCalls, MonthCalls, NodeCalls, ReceiptCalls,
    RecordCalls, RouterCalls, Server, TableCalls, UserCalls, VersionCalls,
};
use crate::notifications as versions;
use crate::queue::{Priority, Queue};
use crate::receipts::{Deletion, deletions};
use crate::record_row::RecordRow;
use crate::registration::NewRecord;
use crate::store::{
    BridgedRegistration, EngineState, RegisterResult, SettledMessages, Store, StoreAnswer,
    StoreFuture, StoreOp, Stored, answer,
};

/// A store on a server.
///
/// Dropping it without [`Store::close`] loses no write: the queued calls are finished in the background.
pub struct Networked<E> {
    engine: Arc<E>,
    queue: Queue,
}

impl<E: Engine> Networked<E> {
    /// The engine's own tasks run on the threads of the queue too.
    pub fn new(engine: E, queue: Queue) -> Self {
        Self { engine: Arc::new(engine), queue }
    }

    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Runs a call, in order with the other writes of the user agent if one is named.
    fn run<T: Send + 'static, F>(
        &self,
        priority: Priority,
        agent: Option<Uaid>,
        call: impl FnOnce(Arc<E>) -> F,
    ) -> StoreFuture<T>
    where
        F: Future<Output = Result<T, E::Error>> + Send + 'static,
    {
        let call = call(self.engine.clone());
        self.queue.run(priority, agent, async { call.await.map_err(Into::into) })
    }

    /// Runs a call that is not ordered.
    fn call<T: Send + 'static, F>(&self, call: impl FnOnce(Arc<E>) -> F) -> StoreFuture<T>
    where
        F: Future<Output = Result<T, E::Error>> + Send + 'static,
    {
        self.run(Priority::Messages, None, call)
    }

    /// Runs a write of message rows, in order with the other writes of the user agent.
    fn write<T: Send + 'static, F>(
        &self,
        uaid: Uaid,
        write: impl FnOnce(Arc<E>) -> F,
    ) -> StoreFuture<T>
    where
        F: Future<Output = Result<T, E::Error>> + Send + 'static,
    {
        self.run(Priority::Messages, Some(uaid), write)
    }

    /// Runs a write of a router record.
    fn route<T: Send + 'static, F>(
        &self,
        uaid: Uaid,
        write: impl FnOnce(Arc<E>) -> F,
    ) -> StoreFuture<T>
    where
        F: Future<Output = Result<T, E::Error>> + Send + 'static,
    {
        self.run(Priority::Router, Some(uaid), write)
    }

    fn register(&self, new: NewRecord) -> StoreFuture<RegisterResult> {
        self.route(new.uaid, async move |engine| engine.register(new).await)
    }

    /// Deletes messages, and writes or cancels their receipts.
    fn settle(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        deletions: Vec<Deletion>,
    ) -> StoreFuture<SettledMessages> {
        if deletions.iter().any(|(_message, settlement)| settlement.is_some()) {
            return self
                .write(uaid, async move |engine| engine.settle(uaid, months, deletions).await);
        }
        let messages: Vec<_> = deletions.into_iter().map(|(message, _none)| message).collect();
        if let Some(deleted) = versions::delete(self, uaid, &messages) {
            return deleted;
        }
        let deleted =
            self.write(uaid, async move |engine| engine.delete(uaid, months, messages).await);
        let subscriptions = Vec::new();
        Box::pin(deleted.map_ok(|deleted| SettledMessages { deleted, subscriptions }))
    }
}

impl<E: Engine> Store for Networked<E> {
    #[expect(clippy::too_many_lines, reason = "an arm for each operation")]
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer> {
        use StoreAnswer as Answer;
        match op {
            StoreOp::Register(registration) => {
                answer(self.register(NewRecord::from(&registration)), Answer::Registered)
            }
            StoreOp::ReadChannels { uaid, month } => {
                answer(self.channels(uaid, month), Answer::Channels)
            }
            StoreOp::Fetch { uaid, month, after, limit, now } => self.call(async move |engine| {
                engine.fetch(uaid, month, after, limit, now).await.map(Answer::Fetched)
            }),
            StoreOp::FetchVersions { uaid, after, limit, now } => {
                answer(versions::fetch_page(self, uaid, after, limit, now), Answer::Fetched)
            }
            StoreOp::Delete { uaid, months, messages, acks } => {
                answer(self.settle(uaid, months, deletions(messages, &acks)), Answer::Deleted)
            }
            StoreOp::RecordOffers { uaid, month, messages } => {
                self.write(uaid, async move |engine| {
                    engine.record_offers(uaid, month, messages).await?;
                    Ok(Answer::OffersRecorded)
                })
            }
            StoreOp::AddChannels { uaid, month, channels } => {
                self.write(uaid, async move |engine| {
                    engine.add_channels(uaid, month, channels).await?;
                    Ok(Answer::ChannelsAdded)
                })
            }
            StoreOp::CreateChannels { uaid, month, channels } => {
                self.write(uaid, async move |engine| {
                    engine.create_channels(uaid, month, channels).await?;
                    Ok(Answer::ChannelsAdded)
                })
            }
            StoreOp::RemoveChannel { uaid, months, chid } => {
                self.write(uaid, async move |engine| {
                    engine.remove_channel(uaid, months, chid).await?;
                    Ok(Answer::ChannelRemoved)
                })
            }
            StoreOp::RemoveChannelAndVersion { uaid, months, chid } => {
                self.write(uaid, async move |engine| {
                    engine.remove_channel(uaid, months, chid).await?;
                    engine.delete_notification(uaid, chid, None).await?;
                    Ok(Answer::ChannelRemoved)
                })
            }
            StoreOp::UpdateMonth(step) => self.route(step.uaid, async move |engine| {
                engine.update_month(step).await.map(Answer::MonthUpdated)
            }),
            StoreOp::FinishMove(step) => self.route(step.uaid, async move |engine| {
                engine.finish_move(step).await.map(Answer::MoveFinished)
            }),
            StoreOp::MoveMessages { uaid, from, to } => self.write(uaid, async move |engine| {
                engine.move_messages(uaid, from, to).await?;
                Ok(Answer::Moved)
            }),
            // Each push to a lost node clears it: too frequent for the last slots.
            StoreOp::ClearNode { uaid, binding } => self.write(uaid, async move |engine| {
                engine.clear_node(uaid, binding).await.map(Answer::NodeCleared)
            }),
        }
    }

    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>> {
        self.run(Priority::Router, None, async move |engine| {
            engine.record(uaid).await.map(|row| row.and_then(RecordRow::served))
        })
    }

    fn register_bridged(&self, registration: BridgedRegistration) -> StoreFuture<RegisterResult> {
        self.register(NewRecord::from(registration))
    }

    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool> {
        self.route(uaid, async move |engine| engine.drop_user(uaid).await)
    }

    fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> StoreFuture<bool> {
        self.route(uaid, async move |engine| engine.drop_bridged(uaid, recipient).await)
    }

    fn channels(&self, uaid: Uaid, month: Month) -> StoreFuture<Option<BTreeSet<Chid>>> {
        self.call(async move |engine| engine.channels(uaid, month).await)
    }

    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored> {
        if let Some(stored) = versions::store(self, uaid, &message) {
            return stored;
        }
        self.run(Priority::Store, Some(uaid), async move |engine| {
            engine.store(uaid, month, message).await
        })
    }

    fn ensure_month(&self, month: Month) -> StoreFuture<()> {
        self.call(async move |engine| engine.ensure_month(month).await)
    }

    fn months(&self) -> StoreFuture<Vec<Month>> {
        self.call(async move |engine| engine.months().await)
    }

    fn drop_month(&self, month: Month) -> StoreFuture<bool> {
        self.call(async move |engine| engine.drop_month(month).await)
    }

    fn state(&self) -> EngineState {
        EngineState {
            messages_gave_way: self.engine.gave_way(),
            queue: Some(self.queue.state()),
            ..EngineState::default()
        }
    }

    fn check(&self) -> StoreFuture<()> {
        self.run(Priority::Router, None, async move |engine| engine.check().await)
    }

    fn close(&self) -> StoreFuture<()> {
        self.queue.close()
    }
}
