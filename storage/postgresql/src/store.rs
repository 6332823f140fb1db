//! The contract of a store: order, priority and statements of each operation and method.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use futures_util::TryFutureExt;
use state_machine::{BridgeRecipient, Chid, Message, MessageKey, Month, RouterRecord, Uaid};
use storage::notifications as versions;
use storage::queue::Priority;
use storage::receipts::deletions;
use storage::record_row::RecordRow;
use storage::registration::NewRecord;
use storage::rules::record_rows::RecordRows;
use storage::rules::records;
use storage::store::{
    BridgedRegistration, EngineState, RegisterResult, SettledMessages, Store, StoreAnswer,
    StoreFuture, StoreOp, Stored, answer,
};

use crate::{Postgres, channels, messages, notifications, router, schema};

impl Store for Postgres {
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
            StoreOp::Fetch { uaid, month, after, limit, now } => self.call(async move |client| {
                let page = messages::fetch(&client, uaid, month, after.as_ref(), limit, now).await;
                page.map(Answer::Fetched)
            }),
            StoreOp::FetchVersions { uaid, after, limit, now } => {
                answer(versions::fetch_page(self, uaid, after, limit, now), Answer::Fetched)
            }
            StoreOp::Delete { uaid, months, messages, acks } if acks.is_empty() => {
                answer(self.delete(uaid, months, messages), Answer::Deleted)
            }
            StoreOp::Delete { uaid, months, messages, acks } => {
                answer(self.settle(uaid, months, deletions(messages, &acks)), Answer::Deleted)
            }
            StoreOp::RecordOffers { uaid, month, messages } => {
                self.write(uaid, async move |client| {
                    let recorded = messages::record_offers(&client, uaid, month, &messages).await;
                    recorded.map(|()| Answer::OffersRecorded)
                })
            }
            StoreOp::AddChannels { uaid, month, channels } => {
                self.write(uaid, async move |client| {
                    let added = channels::add(&client, uaid, month, channels, false).await;
                    added.map(|()| Answer::ChannelsAdded)
                })
            }
            StoreOp::CreateChannels { uaid, month, channels } => {
                self.write(uaid, async move |client| {
                    let created = channels::add(&client, uaid, month, channels, true).await;
                    created.map(|()| Answer::ChannelsAdded)
                })
            }
            StoreOp::RemoveChannel { uaid, months, chid } => {
                self.write(uaid, async move |client| {
                    let removed = channels::remove(&client, uaid, &months, chid).await;
                    removed.map(|()| Answer::ChannelRemoved)
                })
            }
            StoreOp::RemoveChannelAndVersion { uaid, months, chid } => {
                self.write(uaid, async move |client| {
                    channels::remove(&client, uaid, &months, chid).await?;
                    let deleted = notifications::delete(&client, uaid, chid, None).await;
                    deleted.map(|_was_there| Answer::ChannelRemoved)
                })
            }
            StoreOp::UpdateMonth(step) => {
                self.run(Priority::Router, Some(step.uaid), async move |client| {
                    let updated = records::update_message_month(&*client, &step).await;
                    updated.map(Answer::MonthUpdated)
                })
            }
            StoreOp::FinishMove(step) => {
                self.run(Priority::Router, Some(step.uaid), async move |client| {
                    let finished = records::finish_month_move(&*client, &step).await;
                    finished.map(Answer::MoveFinished)
                })
            }
            StoreOp::MoveMessages { uaid, from, to } => self.write(uaid, async move |client| {
                messages::move_all(&client, uaid, from, to).await.map(|()| Answer::Moved)
            }),
            StoreOp::ClearNode { uaid, binding } => {
                // Each push to a lost node clears it: too frequent for the last slots.
                self.write(uaid, async move |client| {
                    let cleared = records::clear_node(&*client, uaid, &binding).await;
                    cleared.map(Answer::NodeCleared)
                })
            }
        }
    }

    calls! {
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>> =
            |client| channels::read(client, uaid, month);

        ensure_month(month: Month) -> () = |client| schema::ensure_month(client, month);

        months() -> Vec<Month> = |client| schema::months(client);

        drop_month(month: Month) -> bool = |client| schema::drop_month(client, month);
    }

    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>> {
        self.run(Priority::Router, None, async move |client| {
            client.record(uaid).await.map(|row| row.and_then(RecordRow::served))
        })
    }

    fn register_bridged(&self, registration: BridgedRegistration) -> StoreFuture<RegisterResult> {
        self.register(NewRecord::from(registration))
    }

    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool> {
        self.run(Priority::Router, Some(uaid), async move |client| {
            router::drop_user(&client, uaid).await
        })
    }

    fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> StoreFuture<bool> {
        self.run(Priority::Router, Some(uaid), async move |client| {
            router::drop_bridged(&client, uaid, &recipient).await
        })
    }

    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored> {
        if let Some(stored) = versions::store(self, uaid, &message) {
            return stored;
        }
        self.run(Priority::Store, Some(uaid), async move |client| {
            messages::store(&client, uaid, month, &message).await
        })
    }

    fn state(&self) -> EngineState {
        EngineState {
            messages_gave_way: self.client.gave_way.load(Ordering::Relaxed),
            queue: Some(self.queue.state()),
            ..EngineState::default()
        }
    }

    fn check(&self) -> StoreFuture<()> {
        self.run(Priority::Router, None, async move |client| router::check(&client).await)
    }

    fn close(&self) -> StoreFuture<()> {
        self.queue.close()
    }
}

impl Postgres {
    fn register(&self, new: NewRecord) -> StoreFuture<RegisterResult> {
        self.run(Priority::Router, Some(new.uaid), async move |client| {
            router::register(&client, &new).await
        })
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
        let deleted = self.write(uaid, async move |client| {
            messages::delete(&client, uaid, &months, &messages).await
        });
        let subscriptions = Vec::new();
        Box::pin(deleted.map_ok(|deleted| SettledMessages { deleted, subscriptions }))
    }
}
