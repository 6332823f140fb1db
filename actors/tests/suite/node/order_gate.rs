//! A store that records the operations of clients, and in which a test sets the fate of one of
//! them.

use std::future::{pending, ready};
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::rt::spawn;
use storage::{Store, StoreAnswer, StoreError, StoreFuture, StoreOp};
use tokio::sync::{oneshot, watch};

use crate::clockwork;
use crate::store_double::{Forward, Front, StoreDouble};

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

pub(crate) type OrderedStore = StoreDouble<OrderGate>;

/// The gate in front of the store of clients.
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
    pub(crate) fn open(store: &Arc<dyn Store>) -> OrderedStore {
        let met = watch::Sender::new(0);
        StoreDouble(Self { store: Arc::clone(store), state: Mutex::default(), met })
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
        let met = self.met.subscribe();
        clockwork::until_watched("orders that met their fate", met, |met| *met >= orders).await;
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

    fn hold(&self, order: StoreOp) -> StoreFuture<StoreAnswer> {
        let (reply, answer) = oneshot::channel();
        let store = Arc::clone(&self.store);
        self.state().waiting.push(Box::new(move || {
            let answered = store.execute(order);
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

impl Front for OrderGate {
    fn execute(&self, order: StoreOp) -> StoreFuture<StoreAnswer> {
        let Some(fate) = self.next(name(&order)) else {
            return self.store.execute(order);
        };
        match fate {
            Fate::Lost => {
                self.another_has_met();
                Box::pin(pending())
            }
            Fate::Unheard => {
                let (answer, met) = (self.store.execute(order), self.met.clone());
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
                let answer = self.store.execute(order);
                Box::pin(async {
                    answer.await?;
                    Err(StoreError::Failed("nobody knows".to_owned()))
                })
            }
        }
    }

    fn call<T: Send + 'static>(&self, _: &'static str, forward: Forward<T>) -> StoreFuture<T> {
        forward(&*self.store)
    }

    fn admits_subscription(&self) -> bool {
        !self.state().refuses_subscriptions
    }
}

/// What is written down of an operation.
fn name(op: &StoreOp) -> String {
    match op {
        StoreOp::Register(_) => "register".to_owned(),
        StoreOp::UpdateMonth(_) => "update month".to_owned(),
        StoreOp::FinishMove(_) => "finish move".to_owned(),
        StoreOp::ClearNode { .. } => "clear node".to_owned(),
        StoreOp::ReadChannels { month, .. } => format!("read channels {month}"),
        StoreOp::AddChannels { month, .. } => format!("add channels {month}"),
        StoreOp::CreateChannels { month, .. } => format!("create channels {month}"),
        StoreOp::RemoveChannel { months, .. } => format!("remove channel {months:?}"),
        StoreOp::RemoveChannelAndVersion { months, .. } => {
            format!("remove channel and version {months:?}")
        }
        StoreOp::Fetch { month, .. } => format!("fetch {month}"),
        StoreOp::FetchVersions { .. } => "fetch versions".to_owned(),
        StoreOp::Delete { months, .. } => format!("delete {months:?}"),
        StoreOp::RecordOffers { month, .. } => format!("record offers {month}"),
        StoreOp::MoveMessages { from, to, .. } => format!("carry {from} {to}"),
    }
}
