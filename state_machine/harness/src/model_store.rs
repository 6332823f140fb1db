//! The simplest store that keeps the contract: maps, and one write after the other.

use std::collections::{BTreeMap, BTreeSet};

use state_machine::store::{
    BridgedRegistration, Cursor, FullScope, MonthStep, Page, PageLimit, RegisterResult,
    Registration, SettledMessages, StoreAnswer, StoreOp, Stored,
};
use state_machine::{
    BridgeRecipient, Chid, LastConnect, Message, MessageId, MessageKey, Month, NodeBinding, NodeId,
    RouterRecord, RouterType, Time, Uaid,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Store {
    pub records: BTreeMap<Uaid, RouterRecord>,
    tables: BTreeMap<Month, Table>,
    /// The SimplePush versions that wait: one for each channel.
    versions: BTreeMap<(Uaid, Chid), Message>,
    /// The bound of messages in a table; none is no bound.
    pub waiting_max: Option<usize>,
    /// The users whose records are marked.
    pub dropped: BTreeSet<Uaid>,
    /// The messages whose receipts say delivered.
    pub receipts: BTreeSet<MessageId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Table {
    channels: BTreeMap<Uaid, BTreeSet<Chid>>,
    messages: BTreeMap<(Uaid, MessageId), Message>,
}

impl Store {
    pub fn execute(&mut self, operation: &StoreOp) -> StoreAnswer {
        match operation {
            StoreOp::Register(registration) => StoreAnswer::Registered(self.register(registration)),
            StoreOp::ReadChannels { uaid, month } => {
                StoreAnswer::Channels(self.channels(*uaid, *month).cloned())
            }
            StoreOp::Fetch { uaid, month, after, limit, now } => {
                StoreAnswer::Fetched(self.fetch(*uaid, *month, after.as_ref(), *limit, *now))
            }
            StoreOp::FetchVersions { uaid, after, limit, .. } => {
                StoreAnswer::Fetched(self.fetch_versions(*uaid, after.as_ref(), *limit))
            }
            StoreOp::Delete { uaid, months, messages, acks } => {
                for (id, _) in acks {
                    let mut tables = months.iter().filter_map(|month| self.tables.get(month));
                    let wants = |row: &Message| row.receipt.is_some();
                    if tables.any(|table| table.messages.get(&(*uaid, *id)).is_some_and(wants)) {
                        self.receipts.insert(*id);
                    }
                }
                self.delete_versions(*uaid, messages);
                months.iter().for_each(|month| self.delete(*uaid, *month, messages));
                // The rules do not read what it counts.
                StoreAnswer::Deleted(SettledMessages::default())
            }
            StoreOp::RecordOffers { uaid, month, messages } => {
                self.record_offers(*uaid, *month, messages);
                StoreAnswer::OffersRecorded
            }
            StoreOp::AddChannels { uaid, month, channels } => {
                self.table(*month).channels.entry(*uaid).or_default().extend(channels);
                StoreAnswer::ChannelsAdded
            }
            StoreOp::CreateChannels { uaid, month, channels } => {
                let table = &mut self.table(*month).channels;
                table.entry(*uaid).or_insert_with(|| channels.clone());
                StoreAnswer::ChannelsAdded
            }
            StoreOp::RemoveChannel { uaid, months, chid } => {
                self.remove_channel(*uaid, months, *chid);
                StoreAnswer::ChannelRemoved
            }
            StoreOp::RemoveChannelAndVersion { uaid, months, chid } => {
                self.remove_channel(*uaid, months, *chid);
                self.versions.remove(&(*uaid, *chid));
                StoreAnswer::ChannelRemoved
            }
            StoreOp::UpdateMonth(step) => StoreAnswer::MonthUpdated(self.update_month(step)),
            StoreOp::ClearNode { uaid, binding } => {
                let NodeBinding { node, connected_at } = binding;
                StoreAnswer::NodeCleared(self.clear_node(*uaid, node, *connected_at))
            }
            StoreOp::FinishMove(step) => StoreAnswer::MoveFinished(self.update(step, |record| {
                record.oldmonth = record.oldmonth.filter(|month| *month != step.from);
            })),
            StoreOp::MoveMessages { uaid, from, to } => {
                self.move_messages(*uaid, *from, *to);
                StoreAnswer::Moved
            }
        }
    }

    pub fn channels(&self, uaid: Uaid, month: Month) -> Option<&BTreeSet<Chid>> {
        self.tables.get(&month)?.channels.get(&uaid)
    }

    pub fn has_channel(&self, uaid: Uaid, month: Month, chid: Chid) -> bool {
        self.channels(uaid, month).is_some_and(|channels| channels.contains(&chid))
    }

    pub fn store(&mut self, uaid: Uaid, month: Month, message: Message) -> Stored {
        if !self.has_channel(uaid, month, message.chid) {
            return Stored::NoSuchChannel;
        }
        let is_there = self.rows(uaid).any(|row| row == (month, message.id));
        let waiting = self.rows(uaid).filter(|(of, _)| *of == month).count();
        if let Some(there) =
            self.of_topic(uaid, month, &message).filter(|there| message.id < *there)
        {
            return Stored::Outranked(there);
        }
        if !is_there && self.waiting_max.is_some_and(|max| waiting >= max) {
            return Stored::Full(FullScope::User);
        }
        self.insert(uaid, month, message)
    }

    /// Stores a SimplePush version, unless one waits that is not lower.
    pub fn store_version(&mut self, uaid: Uaid, month: Month, version: Message) -> Stored {
        if !self.has_channel(uaid, month, version.chid) {
            return Stored::NoSuchChannel;
        }
        let there = self.versions.entry((uaid, version.chid)).or_insert_with(|| version.clone());
        if !there.id.covers(version.id) {
            *there = version;
        }
        Stored::Done
    }

    fn remove_channel(&mut self, uaid: Uaid, months: &[Month], chid: Chid) {
        for month in months {
            let channels = self.table(*month).channels.get_mut(&uaid);
            channels.map(|channels| channels.remove(&chid));
        }
    }

    fn delete_versions(&mut self, uaid: Uaid, messages: &[MessageKey]) {
        self.versions.retain(|(whose, _), row| {
            *whose != uaid || !messages.iter().any(|acked| acked.id.covers(row.id))
        });
    }

    fn fetch_versions(&self, uaid: Uaid, after: Option<&Cursor>, limit: PageLimit) -> Page {
        let is_asked_for =
            |chid: Chid| after.is_none_or(|after| *after.as_str() < *chid.to_string());
        let of_agent =
            self.versions.iter().filter(|((whose, chid), _)| *whose == uaid && is_asked_for(*chid));
        page(of_agent.map(|(_, message)| message), limit, |last| last.chid.to_string())
    }

    /// Stores a message in place of that of its topic.
    fn insert(&mut self, uaid: Uaid, month: Month, message: Message) -> Stored {
        if !self.has_channel(uaid, month, message.chid) {
            return Stored::NoSuchChannel;
        }
        let there = self.of_topic(uaid, month, &message);
        let messages = &mut self.table(month).messages;
        there.map(|there| messages.remove(&(uaid, there)));
        messages.insert((uaid, message.id), message);
        Stored::Done
    }

    /// Removes the message of the same topic: the half of a write that ends early.
    pub fn remove_topic(&mut self, uaid: Uaid, month: Month, message: &Message) {
        if let Some(there) = self.of_topic(uaid, month, message) {
            self.table(month).messages.remove(&(uaid, there));
        }
    }

    /// The message of the same topic that waits.
    fn of_topic(&self, uaid: Uaid, month: Month, message: &Message) -> Option<MessageId> {
        let is_of_its_topic = |row: &&Message| {
            message.topic.is_some() && (row.chid, &row.topic) == (message.chid, &message.topic)
        };
        let [first, last] = [0, 255].map(|byte| (uaid, MessageId::from_bytes([byte; 16])));
        let mut rows = self.tables.get(&month)?.messages.range(first..=last).map(|(_, row)| row);
        rows.find(is_of_its_topic).map(|row| row.id)
    }

    pub fn delete(&mut self, uaid: Uaid, month: Month, messages: &[MessageKey]) {
        let rows = &mut self.table(month).messages;
        for MessageKey { id, chid, .. } in messages {
            if rows.get(&(uaid, *id)).is_some_and(|row| row.chid == *chid) {
                rows.remove(&(uaid, *id));
            }
        }
    }

    fn record_offers(&mut self, uaid: Uaid, month: Month, messages: &[MessageKey]) {
        let rows = &mut self.table(month).messages;
        for MessageKey { id, .. } in messages {
            if let Some(row) = rows.get_mut(&(uaid, *id)) {
                row.offers = row.offers.saturating_add(1);
            }
        }
    }

    pub fn clear_node(&mut self, uaid: Uaid, node: &NodeId, connected_at: Time) -> bool {
        let record = self.records.get_mut(&uaid);
        let is_it = |record: &&mut RouterRecord| {
            record.node.as_ref() == Some(node) && record.connected_at == connected_at
        };
        record.filter(is_it).map(|record| record.node = None).is_some()
    }

    /// The stored messages of this agent, and their months.
    pub fn rows(&self, uaid: Uaid) -> impl Iterator<Item = (Month, MessageId)> {
        let versions = self.versions.iter().filter(move |((whose, _), _)| *whose == uaid);
        let versions = versions.map(|(_, row)| (Month::of(row.accepted_at), row.id));
        let messages = self.tables.iter().flat_map(move |(month, table)| {
            let ids = table.messages.keys().filter(move |(whose, _)| *whose == uaid);
            ids.map(move |(_, id)| (*month, *id))
        });
        versions.chain(messages)
    }

    /// Drops the table of a month.
    pub fn drop_month(&mut self, month: Month) {
        self.tables.remove(&month);
    }

    fn table(&mut self, month: Month) -> &mut Table {
        self.tables.entry(month).or_default()
    }

    fn register(&mut self, registration: &Registration) -> RegisterResult {
        let Registration { uaid, create_in, .. } = *registration;
        self.register_as(uaid, create_in, |curmonth| registration.clone().record(curmonth))
    }

    /// Registers an agent behind a bridge.
    pub fn register_bridged(&mut self, registration: BridgedRegistration) -> RegisterResult {
        let BridgedRegistration { uaid, recipient, connected_at, last_connect, create_in } =
            registration;
        let new = |curmonth| RouterRecord {
            uaid,
            router_type: RouterType::Bridge(Box::new(recipient)),
            node: None,
            connected_at,
            last_connect,
            curmonth,
            oldmonth: None,
        };
        self.register_as(uaid, create_in, new)
    }

    /// Writes a record in the month of the one that is there.
    fn register_as(
        &mut self,
        uaid: Uaid,
        create_in: Option<Month>,
        new: impl FnOnce(Month) -> RouterRecord,
    ) -> RegisterResult {
        let there = self.records.get(&uaid);
        let month = there.map(|there| there.curmonth).or(create_in);
        let Some(mut record) = month.filter(|_| !self.dropped.contains(&uaid)).map(new) else {
            return RegisterResult::UnknownAgent;
        };
        let is_bridged = |record: &RouterRecord| record.router_type.recipient().is_some();
        match there {
            Some(there)
                if there.router_type != record.router_type
                    && !(is_bridged(there) && is_bridged(&record)) =>
            {
                return RegisterResult::UnknownAgent;
            }
            Some(there) if there.connected_at >= record.connected_at => {
                return RegisterResult::Superseded(there.connected_at);
            }
            _ => record.oldmonth = there.and_then(|there| there.oldmonth),
        }
        let before = there.and_then(RouterRecord::binding);
        self.records.insert(uaid, record.clone());
        RegisterResult::Registered(record, before)
    }

    /// Removes a record; with a recipient, only if it still has that bridge, application and token.
    pub fn drop_user(&mut self, uaid: Uaid, recipient: Option<&BridgeRecipient>) -> bool {
        let is_it = |there: &RouterRecord, recipient: &BridgeRecipient| {
            there.router_type.recipient().is_some_and(|there| {
                (there.bridge, &there.app, &there.token)
                    == (recipient.bridge, &recipient.app, &recipient.token)
            })
        };
        let there = self.records.get(&uaid);
        let is_asked_for = there.is_some_and(|there| recipient.is_none_or(|it| is_it(there, it)));
        is_asked_for && self.records.remove(&uaid).is_some()
    }

    /// Begins the drop of a user, with `seen` if that is its last connection: the record counts as none. Returns its binding.
    pub fn mark_dropped(
        &mut self,
        uaid: Uaid,
        seen: Option<LastConnect>,
    ) -> Option<Option<NodeBinding>> {
        let there = self.records.get(&uaid)?;
        if seen.is_some_and(|seen| seen != there.last_connect) {
            return None;
        }
        self.dropped.insert(uaid);
        self.records.remove(&uaid).map(|record| record.binding())
    }

    fn update_month(&mut self, step: &MonthStep) -> bool {
        let is_at_from =
            |record: &RouterRecord| record.curmonth == step.from && record.oldmonth.is_none();
        if step.node.is_none() && !self.records.get(&step.uaid).is_some_and(is_at_from) {
            return false;
        }
        self.update(step, |record| {
            record.curmonth = step.to;
            record.oldmonth = Some(step.from);
            record.last_connect = step.last_connect;
        })
    }

    fn update(&mut self, step: &MonthStep, change: impl FnOnce(&mut RouterRecord)) -> bool {
        let is_mover = |record: &&mut RouterRecord| {
            let is_bridged = record.router_type.recipient().is_some();
            let is_found = record.node == step.node && (is_bridged || step.node.is_some());
            is_found && record.connected_at == step.connected_at
        };
        self.records.get_mut(&step.uaid).filter(is_mover).map(change).is_some()
    }

    fn fetch(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<&Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> Page {
        let Some(table) = self.tables.get(&month) else { return Page::default() };
        let is_asked_for = |message: &&Message| {
            after.is_none_or(|after| *after.as_str() < *message.id.to_string())
                && now < message.expires_at()
        };
        let rows = table.messages.iter().filter(|((whose, _), _)| *whose == uaid);
        let rows = rows.map(|(_, message)| message).filter(is_asked_for);
        page(rows, limit, |last| last.id.to_string())
    }

    fn move_messages(&mut self, uaid: Uaid, from: Month, to: Month) {
        if from != to {
            let copied = self.copy(uaid, from, to);
            self.delete(uaid, from, &copied);
        }
    }

    /// Copies an agent's messages to the month that its record names. A message of a topic in that month stays: it was
    /// pushed later, or is answered later. Returns the keys of the originals.
    pub fn copy(&mut self, uaid: Uaid, from: Month, to: Month) -> Vec<MessageKey> {
        let messages = self.table(from).messages.clone();
        let of_agent = messages.into_iter().filter(|((whose, _), _)| *whose == uaid);
        let of_agent: Vec<Message> = of_agent.map(|(_, message)| message).collect();
        let keys = of_agent.iter().map(Message::key).collect();
        for message in of_agent {
            if self.of_topic(uaid, to, &message).is_none() {
                self.insert(uaid, to, message);
            }
        }
        keys
    }
}

/// The first of these rows, and the cursor of the last one if others follow.
fn page<'a>(
    rows: impl Iterator<Item = &'a Message>,
    limit: PageLimit,
    cursor: impl Fn(&Message) -> String,
) -> Page {
    let mut messages: Vec<Message> = rows.cloned().collect();
    let is_more = messages.len() > limit.rows;
    messages.truncate(limit.rows);
    let next = messages.last().filter(|_| is_more).map(|last| Cursor::new(cursor(last)));
    Page { messages, next }
}
