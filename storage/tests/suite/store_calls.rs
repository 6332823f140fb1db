//! The operations of a store as calls, with what their answers hold.

use std::collections::BTreeSet;

use futures_util::TryFutureExt;
use state_machine::{AckCode, Chid, MessageKey, Month, NodeBinding, NodeId, Time, Uaid};
use storage::{
    Cursor, MonthStep, Page, PageLimit, RegisterResult, Registration, SettledMessages, Store,
    StoreAnswer, StoreFuture, StoreOp,
};

pub(crate) trait StoreCalls: Store {
    fn register_user(&self, registration: Registration) -> StoreFuture<RegisterResult> {
        held(self, StoreOp::Register(registration), |answer| match answer {
            StoreAnswer::Registered(result) => Some(result),
            _ => None,
        })
    }

    fn update_message_month(&self, step: MonthStep) -> StoreFuture<bool> {
        held(self, StoreOp::UpdateMonth(step), is_done)
    }

    fn finish_month_move(&self, step: MonthStep) -> StoreFuture<bool> {
        held(self, StoreOp::FinishMove(step), is_done)
    }

    fn clear_node(&self, uaid: Uaid, node: NodeId, connected_at: Time) -> StoreFuture<bool> {
        let binding = NodeBinding { node, connected_at };
        held(self, StoreOp::ClearNode { uaid, binding }, is_done)
    }

    fn add_channels(&self, uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> StoreFuture<()> {
        held(self, StoreOp::AddChannels { uaid, month, channels }, nothing)
    }

    fn create_channels(
        &self,
        uaid: Uaid,
        month: Month,
        channels: BTreeSet<Chid>,
    ) -> StoreFuture<()> {
        held(self, StoreOp::CreateChannels { uaid, month, channels }, nothing)
    }

    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> StoreFuture<()> {
        held(self, StoreOp::RemoveChannel { uaid, months, chid }, nothing)
    }

    fn remove_channel_and_version(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        chid: Chid,
    ) -> StoreFuture<()> {
        held(self, StoreOp::RemoveChannelAndVersion { uaid, months, chid }, nothing)
    }

    fn fetch_messages(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page> {
        held(self, StoreOp::Fetch { uaid, month, after, limit, now }, StoreAnswer::page)
    }

    fn fetch_versions(
        &self,
        uaid: Uaid,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page> {
        held(self, StoreOp::FetchVersions { uaid, after, limit, now }, StoreAnswer::page)
    }

    /// Deletes messages that want no receipts. Returns how many.
    fn delete_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<usize> {
        let op = StoreOp::Delete { uaid, months, messages, acks: Vec::new() };
        held(self, op, |answer| settled(answer).map(|settled| settled.deleted))
    }

    /// Deletes messages that were acked with these codes.
    fn settle_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        acked: Vec<(MessageKey, AckCode)>,
    ) -> StoreFuture<SettledMessages> {
        let acks = acked.iter().map(|(message, code)| (message.id, *code)).collect();
        let messages = acked.into_iter().map(|(message, _)| message).collect();
        held(self, StoreOp::Delete { uaid, months, messages, acks }, settled)
    }

    fn record_offers(
        &self,
        uaid: Uaid,
        month: Month,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<()> {
        held(self, StoreOp::RecordOffers { uaid, month, messages }, nothing)
    }

    fn move_messages(&self, uaid: Uaid, from: Month, to: Month) -> StoreFuture<()> {
        held(self, StoreOp::MoveMessages { uaid, from, to }, nothing)
    }
}

impl<S: Store + ?Sized> StoreCalls for S {}

/// Executes an operation, and reads its answer.
fn held<T: 'static>(
    store: &(impl Store + ?Sized),
    op: StoreOp,
    read: fn(StoreAnswer) -> Option<T>,
) -> StoreFuture<T> {
    let answer = store.execute(op.clone());
    Box::pin(answer.map_ok(move |answer| {
        assert!(answer.fits(&op), "{answer:?} is no answer to {op:?}");
        read(answer).unwrap()
    }))
}

#[expect(clippy::needless_pass_by_value, reason = "it is one of the functions that read an answer")]
fn is_done(answer: StoreAnswer) -> Option<bool> {
    match answer {
        StoreAnswer::MonthUpdated(is_done)
        | StoreAnswer::MoveFinished(is_done)
        | StoreAnswer::NodeCleared(is_done) => Some(is_done),
        _ => None,
    }
}

fn settled(answer: StoreAnswer) -> Option<SettledMessages> {
    match answer {
        StoreAnswer::Deleted(settled) => Some(settled),
        _ => None,
    }
}

fn nothing(_: StoreAnswer) -> Option<()> {
    Some(())
}
