//! The contract of a store: order, priority and operation of each method.

use std::collections::BTreeSet;

use futures_util::TryFutureExt;
use state_machine::{
    BridgeRecipient, Chid, Message, MessageKey, Month, NodeId, RouterRecord, Time, Uaid,
};

use super::queue::Priority;
use super::{
    Dynamo, channels, messages, move_messages, notifications, query, registration, router, tables,
};
use crate::notifications::{self as versions, Notification, NotificationTable};
use crate::registration::NewRecord;
use crate::rows::RecordRow;
use crate::rules::record_rows::RecordRows;
use crate::rules::records;
use crate::store::{
    BridgedRegistration, Cursor, MessageTables, MonthStep, Page, PageLimit, QueueState,
    RegisterResult, Registration, RouterTable, Store, StoreFuture, Stored,
};

impl RouterTable for Dynamo {
    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>> {
        self.run(Priority::Router, None, async move |client| {
            client.record(uaid).await.map(|row| row.and_then(RecordRow::served))
        })
    }

    fn register_user(&self, registration: Registration) -> StoreFuture<RegisterResult> {
        let uaid = registration.uaid;
        self.run(Priority::Router, Some(uaid), async move |client| {
            registration::register(&client, &NewRecord::from(&registration)).await
        })
    }

    fn register_bridged(&self, registration: BridgedRegistration) -> StoreFuture<RegisterResult> {
        let new = NewRecord::from(registration);
        self.run(Priority::Router, Some(new.uaid), async move |client| {
            registration::register(&client, &new).await
        })
    }

    fn update_message_month(&self, step: MonthStep) -> StoreFuture<bool> {
        self.run(Priority::Router, Some(step.uaid), async move |client| {
            records::update_message_month(&*client, &step).await
        })
    }

    fn finish_month_move(&self, step: MonthStep) -> StoreFuture<bool> {
        self.run(Priority::Router, Some(step.uaid), async move |client| {
            records::finish_month_move(&*client, &step).await
        })
    }

    fn clear_node(&self, uaid: Uaid, node: NodeId, connected_at: Time) -> StoreFuture<bool> {
        // Each push to a lost node clears it: too frequent for the last slots.
        self.run(Priority::Messages, Some(uaid), async move |client| {
            records::clear_node(&*client, uaid, &node, connected_at).await
        })
    }

    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool> {
        self.run(Priority::Router, Some(uaid), async move |client| {
            router::drop_user(&client, uaid).await
        })
    }

    fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> StoreFuture<bool> {
        self.run(Priority::Router, Some(uaid), async move |client| {
            router::drop_bridged(&client, uaid, &recipient).await
        })
    }
}

impl MessageTables for Dynamo {
    calls! {
        channels(uaid: Uaid, month: Month) -> Option<BTreeSet<Chid>> =
            |client| channels::read(client, uaid, month);

        fetch_messages(
            uaid: Uaid, month: Month, after: Option<Cursor>, limit: PageLimit, now: Time
        ) -> Page = |client| query::fetch(client, uaid, month, after.as_ref(), limit, now);

        ensure_month(month: Month) -> () = |client| tables::ensure_month(client, month);

        months() -> Vec<Month> = |client| tables::months(client);

        drop_month(month: Month) -> bool = |client| tables::drop_month(client, month);
    }

    fn add_channels(&self, uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> StoreFuture<()> {
        self.run(Priority::Messages, Some(uaid), async move |client| {
            channels::add(&client, uaid, month, &channels).await
        })
    }

    fn create_channels(
        &self,
        uaid: Uaid,
        month: Month,
        channels: BTreeSet<Chid>,
    ) -> StoreFuture<()> {
        self.run(Priority::Messages, Some(uaid), async move |client| {
            channels::create(&client, uaid, month, &channels).await
        })
    }

    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> StoreFuture<()> {
        self.run(Priority::Messages, Some(uaid), async move |client| {
            channels::remove(&client, uaid, &months, chid).await
        })
    }

    fn remove_channel_and_version(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        chid: Chid,
    ) -> StoreFuture<()> {
        self.run(Priority::Messages, Some(uaid), async move |client| {
            channels::remove(&client, uaid, &months, chid).await?;
            notifications::delete(&client, uaid, chid, None).await.map(|_was_there| ())
        })
    }

    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored> {
        if let Some(version) = Notification::of(&message) {
            let saved = self.save_notification(uaid, version);
            // A higher version that is there has replaced it.
            return Box::pin(saved.map_ok(|_is_higher| Stored::Done));
        }
        self.run(Priority::Store, Some(uaid), async move |client| {
            messages::store(&client, uaid, month, &message).await
        })
    }

    fn fetch_versions(
        &self,
        uaid: Uaid,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page> {
        versions::fetch_page(self, uaid, after, limit, now)
    }

    fn delete_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<usize> {
        if let Some(deleted) = versions::delete(self, uaid, &messages) {
            return deleted;
        }
        self.run(Priority::Messages, Some(uaid), async move |client| {
            messages::delete(&client, uaid, &months, &messages).await
        })
    }

    fn record_offers(
        &self,
        uaid: Uaid,
        month: Month,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<()> {
        self.run(Priority::Messages, Some(uaid), async move |client| {
            messages::record_offers(&client, uaid, month, &messages).await
        })
    }

    fn move_messages(&self, uaid: Uaid, from: Month, to: Month) -> StoreFuture<()> {
        self.run(Priority::Messages, Some(uaid), async move |client| {
            move_messages::run(&client, uaid, from, to).await
        })
    }
}

impl Store for Dynamo {
    fn messages_gave_way(&self) -> u64 {
        self.client.gave_way()
    }

    fn queue(&self) -> Option<QueueState> {
        Some(self.queue.state())
    }

    fn check(&self) -> StoreFuture<()> {
        self.run(Priority::Router, None, async move |client| router::check(&client).await)
    }

    fn close(&self) -> StoreFuture<()> {
        self.queue.close()
    }
}
