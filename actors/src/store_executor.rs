//! Executes the store operations of the state machines.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_machine::store::{StoreAnswer, StoreOp};
use storage::{Store, StoreError};

use crate::feeds::Feeds;

/// The pending answer to an operation.
pub(crate) type PendingAnswer = BoxFuture<'static, Result<StoreAnswer, StoreError>>;

/// Submits an operation, whose receipts `feeds` publishes. The store has it when this returns; the future yields the answer.
pub(crate) fn submit(store: &dyn Store, feeds: Option<&Feeds>, op: StoreOp) -> PendingAnswer {
    let wants_receipts = matches!(&op, StoreOp::Delete { acks, .. } if !acks.is_empty());
    let pending = store.execute(op);
    let pending = match feeds {
        Some(feeds) if wants_receipts => feeds.publish_receipts(pending),
        _ => pending,
    };
    let answered = pending.map(|answered| match answered {
        Err(StoreError::NoSpace) => Ok(StoreAnswer::NoSpace),
        answered => answered,
    });
    answered.boxed()
}
