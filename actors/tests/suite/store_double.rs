//! A test's stand-in for a store, or for the way to one: each call of a method is one [`Call`].

use std::collections::BTreeSet;
use std::ops::Deref;

use state_machine::store::{StoreAnswer, StoreOp};
use state_machine::{
    BridgeRecipient, Chid, Message, MessageKey, Month, NodeBinding, NodeId, RouterRecord, Time,
    Uaid,
};
use storage::{
    BridgedRegistration, Cursor, MessageTables, MonthStep, Page, PageLimit, ReceiptTables,
    RegisterResult, Registration, RouterTable, SettledMessages, Settlement, Store, StoreFuture,
    Stored,
};

/// What a test does with calls.
pub(crate) trait Front: Send + Sync + 'static {
    fn call<T: Send + 'static>(&self, call: Call<T>) -> StoreFuture<T>;

    fn admits_subscription(&self) -> bool {
        true
    }
}

/// The call of a method.
pub(crate) struct Call<T> {
    pub(crate) method: &'static str,
    /// The operation of a connection that makes it; none if no connection does.
    pub(crate) op: Option<StoreOp>,
    /// Makes the call to another store.
    pub(crate) forward: Forward<T>,
    /// What the method returns when the operation has this answer.
    pub(crate) read: fn(StoreAnswer) -> Option<T>,
}

pub(crate) type Forward<T> = Box<dyn FnOnce(&dyn Store) -> StoreFuture<T> + Send>;

/// A store whose calls a test handles.
pub(crate) struct StoreDouble<F>(pub(crate) F);

impl<F> Deref for StoreDouble<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

/// Methods that execute operations, and what their answers hold.
macro_rules! operations {
    ($($method:ident($($name:ident: $type:ty),*) -> $answer:ty: $op:expr, $held:pat => $value:expr;)*) => {
        $(fn $method(&self, $($name: $type),*) -> StoreFuture<$answer> {
            let op = {
                $(let $name = Clone::clone(&$name);)*
                Some($op)
            };
            let forward: Forward<$answer> = Box::new(move |store| store.$method($($name),*));
            let read: fn(StoreAnswer) -> Option<$answer> = |answer| match answer {
                $held => Some($value),
                _ => None,
            };
            self.call(Call { method: stringify!($method), op, forward, read })
        })*
    };
}

/// Methods that no connection calls.
macro_rules! others {
    ($($method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $method(&self, $($name: $type),*) -> StoreFuture<$answer> {
            let forward: Forward<$answer> = Box::new(move |store| store.$method($($name),*));
            self.call(Call { method: stringify!($method), op: None, forward, read: |_| None })
        })*
    };
}

impl<F: Front> RouterTable for StoreDouble<F> {
    operations! {
        register_user(registration: Registration) -> RegisterResult:
            StoreOp::Register(registration), StoreAnswer::Registered(result) => result;
        update_message_month(step: MonthStep) -> bool:
            StoreOp::UpdateMonth(step), StoreAnswer::MonthUpdated(is_done) => is_done;
        finish_month_move(step: MonthStep) -> bool:
            StoreOp::FinishMove(step), StoreAnswer::MoveFinished(is_done) => is_done;
        clear_node(uaid: Uaid, node: NodeId, connected_at: Time) -> bool:
            StoreOp::ClearNode { uaid, binding: NodeBinding { node, connected_at } },
            StoreAnswer::NodeCleared(is_done) => is_done;
    }

    others! {
        record(uaid: Uaid) -> Option<RouterRecord>;
        drop_user(uaid: Uaid) -> bool;
        register_bridged(registration: BridgedRegistration) -> RegisterResult;
        drop_bridged(uaid: Uaid, recipient: BridgeRecipient) -> bool;
    }
}

impl<F: Front> MessageTables for StoreDouble<F> {
    operations! {
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>>:
            StoreOp::ReadChannels { uaid, month }, StoreAnswer::Channels(channels) => channels;
        add_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> ():
            StoreOp::AddChannels { uaid, month, channels }, StoreAnswer::ChannelsAdded => ();
        create_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> ():
            StoreOp::CreateChannels { uaid, month, channels }, StoreAnswer::ChannelsAdded => ();
        remove_channel(uaid: Uaid, months: Vec<Month>, chid: Chid) -> ():
            StoreOp::RemoveChannel { uaid, months, chid }, StoreAnswer::ChannelRemoved => ();
        remove_channel_and_version(uaid: Uaid, months: Vec<Month>, chid: Chid) -> ():
            StoreOp::RemoveChannelAndVersion { uaid, months, chid }, StoreAnswer::ChannelRemoved => ();
        fetch_messages(uaid: Uaid, month: Month, after: Option<Cursor>, limit: PageLimit, now: Time) -> Page:
            StoreOp::Fetch { uaid, month, after, limit, now }, StoreAnswer::Fetched(page) => page;
        fetch_versions(uaid: Uaid, after: Option<Cursor>, limit: PageLimit, now: Time) -> Page:
            StoreOp::FetchVersions { uaid, after, limit, now }, StoreAnswer::Fetched(page) => page;
        delete_messages(uaid: Uaid, months: Vec<Month>, messages: Vec<MessageKey>) -> usize:
            StoreOp::Delete { uaid, months, messages, acks: Vec::new() }, StoreAnswer::Deleted => 0;
        record_offers(uaid: Uaid, month: Month, messages: Vec<MessageKey>) -> ():
            StoreOp::RecordOffers { uaid, month, messages }, StoreAnswer::OffersRecorded => ();
        move_messages(uaid: Uaid, from: Month, to: Month) -> ():
            StoreOp::MoveMessages { uaid, from, to }, StoreAnswer::Moved => ();
    }

    others! {
        store_message(uaid: Uaid, month: Month, message: Message) -> Stored;
        ensure_month(month: Month) -> ();
        months() -> Vec<Month>;
        drop_month(month: Month) -> bool;
    }
}

impl<F: Front> ReceiptTables for StoreDouble<F> {
    operations! {
        settle_messages(uaid: Uaid, months: Vec<Month>, messages: Vec<(MessageKey, Settlement)>) -> SettledMessages:
            settlement(uaid, months, messages), StoreAnswer::Deleted => SettledMessages::default();
    }
}

impl<F: Front> Store for StoreDouble<F> {
    fn admits_subscription(&self) -> bool {
        Front::admits_subscription(&self.0)
    }

    others! {
        check() -> ();
        close() -> ();
    }
}

fn settlement(uaid: Uaid, months: Vec<Month>, messages: Vec<(MessageKey, Settlement)>) -> StoreOp {
    let acks = messages.iter().filter_map(|(message, settlement)| match settlement {
        Settlement::Acked(code) => Some((message.id, *code)),
        Settlement::Withdrawn => None,
    });
    let acks = acks.collect();
    let messages = messages.into_iter().map(|(message, _)| message).collect();
    StoreOp::Delete { uaid, months, messages, acks }
}
