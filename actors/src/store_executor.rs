//! Executes a connection's store operations.

use state_machine::store::{StoreAnswer, StoreOp};
use storage::{Store, StoreError};

use std::future::Future;

/// Submits an operation. The store has it when this returns; the future yields the answer.
pub(crate) fn submit(
    store: &dyn Store,
    order: StoreOp,
) -> impl Future<Output = Result<StoreAnswer, StoreError>> + use<> {
    let answer = queue(store, order);
    async move {
        Ok(match answer {
            PendingOp::Registered(answer) => StoreAnswer::Registered(answer.await?),
            PendingOp::Channels(answer) => StoreAnswer::Channels(answer.await?),
            PendingOp::Fetched(answer) => StoreAnswer::Fetched(answer.await?),
            PendingOp::Deleted(answer) => answer.await.map(|_| StoreAnswer::Deleted)?,
            PendingOp::ChannelsAdded(answer) => {
                answer.await.map(|()| StoreAnswer::ChannelsAdded)?
            }
            PendingOp::ChannelRemoved(answer) => {
                answer.await.map(|()| StoreAnswer::ChannelRemoved)?
            }
            PendingOp::MonthUpdated(answer) => StoreAnswer::MonthUpdated(answer.await?),
            PendingOp::MoveFinished(answer) => StoreAnswer::MoveFinished(answer.await?),
            PendingOp::Carried(answer) => answer.await.map(|()| StoreAnswer::Moved)?,
            PendingOp::NodeCleared(answer) => StoreAnswer::NodeCleared(answer.await?),
        })
    }
}

/// An operation that the store has accepted.
enum PendingOp {
    Registered(storage::StoreFuture<storage::RegisterResult>),
    Channels(storage::StoreFuture<Option<std::collections::BTreeSet<state_machine::Chid>>>),
    Fetched(storage::StoreFuture<storage::Page>),
    Deleted(storage::StoreFuture<usize>),
    ChannelsAdded(storage::StoreFuture<()>),
    ChannelRemoved(storage::StoreFuture<()>),
    MonthUpdated(storage::StoreFuture<bool>),
    MoveFinished(storage::StoreFuture<bool>),
    Carried(storage::StoreFuture<()>),
    NodeCleared(storage::StoreFuture<bool>),
}

fn queue(store: &dyn Store, order: StoreOp) -> PendingOp {
    match order {
        StoreOp::Register(registration) => PendingOp::Registered(store.register_user(registration)),
        StoreOp::ReadChannels { uaid, month } => PendingOp::Channels(store.channels(uaid, month)),
        StoreOp::Fetch { uaid, month, after, limit, now } => {
            PendingOp::Fetched(store.fetch_messages(uaid, month, after, limit, now))
        }
        StoreOp::Delete { uaid, months, messages } => {
            PendingOp::Deleted(store.delete_messages(uaid, months, messages))
        }
        StoreOp::AddChannels { uaid, month, channels } => {
            PendingOp::ChannelsAdded(store.add_channels(uaid, month, channels))
        }
        StoreOp::RemoveChannel { uaid, months, chid } => {
            PendingOp::ChannelRemoved(store.remove_channel(uaid, months, chid))
        }
        StoreOp::UpdateMonth(step) => PendingOp::MonthUpdated(store.update_message_month(step)),
        StoreOp::FinishMove(step) => PendingOp::MoveFinished(store.finish_month_move(step)),
        StoreOp::MoveMessages { uaid, from, to } => {
            PendingOp::Carried(store.move_messages(uaid, from, to))
        }
        StoreOp::ClearNode { uaid, binding: place } => {
            PendingOp::NodeCleared(store.clear_node(uaid, place.node, place.connected_at))
        }
    }
}
