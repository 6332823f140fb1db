//! A store on the thread of its callers, so that what they allocate is freed there. It keeps nothing.

use std::collections::BTreeSet;
use std::future::ready;

use state_machine::{
    BridgeRecipient, Chid, Message, MessageKey, Month, NodeId, RouterRecord, Time, Uaid,
};
use storage::{
    BridgedRegistration, Cursor, MessageTables, MonthStep, Page, PageLimit, RegisterResult,
    Registration, RouterTable, Store, StoreError, StoreFuture, Stored,
};

pub(super) struct NothingStored;

fn done<T: Send + 'static>(answer: T) -> StoreFuture<T> {
    Box::pin(ready(Ok(answer)))
}

/// The answer to what no client of the test asks for.
fn closed<T: Send + 'static>() -> StoreFuture<T> {
    Box::pin(ready(Err(StoreError::Closed)))
}

impl RouterTable for NothingStored {
    fn record(&self, _: Uaid) -> StoreFuture<Option<RouterRecord>> {
        done(None)
    }

    fn register_user(&self, registration: Registration) -> StoreFuture<RegisterResult> {
        let Registration { uaid, router_type, node, connected_at, last_connect, create_in } =
            registration;
        let Some(curmonth) = create_in else { return done(RegisterResult::UnknownAgent) };
        let (node, oldmonth) = (Some(node), None);
        let record = RouterRecord {
            uaid,
            router_type,
            node,
            connected_at,
            last_connect,
            curmonth,
            oldmonth,
        };
        done(RegisterResult::Registered(record, None))
    }

    fn update_message_month(&self, _: MonthStep) -> StoreFuture<bool> {
        closed()
    }

    fn finish_month_move(&self, _: MonthStep) -> StoreFuture<bool> {
        closed()
    }

    fn clear_node(&self, _: Uaid, _: NodeId, _: Time) -> StoreFuture<bool> {
        closed()
    }

    fn drop_user(&self, _: Uaid) -> StoreFuture<bool> {
        closed()
    }

    fn register_bridged(&self, _: BridgedRegistration) -> StoreFuture<RegisterResult> {
        closed()
    }

    fn drop_bridged(&self, _: Uaid, _: BridgeRecipient) -> StoreFuture<bool> {
        closed()
    }
}

impl MessageTables for NothingStored {
    fn channels(&self, _: Uaid, _: Month) -> StoreFuture<Option<BTreeSet<Chid>>> {
        done(None)
    }

    fn create_channels(&self, _: Uaid, _: Month, _: BTreeSet<Chid>) -> StoreFuture<()> {
        closed()
    }

    fn add_channels(&self, _: Uaid, _: Month, _: BTreeSet<Chid>) -> StoreFuture<()> {
        done(())
    }

    fn remove_channel(&self, _: Uaid, _: Vec<Month>, _: Chid) -> StoreFuture<()> {
        closed()
    }

    fn remove_channel_and_version(&self, _: Uaid, _: Vec<Month>, _: Chid) -> StoreFuture<()> {
        closed()
    }

    fn store_message(&self, _: Uaid, _: Month, _: Message) -> StoreFuture<Stored> {
        closed()
    }

    fn fetch_messages(
        &self,
        _: Uaid,
        _: Month,
        _: Option<Cursor>,
        _: PageLimit,
        _: Time,
    ) -> StoreFuture<Page> {
        done(Page { messages: Vec::new(), next: None })
    }

    fn fetch_versions(
        &self,
        _: Uaid,
        _: Option<Cursor>,
        _: PageLimit,
        _: Time,
    ) -> StoreFuture<Page> {
        closed()
    }

    fn delete_messages(&self, _: Uaid, _: Vec<Month>, _: Vec<MessageKey>) -> StoreFuture<usize> {
        closed()
    }

    fn record_offers(&self, _: Uaid, _: Month, _: Vec<MessageKey>) -> StoreFuture<()> {
        closed()
    }

    fn move_messages(&self, _: Uaid, _: Month, _: Month) -> StoreFuture<()> {
        closed()
    }

    fn ensure_month(&self, _: Month) -> StoreFuture<()> {
        closed()
    }

    fn months(&self) -> StoreFuture<Vec<Month>> {
        closed()
    }

    fn drop_month(&self, _: Month) -> StoreFuture<bool> {
        closed()
    }
}

impl storage::ReceiptTables for NothingStored {}

impl Store for NothingStored {
    fn check(&self) -> StoreFuture<()> {
        closed()
    }

    fn close(&self) -> StoreFuture<()> {
        closed()
    }
}
