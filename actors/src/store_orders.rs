//! The connection's orders to the store, and the store's answers to the connection.

use state_machine::store::{StoreAnswer, StoreOrder};
use storage::{Store, StoreError};

use std::future::Future;

/// Gives an order. The store has it when this returns; the future only brings the answer.
pub(crate) fn give(
    store: &dyn Store,
    order: StoreOrder,
) -> impl Future<Output = Result<StoreAnswer, StoreError>> + use<> {
    let answer = queue(store, order);
    async move {
        Ok(match answer {
            Queued::Registered(answer) => StoreAnswer::Registered(answer.await?),
            Queued::Channels(answer) => StoreAnswer::Channels(answer.await?),
            Queued::Fetched(answer) => StoreAnswer::Fetched(answer.await?),
            Queued::Deleted(answer) => answer.await.map(|_| StoreAnswer::Deleted)?,
            Queued::ChannelsAdded(answer) => answer.await.map(|()| StoreAnswer::ChannelsAdded)?,
            Queued::ChannelRemoved(answer) => answer.await.map(|()| StoreAnswer::ChannelRemoved)?,
            Queued::MonthUpdated(answer) => StoreAnswer::MonthUpdated(answer.await?),
            Queued::MoveFinished(answer) => StoreAnswer::MoveFinished(answer.await?),
            Queued::Carried(answer) => answer.await.map(|()| StoreAnswer::Carried)?,
            Queued::NodeCleared(answer) => StoreAnswer::NodeCleared(answer.await?),
        })
    }
}

/// An order the store has taken.
enum Queued {
    Registered(storage::Answer<storage::Registered>),
    Channels(storage::Answer<Option<std::collections::BTreeSet<state_machine::Chid>>>),
    Fetched(storage::Answer<storage::Page>),
    Deleted(storage::Answer<usize>),
    ChannelsAdded(storage::Answer<()>),
    ChannelRemoved(storage::Answer<()>),
    MonthUpdated(storage::Answer<bool>),
    MoveFinished(storage::Answer<bool>),
    Carried(storage::Answer<()>),
    NodeCleared(storage::Answer<bool>),
}

fn queue(store: &dyn Store, order: StoreOrder) -> Queued {
    match order {
        StoreOrder::Register(registration) => Queued::Registered(store.register_user(registration)),
        StoreOrder::ReadChannels { uaid, month } => Queued::Channels(store.channels(uaid, month)),
        StoreOrder::Fetch { uaid, month, after, limit, now } => {
            Queued::Fetched(store.fetch_messages(uaid, month, after, limit, now))
        }
        StoreOrder::Delete { uaid, months, messages } => {
            Queued::Deleted(store.delete_messages(uaid, months, messages))
        }
        StoreOrder::AddChannels { uaid, month, channels } => {
            Queued::ChannelsAdded(store.add_channels(uaid, month, channels))
        }
        StoreOrder::RemoveChannel { uaid, months, chid } => {
            Queued::ChannelRemoved(store.remove_channel(uaid, months, chid))
        }
        StoreOrder::UpdateMonth(step) => Queued::MonthUpdated(store.update_message_month(step)),
        StoreOrder::FinishMove(step) => Queued::MoveFinished(store.finish_month_move(step)),
        StoreOrder::CarryMessages { uaid, from, to } => {
            Queued::Carried(store.carry_messages(uaid, from, to))
        }
        StoreOrder::ClearNode { uaid, place } => {
            Queued::NodeCleared(store.clear_node(uaid, place.node, place.connected_at))
        }
    }
}
