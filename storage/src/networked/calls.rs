//! The store of a server, and how it makes a call.

use std::sync::Arc;

use state_machine::Uaid;

use crate::queue::{Priority, Queue};
use crate::store::{StoreError, StoreFuture};

/// What is common to all calls of an engine.
pub trait Server: Send + Sync + 'static {
    type Error: Into<StoreError> + Send + 'static;

    /// Messages that were deleted for another one, which was above a bound.
    fn gave_way(&self) -> u64;
}

/// A store on a server.
///
/// Dropping it without [`Store::close`] loses no write: the queued calls are finished in the background.
pub struct Networked<E> {
    pub(super) engine: Arc<E>,
    pub(super) queue: Queue,
}

impl<E: Server> Networked<E> {
    /// The engine's own tasks run on the threads of the queue too.
    pub fn new(engine: E, queue: Queue) -> Self {
        Self { engine: Arc::new(engine), queue }
    }

    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Runs a call, in order with the other writes of the user agent if one is named.
    pub(super) fn run<T: Send + 'static, F>(
        &self,
        priority: Priority,
        agent: Option<Uaid>,
        call: impl FnOnce(Arc<E>) -> F,
    ) -> StoreFuture<T>
    where
        F: Future<Output = Result<T, E::Error>> + Send + 'static,
    {
        let call = call(self.engine.clone());
        self.queue.run(priority, agent, async { call.await.map_err(Into::into) })
    }
}
