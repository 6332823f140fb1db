//! A store that records the operations of clients, and in which a test sets the fate of one of
//! them.

use std::collections::BTreeSet;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::rt::spawn;
use state_machine::{
    BridgeRecipient, Chid, Message, MessageKey, Month, NodeId, RouterRecord, Time, Uaid,
};
use storage::{
    BridgedRegistration, Cursor, MessageTables, MonthStep, Page, PageLimit, RegisterResult,
    Registration, RouterTable, Store, StoreError, StoreFuture, Stored,
};
use tokio::sync::{oneshot, watch};

/// What becomes of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is lost on its way to the store, and so are all after it: the node died.
    Lost,
    /// It is done and never answered: the node died right after.
    Unheard,
    /// It waits in front of the store, and all after it behind it, until they are let in.
    Held,
    /// It fails and is not done.
    Refused,
    /// It is done, and the answer leaves that open.
    Doubted,
}

/// Something that a test does.
pub(crate) type Act = Arc<dyn Fn() + Send + Sync>;

/// A store with a gate in front of it.
pub(crate) struct OrderGate {
    store: Arc<dyn Store>,
    state: Mutex<State>,
    /// How many orders met the fate that was set.
    met: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    /// The orders since the gate was set last.
    orders: Vec<String>,
    /// From which order on, and what becomes of it.
    set: Option<(usize, Fate)>,
    waiting: Vec<Box<dyn FnOnce() + Send>>,
    /// What is done before an order of this name is given.
    before: Option<(&'static str, Act)>,
    refuses_subscriptions: bool,
}

impl OrderGate {
    /// With the gate open.
    pub(crate) fn open(store: &Arc<dyn Store>) -> Self {
        let (met, _) = watch::channel(0);
        Self { store: Arc::clone(store), state: Mutex::default(), met }
    }

    /// Counts operations from here, and sets the fate of the one with this number.
    pub(crate) fn set(&self, number: usize, fate: Fate) {
        self.met.send_replace(0);
        *self.state() = State { set: Some((number, fate)), ..State::default() };
    }

    /// Counts from here, and lets everything in.
    pub(crate) fn lift(&self) {
        *self.state() = State::default();
    }

    /// Runs this before each operation of this name.
    pub(crate) fn before(&self, order: &'static str, act: Act) {
        self.state().before = Some((order, act));
    }

    /// Has no space for new records and channels from now on.
    pub(crate) fn refuse_subscriptions(&self) {
        self.state().refuses_subscriptions = true;
    }

    /// Waits until this many orders have met the fate that was set.
    pub(crate) async fn has_met(&self, orders: usize) {
        self.met.subscribe().wait_for(|met| *met >= orders).await.unwrap();
    }

    /// Whether an order waits.
    pub(crate) fn is_waited_at(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Executes the held operations in their order. Later ones are held too.
    pub(crate) fn let_in(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        waiting.into_iter().for_each(|order| order());
    }

    /// Lets those in that wait, and everything from now on.
    pub(crate) fn release(&self) {
        self.state().set = None;
        self.let_in();
    }

    /// The orders since the gate was set last.
    pub(crate) fn orders(&self) -> Vec<String> {
        self.state().orders.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What becomes of the order that is given now.
    fn next(&self, name: String) -> Option<Fate> {
        let mut state = self.state();
        if let Some((_, act)) = state.before.as_ref().filter(|(order, _)| *order == name) {
            act();
        }
        let number = state.orders.len();
        state.orders.push(name);
        let (at, fate) = state.set?;
        let lasts = matches!(fate, Fate::Lost | Fate::Held);
        (number == at || (number > at && lasts)).then_some(fate)
    }

    fn pass<T: Send + 'static>(
        &self,
        name: String,
        order: impl FnOnce(&dyn Store) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let Some(fate) = self.next(name) else { return order(&*self.store) };
        match fate {
            Fate::Lost => {
                self.another_has_met();
                Box::pin(pending())
            }
            Fate::Unheard => {
                let (answer, met) = (order(&*self.store), self.met.clone());
                spawn(async move {
                    drop(answer.await);
                    met.send_modify(|met| *met += 1);
                });
                Box::pin(pending())
            }
            Fate::Held => self.hold(order),
            Fate::Refused => {
                self.another_has_met();
                Box::pin(ready(Err(StoreError::Busy)))
            }
            Fate::Doubted => {
                self.another_has_met();
                let answer = order(&*self.store);
                Box::pin(async {
                    answer.await?;
                    Err(StoreError::Failed("nobody knows".to_owned()))
                })
            }
        }
    }

    fn hold<T: Send + 'static>(
        &self,
        order: impl FnOnce(&dyn Store) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let (reply, answer) = oneshot::channel();
        let store = Arc::clone(&self.store);
        self.state().waiting.push(Box::new(move || {
            let answered = order(&*store);
            // The operation is executed even if its caller is gone.
            spawn(async move { drop(reply.send(answered.await)) });
        }));
        self.another_has_met();
        Box::pin(async { answer.await.unwrap_or(Err(StoreError::Closed)) })
    }

    fn another_has_met(&self) {
        self.met.send_modify(|met| *met += 1);
    }
}

/// Methods that are orders of a client, each with what is written down of it.
macro_rules! orders {
    ($($method:ident($($name:ident: $type:ty),*) -> $answer:ty, $($text:tt),+;)*) => {
        $(fn $method(&self, $($name: $type),*) -> StoreFuture<$answer> {
            let text = format!($($text),+);
            self.pass(text, move |store| store.$method($($name),*))
        })*
    };
}

/// Methods that no client calls.
macro_rules! passed_on {
    ($($method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $method(&self, $($name: $type),*) -> StoreFuture<$answer> {
            self.store.$method($($name),*)
        })*
    };
}

impl RouterTable for OrderGate {
    orders! {
        register_user(registration: Registration) -> RegisterResult, "register";
        update_message_month(step: MonthStep) -> bool, "update month";
        finish_month_move(step: MonthStep) -> bool, "finish move";
        clear_node(uaid: Uaid, node: NodeId, connected_at: Time) -> bool, "clear node";
    }

    passed_on! {
        record(uaid: Uaid) -> Option<RouterRecord>;
        drop_user(uaid: Uaid) -> bool;
        register_bridged(registration: BridgedRegistration) -> RegisterResult;
        drop_bridged(uaid: Uaid, recipient: BridgeRecipient) -> bool;
    }
}

impl MessageTables for OrderGate {
    orders! {
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>>, "read channels {month}";
        add_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> (),
            "add channels {month}";
        remove_channel(uaid: Uaid, months: Vec<Month>, chid: Chid) -> (),
            "remove channel {months:?}";
        remove_channel_and_version(uaid: Uaid, months: Vec<Month>, chid: Chid) -> (),
            "remove channel and version {months:?}";
        fetch_messages(
            uaid: Uaid,
            month: Month,
            after: Option<Cursor>,
            limit: PageLimit,
            now: Time
        ) -> Page, "fetch {month}";
        fetch_versions(uaid: Uaid, after: Option<Cursor>, limit: PageLimit, now: Time) -> Page,
            "fetch versions";
        delete_messages(uaid: Uaid, months: Vec<Month>, messages: Vec<MessageKey>) -> usize,
            "delete {months:?}";
        record_offers(uaid: Uaid, month: Month, messages: Vec<MessageKey>) -> (),
            "record offers {month}";
        move_messages(uaid: Uaid, from: Month, to: Month) -> (), "carry {from} {to}";
    }

    passed_on! {
        create_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> ();
        store_message(uaid: Uaid, month: Month, message: Message) -> Stored;
        ensure_month(month: Month) -> ();
        months() -> Vec<Month>;
        drop_month(month: Month) -> bool;
    }
}

impl storage::ReceiptTables for OrderGate {}

impl Store for OrderGate {
    fn admits_subscription(&self) -> bool {
        !self.state().refuses_subscriptions
    }

    passed_on! {
        check() -> ();
        close() -> ();
    }
}
