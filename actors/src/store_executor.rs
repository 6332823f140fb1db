//! Executes a connection's store operations.

use futures_util::future::{BoxFuture, try_join};
use futures_util::{FutureExt, TryFutureExt};
use state_machine::store::{StoreAnswer, StoreOp};
use state_machine::{AckCode, MessageId, MessageKey, Month, Uaid};
use storage::{Settlement, Store, StoreError, StoreFuture};

use crate::feeds::Feeds;

/// The pending answer to an operation.
pub(crate) type PendingAnswer = BoxFuture<'static, Result<StoreAnswer, StoreError>>;

/// Submits an operation, whose receipts `feeds` publishes. The store has it when this returns; the future yields the answer.
pub(crate) fn submit(store: &dyn Store, feeds: Option<&Feeds>, op: StoreOp) -> PendingAnswer {
    use StoreAnswer as Answer;
    match op {
        StoreOp::Register(registration) => {
            answer(store.register_user(registration), Answer::Registered)
        }
        StoreOp::ReadChannels { uaid, month } => {
            answer(store.channels(uaid, month), Answer::Channels)
        }
        StoreOp::Fetch { uaid, month, after, limit, now } => {
            answer(store.fetch_messages(uaid, month, after, limit, now), Answer::Fetched)
        }
        StoreOp::FetchVersions { uaid, after, limit, now } => {
            answer(store.fetch_versions(uaid, after, limit, now), Answer::Fetched)
        }
        StoreOp::Delete { uaid, months, messages, acks } if acks.is_empty() => {
            answer(store.delete_messages(uaid, months, messages), |_count| Answer::Deleted)
        }
        StoreOp::Delete { uaid, months, messages, acks } => {
            let deleted = settle(store, feeds, uaid, months, messages, &acks);
            answer(deleted, |()| Answer::Deleted)
        }
        StoreOp::RecordOffers { uaid, month, messages } => {
            answer(store.record_offers(uaid, month, messages), |()| Answer::OffersRecorded)
        }
        StoreOp::AddChannels { uaid, month, channels } => {
            answer(store.add_channels(uaid, month, channels), |()| Answer::ChannelsAdded)
        }
        StoreOp::CreateChannels { uaid, month, channels } => {
            answer(store.create_channels(uaid, month, channels), |()| Answer::ChannelsAdded)
        }
        StoreOp::RemoveChannel { uaid, months, chid } => {
            answer(store.remove_channel(uaid, months, chid), |()| Answer::ChannelRemoved)
        }
        StoreOp::RemoveChannelAndVersion { uaid, months, chid } => {
            let removed = store.remove_channel_and_version(uaid, months, chid);
            answer(removed, |()| Answer::ChannelRemoved)
        }
        StoreOp::UpdateMonth(step) => {
            answer(store.update_message_month(step), Answer::MonthUpdated)
        }
        StoreOp::FinishMove(step) => answer(store.finish_month_move(step), Answer::MoveFinished),
        StoreOp::MoveMessages { uaid, from, to } => {
            answer(store.move_messages(uaid, from, to), |()| Answer::Moved)
        }
        StoreOp::ClearNode { uaid, binding } => {
            answer(store.clear_node(uaid, binding.node, binding.connected_at), Answer::NodeCleared)
        }
    }
}

/// Deletes messages of which some may want a receipt.
fn settle(
    store: &dyn Store,
    feeds: Option<&Feeds>,
    uaid: Uaid,
    months: Vec<Month>,
    messages: Vec<MessageKey>,
    acks: &[(MessageId, AckCode)],
) -> StoreFuture<()> {
    let code = |id| acks.iter().find(|(acked, _)| *acked == id).map(|(_, code)| *code);
    let (acked, others): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| code(message.id).is_some());
    let acked = acked.into_iter().filter_map(|message| {
        let code = code(message.id)?;
        Some((message, Settlement::Acked(code)))
    });
    let settled = store.settle_messages(uaid, months.clone(), acked.collect());
    let settled = match feeds {
        Some(feeds) => feeds.publish_receipts(settled),
        None => settled,
    };
    if others.is_empty() {
        return settled.map_ok(|_settled| ()).boxed();
    }
    let deleted = store.delete_messages(uaid, months, others);
    try_join(settled, deleted).map_ok(|_done| ()).boxed()
}

fn answer<T: 'static>(pending: StoreFuture<T>, answer: fn(T) -> StoreAnswer) -> PendingAnswer {
    let answered = pending.map(move |answered| match answered {
        Err(StoreError::NoSpace) => Ok(StoreAnswer::NoSpace),
        answered => answered.map(answer),
    });
    answered.boxed()
}
