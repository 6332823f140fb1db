//! A store on the thread of its callers, so that what they allocate is freed there. It keeps nothing.

use std::future::ready;

use storage::{Page, RegisterResult, Registration, StoreAnswer, StoreError, StoreFuture, StoreOp};

use crate::store_double::{Forward, Front};

pub(super) struct NothingStored;

impl Front for NothingStored {
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer> {
        let answer = match op {
            StoreOp::Register(registration) => registered(registration),
            StoreOp::ReadChannels { .. } => StoreAnswer::Channels(None),
            StoreOp::AddChannels { .. } => StoreAnswer::ChannelsAdded,
            StoreOp::Fetch { .. } => StoreAnswer::Fetched(Page::default()),
            // No client of the test asks for it.
            _ => return Box::pin(ready(Err(StoreError::Closed))),
        };
        Box::pin(ready(Ok(answer)))
    }

    /// No client of the test calls it.
    fn call<T: Send + 'static>(&self, _: &'static str, _: Forward<T>) -> StoreFuture<T> {
        Box::pin(ready(Err(StoreError::Closed)))
    }
}

fn registered(registration: Registration) -> StoreAnswer {
    StoreAnswer::Registered(match registration.create_in {
        Some(month) => RegisterResult::Registered(registration.record(month), None),
        None => RegisterResult::UnknownAgent,
    })
}
