//! A store whose engine calls a server that many nodes share.
//!
//! Each call of the contracts is one of the [`Engine`], in the [`queue`](crate::queue): with a priority, and for a write
//! in the order of its user agent's writes. The engine's future runs on the engine's threads, and is finished even if the
//! caller has stopped.

/// One call of the engine: its priority, the user agent in whose order it is, and what its answer becomes.
macro_rules! call {
    ($store:ident, $priority:expr, $agent:expr, $name:ident($($arg:expr),*) $(, $answer:expr)?) => {
        $store.run($priority, $agent, async move |engine| {
            engine.$name($($arg),*).await$(.map($answer))?
        })
    };
}

pub mod calls;
mod engine;

use std::collections::BTreeSet;

use state_machine::{BridgeRecipient, Chid, Message, Month, RouterRecord, Uaid};

pub use self::calls::{Networked, Server};
pub use self::engine::{
    ChannelCalls, CopyCalls, Engine, FeedCalls, MessageCalls, MonthCalls, NodeCalls, ReceiptCalls,
    RecordCalls, RouterCalls, TableCalls, UserCalls, VersionCalls,
};
use crate::notifications as versions;
use crate::queue::Priority::{self, Messages, Router};
use crate::receipts::{Deletion, deletions};
use crate::record_row::RecordRow;
use crate::registration::NewRecord;
use crate::store::{
    BridgedRegistration, EngineState, RegisterResult, SettledMessages, Store, StoreAnswer,
    StoreFuture, StoreOp, Stored, answer,
};

impl<E: Engine> Networked<E> {
    fn register(&self, new: NewRecord) -> StoreFuture<RegisterResult> {
        call!(self, Router, Some(new.uaid), register(new))
    }

    /// Deletes messages, and writes or cancels their receipts.
    fn settle(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        deletions: Vec<Deletion>,
    ) -> StoreFuture<SettledMessages> {
        if deletions.iter().any(|(_message, settlement)| settlement.is_some()) {
            return call!(self, Messages, Some(uaid), settle(uaid, months, deletions));
        }
        let messages: Vec<_> = deletions.into_iter().map(|(message, _none)| message).collect();
        if let Some(deleted) = versions::delete(self, uaid, &messages) {
            return deleted;
        }
        let settled = |deleted| SettledMessages { deleted, subscriptions: Vec::new() };
        call!(self, Messages, Some(uaid), delete(uaid, months, messages), settled)
    }
}

impl<E: Engine> Store for Networked<E> {
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer> {
        use StoreAnswer as Answer;
        match op {
            StoreOp::Register(registration) => {
                answer(self.register(NewRecord::from(&registration)), Answer::Registered)
            }
            StoreOp::ReadChannels { uaid, month } => {
                answer(self.channels(uaid, month), Answer::Channels)
            }
            StoreOp::Fetch { uaid, month, after, limit, now } => {
                call!(self, Messages, None, fetch(uaid, month, after, limit, now), Answer::Fetched)
            }
            StoreOp::FetchVersions { uaid, after, limit, now } => {
                answer(versions::fetch_page(self, uaid, after, limit, now), Answer::Fetched)
            }
            StoreOp::Delete { uaid, months, messages, acks } => {
                answer(self.settle(uaid, months, deletions(messages, &acks)), Answer::Deleted)
            }
            StoreOp::RecordOffers { uaid, month, messages } => {
                let done = |()| Answer::OffersRecorded;
                call!(self, Messages, Some(uaid), record_offers(uaid, month, messages), done)
            }
            StoreOp::AddChannels { uaid, month, channels } => {
                let done = |()| Answer::ChannelsAdded;
                call!(self, Messages, Some(uaid), add_channels(uaid, month, channels), done)
            }
            StoreOp::CreateChannels { uaid, month, channels } => {
                let done = |()| Answer::ChannelsAdded;
                call!(self, Messages, Some(uaid), create_channels(uaid, month, channels), done)
            }
            StoreOp::RemoveChannel { uaid, months, chid } => {
                let done = |()| Answer::ChannelRemoved;
                call!(self, Messages, Some(uaid), remove_channel(uaid, months, chid), done)
            }
            StoreOp::RemoveChannelAndVersion { uaid, months, chid } => {
                self.run(Messages, Some(uaid), async move |engine| {
                    engine.remove_channel(uaid, months, chid).await?;
                    engine.delete_notification(uaid, chid, None).await?;
                    Ok(Answer::ChannelRemoved)
                })
            }
            StoreOp::UpdateMonth(step) => {
                call!(self, Router, Some(step.uaid), update_month(step), Answer::MonthUpdated)
            }
            StoreOp::FinishMove(step) => {
                call!(self, Router, Some(step.uaid), finish_move(step), Answer::MoveFinished)
            }
            StoreOp::MoveMessages { uaid, from, to } => {
                let done = |()| Answer::Moved;
                call!(self, Messages, Some(uaid), move_messages(uaid, from, to), done)
            }
            // Each push to a lost node clears it: too frequent for the last slots.
            StoreOp::ClearNode { uaid, binding } => {
                let cleared = Answer::NodeCleared;
                call!(self, Messages, Some(uaid), clear_node(uaid, binding), cleared)
            }
        }
    }

    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>> {
        let served = |row: Option<RecordRow>| row.and_then(RecordRow::served);
        call!(self, Router, None, record(uaid), served)
    }

    fn register_bridged(&self, registration: BridgedRegistration) -> StoreFuture<RegisterResult> {
        self.register(NewRecord::from(registration))
    }

    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool> {
        call!(self, Router, Some(uaid), drop_user(uaid))
    }

    fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> StoreFuture<bool> {
        call!(self, Router, Some(uaid), drop_bridged(uaid, recipient))
    }

    fn channels(&self, uaid: Uaid, month: Month) -> StoreFuture<Option<BTreeSet<Chid>>> {
        call!(self, Messages, None, channels(uaid, month))
    }

    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored> {
        if let Some(stored) = versions::store(self, uaid, &message) {
            return stored;
        }
        call!(self, Priority::Store, Some(uaid), store(uaid, month, message))
    }

    fn ensure_month(&self, month: Month) -> StoreFuture<()> {
        call!(self, Messages, None, ensure_month(month))
    }

    fn months(&self) -> StoreFuture<Vec<Month>> {
        call!(self, Messages, None, months())
    }

    fn drop_month(&self, month: Month) -> StoreFuture<bool> {
        call!(self, Messages, None, drop_month(month))
    }

    fn state(&self) -> EngineState {
        EngineState {
            messages_gave_way: self.engine.gave_way(),
            queue: Some(self.queue.state()),
            ..EngineState::default()
        }
    }

    fn check(&self) -> StoreFuture<()> {
        call!(self, Router, None, check())
    }

    fn close(&self) -> StoreFuture<()> {
        self.queue.close()
    }
}
