//! A store that records its operations and answers them as the transcript prescribes.

use std::future::ready;
use std::sync::{Arc, Mutex};

use state_machine::OpId;
use state_machine::connection::Effect;
use state_machine::store::{StoreAnswer, StoreFailed, StoreOp};
use storage::{StoreError, StoreFuture};
use tokio::sync::oneshot;

use super::record::Record;
use crate::store_double::{Forward, Front, StoreDouble};

type Reply = oneshot::Sender<Result<StoreAnswer, StoreFailed>>;

/// The store of one session.
pub(crate) type ScriptedStore = StoreDouble<Script>;

pub(crate) struct Script {
    record: Arc<Record>,
    /// The orders given, numbered as a connection numbers them; none where one was answered.
    orders: Mutex<Vec<Option<Reply>>>,
}

impl Script {
    pub(crate) fn store(record: &Arc<Record>) -> ScriptedStore {
        StoreDouble(Self { record: Arc::clone(record), orders: Mutex::default() })
    }

    /// Answers an order that was given and was not answered.
    pub(crate) fn answer(&self, op: OpId, answer: Result<StoreAnswer, StoreFailed>) {
        let mut orders = self.orders.lock().unwrap();
        let order = orders.get_mut(op.0 as usize).and_then(Option::take);
        match order {
            // The connection may have ended.
            Some(reply) => drop(reply.send(answer)),
            None => self.record.note(format!("store: order {} does not wait for an answer", op.0)),
        }
    }
}

impl Front for Script {
    fn execute(&self, order: StoreOp) -> StoreFuture<StoreAnswer> {
        let (reply, answer) = oneshot::channel();
        let mut orders = self.orders.lock().unwrap();
        let op = OpId(u32::try_from(orders.len()).unwrap());
        orders.push(Some(reply));
        self.record.ordered(&Effect::SubmitStoreOp { op, operation: order.clone() });
        let record = Arc::clone(&self.record);
        Box::pin(async move {
            match answer.await {
                Ok(Ok(StoreAnswer::NoSpace)) => Err(StoreError::NoSpace),
                Ok(Ok(answer)) if !answer.fits(&order) => {
                    record.note(format!("store: this is no answer to order {}", op.0));
                    Err(StoreError::Busy)
                }
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(StoreFailed)) => Err(StoreError::Busy),
                Err(_) => Err(StoreError::Closed),
            }
        })
    }

    fn call<T: Send + 'static>(&self, method: &'static str, _: Forward<T>) -> StoreFuture<T> {
        self.record.note(format!("store: a connection called {method}"));
        Box::pin(ready(Err(StoreError::Closed)))
    }
}
