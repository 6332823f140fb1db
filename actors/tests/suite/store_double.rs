//! A test's stand-in for a store, or for the way to one.

use std::collections::BTreeSet;
use std::ops::Deref;

use state_machine::{BridgeRecipient, Chid, Message, Month, RouterRecord, Uaid};
use storage::{
    BridgedRegistration, ReceiptTables, RegisterResult, Store, StoreAnswer, StoreFuture, StoreOp,
    Stored,
};

/// What a test does with calls.
pub(crate) trait Front: Send + Sync + 'static {
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer>;

    /// Any other call, of the method with this name; `forward` makes it to another store.
    fn call<T: Send + 'static>(&self, method: &'static str, forward: Forward<T>) -> StoreFuture<T>;

    fn admits_subscription(&self) -> bool {
        true
    }
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

/// Methods that no connection calls.
macro_rules! others {
    ($($method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $method(&self, $($name: $type),*) -> StoreFuture<$answer> {
            self.call(stringify!($method), Box::new(move |store| store.$method($($name),*)))
        })*
    };
}

impl<F: Front> Store for StoreDouble<F> {
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer> {
        Front::execute(&self.0, op)
    }

    fn admits_subscription(&self) -> bool {
        Front::admits_subscription(&self.0)
    }

    others! {
        record(uaid: Uaid) -> Option<RouterRecord>;
        register_bridged(registration: BridgedRegistration) -> RegisterResult;
        drop_user(uaid: Uaid) -> bool;
        drop_bridged(uaid: Uaid, recipient: BridgeRecipient) -> bool;
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>>;
        store_message(uaid: Uaid, month: Month, message: Message) -> Stored;
        ensure_month(month: Month) -> ();
        months() -> Vec<Month>;
        drop_month(month: Month) -> bool;
        check() -> ();
        close() -> ();
    }
}

impl<F: Front> ReceiptTables for StoreDouble<F> {}
