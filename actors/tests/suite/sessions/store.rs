//! A store that records its operations and answers them as the transcript prescribes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use state_machine::connection::Effect;
use state_machine::store::{StoreAnswer, StoreFailed, StoreOp};
use state_machine::{
    BridgeRecipient, Chid, Message, MessageKey, Month, NodeBinding, NodeId, OpId, RouterRecord,
    Time, Uaid,
};
use storage::{
    BridgedRegistration, Cursor, MessageTables, MonthStep, Page, PageLimit, ReceiptTables,
    RegisterResult, Registration, RouterTable, SettledMessages, Settlement, Store, StoreError,
    StoreFuture, Stored,
};
use tokio::sync::oneshot;

use super::record::Record;

type Reply = oneshot::Sender<Result<StoreAnswer, StoreFailed>>;

/// The store of one session.
pub(crate) struct ScriptedStore {
    record: Arc<Record>,
    /// The orders given, numbered as a connection numbers them; none where one was answered.
    orders: Mutex<Vec<Option<Reply>>>,
}

impl ScriptedStore {
    pub(crate) fn new(record: &Arc<Record>) -> Self {
        Self { record: Arc::clone(record), orders: Mutex::default() }
    }

    /// Answers an order that was given and was not answered.
    pub(crate) fn answer(&self, op: OpId, answer: Result<StoreAnswer, StoreFailed>) {
        let mut orders = self.orders.lock().unwrap();
        let order = orders.get_mut(op.0 as usize).and_then(Option::take);
        match order {
            // The connection may have ended.
            Some(reply) => drop(reply.send(answer)),
            None => self.record.note(format!("store: order {} does not wait for an answer", op.0)),
        }
    }

    fn take<T: 'static>(
        &self,
        order: StoreOp,
        read: fn(StoreAnswer) -> Option<T>,
    ) -> StoreFuture<T> {
        let (reply, answer) = oneshot::channel();
        let mut orders = self.orders.lock().unwrap();
        let op = OpId(u32::try_from(orders.len()).unwrap());
        orders.push(Some(reply));
        self.record.ordered(&Effect::SubmitStoreOp { op, order });
        let record = Arc::clone(&self.record);
        Box::pin(async move {
            let answer = match answer.await {
                Ok(Ok(StoreAnswer::NoSpace)) => return Err(StoreError::NoSpace),
                Ok(Ok(answer)) => answer,
                Ok(Err(StoreFailed)) => return Err(StoreError::Busy),
                Err(_) => return Err(StoreError::Closed),
            };
            read(answer).ok_or_else(|| {
                record.note(format!("store: this is no answer to order {}", op.0));
                StoreError::Busy
            })
        })
    }

    fn unexpected<T>(&self, method: &str) -> StoreFuture<T> {
        self.record.note(format!("store: a connection called {method}"));
        Box::pin(async { Err(StoreError::Closed) })
    }
}

/// Takes what is in an answer of this kind.
macro_rules! read {
    ($kind:ident) => {
        |answer| match answer {
            StoreAnswer::$kind => Some(()),
            _ => None,
        }
    };
    ($kind:ident(_)) => {
        |answer| match answer {
            StoreAnswer::$kind(inside) => Some(inside),
            _ => None,
        }
    };
}

impl RouterTable for ScriptedStore {
    fn record(&self, _: Uaid) -> StoreFuture<Option<RouterRecord>> {
        self.unexpected("record")
    }

    fn register_user(&self, registration: Registration) -> StoreFuture<RegisterResult> {
        self.take(StoreOp::Register(registration), read!(Registered(_)))
    }

    fn update_message_month(&self, step: MonthStep) -> StoreFuture<bool> {
        self.take(StoreOp::UpdateMonth(step), read!(MonthUpdated(_)))
    }

    fn finish_month_move(&self, step: MonthStep) -> StoreFuture<bool> {
        self.take(StoreOp::FinishMove(step), read!(MoveFinished(_)))
    }

    fn clear_node(&self, uaid: Uaid, node: NodeId, connected_at: Time) -> StoreFuture<bool> {
        let place = NodeBinding { node, connected_at };
        self.take(StoreOp::ClearNode { uaid, binding: place }, read!(NodeCleared(_)))
    }

    fn drop_user(&self, _: Uaid) -> StoreFuture<bool> {
        self.unexpected("drop_user")
    }

    fn register_bridged(&self, _: BridgedRegistration) -> StoreFuture<RegisterResult> {
        self.unexpected("register_bridged")
    }

    fn drop_bridged(&self, _: Uaid, _: BridgeRecipient) -> StoreFuture<bool> {
        self.unexpected("drop_bridged")
    }
}

impl MessageTables for ScriptedStore {
    fn channels(&self, uaid: Uaid, month: Month) -> StoreFuture<Option<BTreeSet<Chid>>> {
        self.take(StoreOp::ReadChannels { uaid, month }, read!(Channels(_)))
    }

    fn add_channels(&self, uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> StoreFuture<()> {
        self.take(StoreOp::AddChannels { uaid, month, channels }, read!(ChannelsAdded))
    }

    fn create_channels(&self, _: Uaid, _: Month, _: BTreeSet<Chid>) -> StoreFuture<()> {
        self.unexpected("create_channels")
    }

    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> StoreFuture<()> {
        self.take(StoreOp::RemoveChannel { uaid, months, chid }, read!(ChannelRemoved))
    }

    fn remove_channel_and_version(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        chid: Chid,
    ) -> StoreFuture<()> {
        self.take(StoreOp::RemoveChannelAndVersion { uaid, months, chid }, read!(ChannelRemoved))
    }

    fn store_message(&self, _: Uaid, _: Month, _: Message) -> StoreFuture<Stored> {
        self.unexpected("store_message")
    }

    fn fetch_messages(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page> {
        self.take(StoreOp::Fetch { uaid, month, after, limit, now }, read!(Fetched(_)))
    }

    fn fetch_versions(
        &self,
        uaid: Uaid,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page> {
        self.take(StoreOp::FetchVersions { uaid, after, limit, now }, read!(Fetched(_)))
    }

    fn delete_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<usize> {
        let read: fn(_) -> _ = |answer| match answer {
            StoreAnswer::Deleted => Some(0),
            _ => None,
        };
        self.take(StoreOp::Delete { uaid, months, messages, acks: Vec::new() }, read)
    }

    fn record_offers(
        &self,
        uaid: Uaid,
        month: Month,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<()> {
        self.take(StoreOp::RecordOffers { uaid, month, messages }, read!(OffersRecorded))
    }

    fn move_messages(&self, uaid: Uaid, from: Month, to: Month) -> StoreFuture<()> {
        self.take(StoreOp::MoveMessages { uaid, from, to }, read!(Moved))
    }

    fn ensure_month(&self, _: Month) -> StoreFuture<()> {
        self.unexpected("ensure_month")
    }

    fn months(&self) -> StoreFuture<Vec<Month>> {
        self.unexpected("months")
    }

    fn drop_month(&self, _: Month) -> StoreFuture<bool> {
        self.unexpected("drop_month")
    }
}

impl ReceiptTables for ScriptedStore {
    fn settle_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<(MessageKey, Settlement)>,
    ) -> StoreFuture<SettledMessages> {
        let read: fn(_) -> _ = |answer| match answer {
            StoreAnswer::Deleted => Some(SettledMessages::default()),
            _ => None,
        };
        let acks = messages.iter().filter_map(|(message, settlement)| match settlement {
            Settlement::Acked(code) => Some((message.id, *code)),
            Settlement::Withdrawn => None,
        });
        let acks = acks.collect();
        let messages = messages.into_iter().map(|(message, _)| message).collect();
        self.take(StoreOp::Delete { uaid, months, messages, acks }, read)
    }
}

impl Store for ScriptedStore {
    fn check(&self) -> StoreFuture<()> {
        self.unexpected("check")
    }

    fn close(&self) -> StoreFuture<()> {
        self.unexpected("close")
    }
}
