//! A store on the thread of its callers, so that what they allocate is freed there. It keeps nothing.

use std::future::ready;

use state_machine::RouterRecord;
use state_machine::store::{StoreAnswer, StoreOp};
use storage::{Page, RegisterResult, Registration, StoreError, StoreFuture};

use crate::store_double::{Call, Front};

pub(super) struct NothingStored;

impl Front for NothingStored {
    fn call<T: Send + 'static>(&self, call: Call<T>) -> StoreFuture<T> {
        let answer = match call.op {
            Some(StoreOp::Register(registration)) => registered(registration),
            Some(StoreOp::ReadChannels { .. }) => StoreAnswer::Channels(None),
            Some(StoreOp::AddChannels { .. }) => StoreAnswer::ChannelsAdded,
            Some(StoreOp::Fetch { .. }) => StoreAnswer::Fetched(Page::default()),
            // No client of the test asks for it.
            _ => return Box::pin(ready(Err(StoreError::Closed))),
        };
        Box::pin(ready((call.read)(answer).ok_or(StoreError::Closed)))
    }
}

fn registered(registration: Registration) -> StoreAnswer {
    let Registration { uaid, router_type, node, connected_at, last_connect, create_in } =
        registration;
    let record = |curmonth| RouterRecord {
        uaid,
        router_type,
        node: Some(node),
        connected_at,
        last_connect,
        curmonth,
        oldmonth: None,
    };
    StoreAnswer::Registered(match create_in.map(record) {
        Some(record) => RegisterResult::Registered(record, None),
        None => RegisterResult::UnknownAgent,
    })
}
