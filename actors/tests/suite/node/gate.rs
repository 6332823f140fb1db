//! A store whose messages a test can hold back on their way in.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::{Arc, Mutex};

use state_machine::{
    BridgeRecipient, Chid, Message, MessageKey, Month, NodeId, RouterRecord, Time, Uaid,
};
use storage::{
    BridgedRegistration, Cursor, MessageTables, MonthStep, Page, PageLimit, RegisterResult,
    Registration, RouterTable, Store, StoreError, StoreFuture, Stored,
};
use tokio::sync::watch;

/// A store behind a gate.
pub(crate) struct GatedStore {
    store: Arc<dyn Store>,
    is_open: watch::Sender<bool>,
    messages: watch::Sender<usize>,
    /// Reads of a record that are still answered: all of them where there is no number.
    reads_left: Mutex<Option<usize>>,
    /// The methods that were called since this was looked at.
    calls: Mutex<Vec<&'static str>>,
}

impl GatedStore {
    /// With the gate open.
    pub(crate) fn open(store: &Arc<dyn Store>) -> Self {
        let (is_open, _) = watch::channel(true);
        let (messages, _) = watch::channel(0);
        let (reads_left, calls) = (Mutex::default(), Mutex::default());
        Self { store: Arc::clone(store), is_open, messages, reads_left, calls }
    }

    /// Holds messages back, or lets them in.
    pub(crate) fn set_open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.is_open.borrow()
    }

    /// The number of messages that have reached the gate.
    pub(crate) fn messages(&self) -> usize {
        *self.messages.borrow()
    }

    /// Waits until this many messages have reached the gate.
    pub(crate) async fn has_messages(&self, messages: usize) {
        self.messages.subscribe().wait_for(|came| *came >= messages).await.unwrap();
    }

    /// The next reads of a record are answered, as many as that; those after them fail.
    pub(crate) fn answers_reads(&self, reads: usize) {
        *self.reads_left.lock().unwrap() = Some(reads);
    }

    /// What was called since this was asked last.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn called(&self, method: &'static str) {
        self.calls.lock().unwrap().push(method);
    }
}

/// Methods that the store behind the gate has.
macro_rules! passed_on {
    ($($method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $method(&self, $($name: $type),*) -> StoreFuture<$answer> {
            self.called(stringify!($method));
            self.store.$method($($name),*)
        })*
    };
}

impl RouterTable for GatedStore {
    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>> {
        match &mut *self.reads_left.lock().unwrap() {
            Some(0) => return Box::pin(ready(Err(StoreError::Busy))),
            Some(reads) => *reads -= 1,
            None => {}
        }
        self.called("record");
        self.store.record(uaid)
    }

    passed_on! {
        register_user(registration: Registration) -> RegisterResult;
        update_message_month(step: MonthStep) -> bool;
        finish_month_move(step: MonthStep) -> bool;
        clear_node(uaid: Uaid, node: NodeId, connected_at: Time) -> bool;
        drop_user(uaid: Uaid) -> bool;
        register_bridged(registration: BridgedRegistration) -> RegisterResult;
        drop_bridged(uaid: Uaid, recipient: BridgeRecipient) -> bool;
    }
}

impl MessageTables for GatedStore {
    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored> {
        let (store, mut is_open) = (Arc::clone(&self.store), self.is_open.subscribe());
        self.messages.send_modify(|messages| *messages += 1);
        self.called("store_message");
        Box::pin(async move {
            is_open.wait_for(|is_open| *is_open).await.map_err(|_| StoreError::Closed)?;
            store.store_message(uaid, month, message).await
        })
    }

    passed_on! {
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>>;
        add_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> ();
        create_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> ();
        remove_channel(uaid: Uaid, months: Vec<Month>, chid: Chid) -> ();

        remove_channel_and_version(uaid: Uaid, months: Vec<Month>, chid: Chid) -> ();
        fetch_messages(
            uaid: Uaid,
            month: Month,
            after: Option<Cursor>,
            limit: PageLimit,
            now: Time
        ) -> Page;
        fetch_versions(uaid: Uaid, after: Option<Cursor>, limit: PageLimit, now: Time) -> Page;
        delete_messages(uaid: Uaid, months: Vec<Month>, messages: Vec<MessageKey>) -> usize;
        record_offers(uaid: Uaid, month: Month, messages: Vec<MessageKey>) -> ();
        move_messages(uaid: Uaid, from: Month, to: Month) -> ();
        ensure_month(month: Month) -> ();
        months() -> Vec<Month>;
        drop_month(month: Month) -> bool;
    }
}

impl storage::ReceiptTables for GatedStore {}

impl Store for GatedStore {
    passed_on! {
        check() -> ();
        close() -> ();
    }
}
