//! Executes a connection's store operations.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_machine::store::{StoreAnswer, StoreOp};
use storage::{Store, StoreError, StoreFuture};

/// The pending answer to an operation.
pub(crate) type PendingAnswer = BoxFuture<'static, Result<StoreAnswer, StoreError>>;

/// Submits an operation. The store has it when this returns; the future yields the answer.
pub(crate) fn submit(store: &dyn Store, op: StoreOp) -> PendingAnswer {
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
        StoreOp::Delete { uaid, months, messages } => {
            answer(store.delete_messages(uaid, months, messages), |_count| Answer::Deleted)
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

fn answer<T: 'static>(pending: StoreFuture<T>, answer: fn(T) -> StoreAnswer) -> PendingAnswer {
    let answered = pending.map(move |answered| match answered {
        Err(StoreError::NoSpace) => Ok(StoreAnswer::NoSpace),
        answered => answered.map(answer),
    });
    answered.boxed()
}
