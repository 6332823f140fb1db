//! A store whose messages a test can hold back on their way in.

use std::future::ready;
use std::sync::{Arc, Mutex};

use storage::{Store, StoreAnswer, StoreError, StoreFuture, StoreOp};
use tokio::sync::watch;

use crate::clockwork;
use crate::store_double::{Forward, Front, StoreDouble};

pub(crate) type GatedStore = StoreDouble<Gate>;

/// The gate in front of a store.
pub(crate) struct Gate {
    store: Arc<dyn Store>,
    is_open: watch::Sender<bool>,
    messages: watch::Sender<usize>,
    /// Reads of a record that are still answered: all of them where there is no number.
    reads_left: Mutex<Option<usize>>,
    /// The methods that were called, and the operations, since this was looked at.
    calls: Mutex<Vec<&'static str>>,
}

impl Gate {
    pub(crate) fn open(store: &Arc<dyn Store>) -> GatedStore {
        let (is_open, messages) = (watch::Sender::new(true), watch::Sender::new(0));
        let (reads_left, calls) = (Mutex::default(), Mutex::default());
        StoreDouble(Self { store: Arc::clone(store), is_open, messages, reads_left, calls })
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
        let came = self.messages.subscribe();
        clockwork::until_watched("messages at the gate", came, |came| *came >= messages).await;
    }

    /// The next reads of a record are answered, as many as that; those after them fail.
    pub(crate) fn answers_reads(&self, reads: usize) {
        *self.reads_left.lock().unwrap() = Some(reads);
    }

    /// What was called since this was asked last.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl Front for Gate {
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer> {
        self.calls.lock().unwrap().push(op.effect_name());
        self.store.execute(op)
    }

    fn call<T: Send + 'static>(&self, method: &'static str, forward: Forward<T>) -> StoreFuture<T> {
        if method == "record" {
            match &mut *self.reads_left.lock().unwrap() {
                Some(0) => return Box::pin(ready(Err(StoreError::Busy))),
                Some(reads) => *reads -= 1,
                None => {}
            }
        }
        self.calls.lock().unwrap().push(method);
        if method != "store_message" {
            return forward(&*self.store);
        }
        let (store, mut is_open) = (Arc::clone(&self.store), self.is_open.subscribe());
        self.messages.send_modify(|messages| *messages += 1);
        Box::pin(async move {
            is_open.wait_for(|is_open| *is_open).await.map_err(|_| StoreError::Closed)?;
            forward(&*store).await
        })
    }
}
