//! The contract, method by method: in which order, of which rank, which operation.

use std::collections::BTreeSet;

use state_machine::{Chid, Message, MessageRef, Month, NodeId, RouterRecord, Time, Uaid};

use super::queue::Rank;
use super::{Dynamo, carry, channels, fetch, messages, registration, router, tables};
use crate::contract::{
    Answer, Cursor, MessageTables, MonthStep, Page, PageLimit, Registered, Registration,
    RouterTable, Store, Stored,
};

impl RouterTable for Dynamo {
    fn record(&self, uaid: Uaid) -> Answer<Option<RouterRecord>> {
        self.ask_as(Rank::Router, async move |link| router::read(&link, uaid).await)
    }

    fn register_user(&self, registration: Registration) -> Answer<Registered> {
        let uaid = registration.uaid;
        self.write_as(Rank::Router, uaid, async move |link| {
            registration::register(&link, &registration).await
        })
    }

    fn update_message_month(&self, step: MonthStep) -> Answer<bool> {
        self.write_as(Rank::Router, step.uaid, async move |link| {
            router::update_message_month(&link, &step).await
        })
    }

    fn finish_month_move(&self, step: MonthStep) -> Answer<bool> {
        self.write_as(Rank::Router, step.uaid, async move |link| {
            router::finish_month_move(&link, &step).await
        })
    }

    fn clear_node(&self, uaid: Uaid, node: NodeId, connected_at: Time) -> Answer<bool> {
        // Each push that finds the node gone asks for it: not what may take the last places.
        self.write(uaid, async move |link| {
            router::clear_node(&link, uaid, &node, connected_at).await
        })
    }

    fn drop_user(&self, uaid: Uaid) -> Answer<bool> {
        self.write_as(Rank::Router, uaid, async move |link| router::drop_user(&link, uaid).await)
    }
}

impl MessageTables for Dynamo {
    fn channels(&self, uaid: Uaid, month: Month) -> Answer<Option<BTreeSet<Chid>>> {
        self.ask(async move |link| channels::read(&link, uaid, month).await)
    }

    fn add_channels(&self, uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> Answer<()> {
        self.write(uaid, async move |link| channels::add(&link, uaid, month, &channels).await)
    }

    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> Answer<()> {
        self.write(uaid, async move |link| channels::remove(&link, uaid, &months, chid).await)
    }

    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> Answer<Stored> {
        self.write_as(Rank::Store, uaid, async move |link| {
            messages::store(&link, uaid, month, &message).await
        })
    }

    fn fetch_messages(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> Answer<Page> {
        self.ask(async move |link| {
            fetch::fetch(&link, uaid, month, after.as_ref(), limit, now).await
        })
    }

    fn delete_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageRef>,
    ) -> Answer<usize> {
        self.write(uaid, async move |link| messages::delete(&link, uaid, &months, &messages).await)
    }

    fn carry_messages(&self, uaid: Uaid, from: Month, to: Month) -> Answer<()> {
        self.write(uaid, async move |link| carry::carry(&link, uaid, from, to).await)
    }

    fn ensure_month(&self, month: Month) -> Answer<()> {
        self.ask(async move |link| tables::ensure_month(&link, month).await)
    }

    fn months(&self) -> Answer<Vec<Month>> {
        self.ask(async move |link| tables::months(&link).await)
    }

    fn drop_month(&self, month: Month) -> Answer<bool> {
        self.ask(async move |link| tables::drop_month(&link, month).await)
    }
}

impl Store for Dynamo {
    fn check(&self) -> Answer<()> {
        self.ask_as(Rank::Router, async move |link| router::check(&link).await)
    }

    fn close(&self) -> Answer<()> {
        self.queue.close()
    }
}
