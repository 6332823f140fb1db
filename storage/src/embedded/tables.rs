//! The contract, method by method: which file, which statements, reading or writing.

use std::collections::BTreeSet;
use std::future::ready;

use state_machine::{Chid, Message, MessageRef, Month, NodeId, RouterRecord, Time, Uaid};

use super::files::FileKey;
use super::write_files::WriteFiles;
use super::writer::Place;
use super::{Embedded, channels, messages, router};
use crate::contract::{
    Answer, Cursor, MessageTables, MonthStep, Page, PageLimit, Registered, Registration,
    RouterTable, Store, StoreError, Stored,
};

impl RouterTable for Embedded {
    fn record(&self, uaid: Uaid) -> Answer<Option<RouterRecord>> {
        let record = self.readers.read(FileKey::Router, |conn| router::read(conn, uaid));
        now(record.map(Option::flatten))
    }

    fn register_user(&self, registration: Registration) -> Answer<Registered> {
        self.write_router(registration.uaid, move |conn| router::register(conn, &registration))
    }

    fn update_message_month(&self, step: MonthStep) -> Answer<bool> {
        self.write_router(step.uaid, move |conn| router::update_message_month(conn, &step))
    }

    fn finish_month_move(&self, step: MonthStep) -> Answer<bool> {
        self.write_router(step.uaid, move |conn| router::finish_month_move(conn, &step))
    }

    fn clear_node(&self, uaid: Uaid, node: NodeId, connected_at: Time) -> Answer<bool> {
        self.write_router(uaid, move |conn| router::clear_node(conn, uaid, &node, connected_at))
    }

    fn drop_user(&self, uaid: Uaid) -> Answer<bool> {
        self.write_router(uaid, move |conn| router::drop_user(conn, uaid))
    }
}

impl MessageTables for Embedded {
    fn channels(&self, uaid: Uaid, month: Month) -> Answer<Option<BTreeSet<Chid>>> {
        let channels = self.readers.read(FileKey::Month(month), |conn| channels::read(conn, uaid));
        now(channels.map(Option::flatten))
    }

    fn add_channels(&self, uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> Answer<()> {
        self.write_month(uaid, month, move |conn| channels::add(conn, uaid, &channels))
    }

    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> Answer<()> {
        let removed =
            self.write_months(uaid, months, move |conn| channels::remove(conn, uaid, chid));
        Box::pin(async { removed.await.map(|_count| ()) })
    }

    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> Answer<Stored> {
        self.write_month(uaid, month, move |conn| messages::store(conn, uaid, &message))
    }

    fn fetch_messages(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        at: Time,
    ) -> Answer<Page> {
        let fetch = |conn: &_| messages::fetch(conn, uaid, after.as_ref(), limit, at);
        let fetched = self.readers.read(FileKey::Month(month), fetch);
        now(fetched.map(|fetched| {
            let fetched = fetched.unwrap_or_default();
            if let Some(expired) = fetched.expired {
                self.sweep(uaid, month, expired, at);
            }
            fetched.page
        }))
    }

    fn delete_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageRef>,
    ) -> Answer<usize> {
        self.write_months(uaid, months, move |conn| messages::delete(conn, uaid, &messages))
    }

    fn carry_messages(&self, uaid: Uaid, from: Month, to: Month) -> Answer<()> {
        self.writer.submit(Some(uaid), Place::Alone, move |files| files.carry(uaid, from, to))
    }

    fn ensure_month(&self, month: Month) -> Answer<()> {
        self.writer.submit(None, Place::Alone, move |files| files.make_month(month))
    }

    fn months(&self) -> Answer<Vec<Month>> {
        now(Ok(self.months.list()))
    }

    fn drop_month(&self, month: Month) -> Answer<bool> {
        self.writer.submit(None, Place::Alone, move |files| files.drop_month(month))
    }
}

impl Store for Embedded {
    fn check(&self) -> Answer<()> {
        let place = Place::File(FileKey::Router);
        self.writer.submit(None, place, WriteFiles::check)
    }

    fn close(&self) -> Answer<()> {
        self.writer.close()
    }
}

/// The answer of a read: it is already there.
pub(super) fn now<T: Send + 'static>(answer: Result<T, StoreError>) -> Answer<T> {
    Box::pin(ready(answer))
}
