//! The environment of the machines, and bugs that can be seeded into it.
//!
//! Each mutation is a few lines in the place where a real bug could be: in the store, or where an
//! effect is executed. The machines themselves are never changed.

use state_machine::delivery::Route;
use state_machine::store::{
    MonthStep, Page, Registration, SettledMessages, StoreAnswer, StoreOp, Stored,
};
use state_machine::{Message, Month, NodeId, RouterRecord, Span, Time, Uaid};

use super::scenario::APART;
use super::store::Store;
use crate::rule_models::on_store::execute;

/// A bug for the model checker to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The endpoint does not read the router record again after it stored the message.
    NoSecondLook,
    /// The record does not contain the old month of an unfinished move.
    NoOldMonth,
    /// A message with a lesser id than that of its topic is dropped, and answered as stored.
    LesserTopicDropped,
    /// A move keeps the greater id of a topic.
    MoveKeepsGreaterTopic,
    /// The message of a topic is removed before the later one is written, and the second write fails.
    TopicReplacedInTwoWrites,
    /// A node drops messages some time before their TTL ends by its clock.
    ExpiresEarly,
    /// The record takes the month of the clock of the node that registers.
    RecordFollowsClock,
    /// A notification that the agent is elsewhere has the time of its node's clock, not that of the record.
    NoticeByClock,
    /// A notification of a stored message is dropped while the connection reads storage.
    NudgeDuringFetch,
    /// The connection remembers only one ack.
    AcksForgotten,
    /// The record moves to the new month before the channels are copied.
    RouterBeforeCopy,
    /// The old table is not read after the record has moved.
    NoLastLook,
    /// The node is cleared from the record without a condition.
    ClearNodeAlways,
    /// The next page starts after the time of the last row, not after the row.
    CursorByTimestamp,
    /// A delete reports success and deletes nothing.
    DeletesNothing,
    /// The record keeps the old month after the move.
    MoveNeverFinished,
    /// The store rejects the end of every move.
    MoveRefused,
    /// A node that shuts down is cleared from the record without a condition.
    ShutdownClearsAlways,
    /// A node that shuts down is cleared from the record, whatever the time of the agent's
    /// connection.
    ShutdownClearsByName,
    /// A connection closes on a notification of any other node, however old.
    StampsNotCompared,
    /// The node notifies itself, not the agent's previous node, that the agent connected elsewhere.
    TellsItself,
    /// The endpoint notifies the node in the record that it read first.
    NudgeAstray,
    /// A notification for a node with an open breaker is dropped.
    NudgeOnce,
    /// The endpoint does not read the router record again after its node did not answer.
    NoLookWhenCutOff,
    /// The endpoint accepts a 404 that the node did not sign.
    StrangerSaysNotHere,
    /// The endpoint accepts a 200 that the node did not sign.
    StrangerSaysAccepted,
    /// A write without space reports success.
    NoSpaceIsDone,
    /// The receipt says delivered once the message is sent.
    ReceiptWhenSent,
    /// No read and no condition sees a registration that the store keeps in memory.
    UnwrittenUnseen,
    /// A record in the future is set to the present although nodes run.
    RepairedBesideNodes,
}

/// A store, and the bug that is seeded into it.
pub(crate) struct Environment<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) mutation: Option<Mutation>,
    /// Every message of the scenario: the store of [`Mutation::CursorByTimestamp`] needs their
    /// times.
    pub(crate) messages: &'a [Message],
}

impl Environment<'_> {
    /// Executes a store operation of a connection.
    pub(crate) fn execute(&mut self, operation: &StoreOp) -> StoreAnswer {
        match (self.mutation, operation) {
            (Some(Mutation::NoOldMonth), StoreOp::UpdateMonth(step)) => {
                let answer = execute(self.store, operation);
                self.forget_old_month(step.uaid);
                answer
            }
            (Some(Mutation::RouterBeforeCopy), StoreOp::AddChannels { uaid, month, .. }) => {
                self.move_record_first(*uaid, *month, operation)
            }
            (Some(Mutation::RouterBeforeCopy), StoreOp::UpdateMonth(step)) => {
                self.copy_channels_late(step);
                execute(self.store, operation)
            }
            (Some(Mutation::RepairedBesideNodes), StoreOp::Register(registration)) => {
                self.repair(registration);
                execute(self.store, operation)
            }
            (Some(Mutation::RecordFollowsClock), StoreOp::Register(registration)) => {
                self.set_month_back(registration);
                execute(self.store, operation)
            }
            (Some(Mutation::ExpiresEarly), StoreOp::Fetch { .. }) => self.fetch_early(operation),
            (Some(Mutation::NoLastLook), StoreOp::Fetch { uaid, month, .. })
                if self.record_has_left(*uaid, *month) =>
            {
                StoreAnswer::Fetched(Page::default())
            }
            (Some(Mutation::CursorByTimestamp), StoreOp::Fetch { .. }) => {
                self.fetch_by_timestamp(operation)
            }
            (Some(Mutation::ReceiptWhenSent), StoreOp::Fetch { .. }) => {
                let answer = execute(self.store, operation);
                if let StoreAnswer::Fetched(page) = &answer {
                    let wanted = page.messages.iter().filter(|message| message.receipt.is_some());
                    self.store.receipts.extend(wanted.map(|message| message.id));
                }
                answer
            }
            (Some(Mutation::DeletesNothing), StoreOp::Delete { .. }) => {
                StoreAnswer::Deleted(SettledMessages::default())
            }
            (Some(Mutation::MoveNeverFinished), StoreOp::FinishMove(_)) => {
                StoreAnswer::MoveFinished(true)
            }
            (Some(Mutation::MoveRefused), StoreOp::FinishMove(_)) => {
                StoreAnswer::MoveFinished(false)
            }
            (Some(Mutation::ShutdownClearsAlways), StoreOp::ClearNode { uaid, .. }) => {
                self.clear_node_if(*uaid, |_| true)
            }
            (Some(Mutation::ShutdownClearsByName), StoreOp::ClearNode { uaid, binding }) => {
                self.clear_node_if(*uaid, |record| record.node.as_ref() == Some(&binding.node))
            }
            (Some(Mutation::MoveKeepsGreaterTopic), StoreOp::MoveMessages { uaid, from, to }) => {
                self.keep_greater_topics(*uaid, *from, *to);
                execute(self.store, operation)
            }
            (_, operation) => execute(self.store, operation),
        }
    }

    /// Executes the copies of a move without its deletes.
    pub(crate) fn copy_only(&mut self, uaid: Uaid, from: Month, to: Month) {
        self.store.copy(uaid, from, to);
    }

    /// Stores a message for an endpoint.
    pub(crate) fn store(&mut self, uaid: Uaid, month: Month, message: &Message) -> Stored {
        match self.store.store(uaid, month, message.clone()) {
            Stored::Outranked(_) if self.mutation == Some(Mutation::LesserTopicDropped) => {
                Stored::Done
            }
            stored => stored,
        }
    }

    /// Stores the messages of the old month by the rule of a push, before they are moved.
    fn keep_greater_topics(&mut self, uaid: Uaid, from: Month, to: Month) {
        let old: Vec<_> = self.store.rows(uaid).filter(|(month, _)| *month == from).collect();
        for message in self.messages.iter().filter(|message| old.contains(&(from, message.id))) {
            self.store.store(uaid, to, message.clone());
        }
    }

    /// Clears the node from the record, if the record still has the node that was read.
    pub(crate) fn clear_node(&mut self, uaid: Uaid, node: &NodeId, connected_at: Time) {
        match self.store.records.get_mut(&uaid) {
            Some(record) if self.mutation == Some(Mutation::ClearNodeAlways) => record.node = None,
            _ => drop(self.store.clear_node(uaid, node, connected_at)),
        }
    }

    /// The route that an endpoint reads from the record. `before` is the route that it read first.
    pub(crate) fn route(
        &self,
        uaid: Uaid,
        before: Option<&Route>,
        is_cut_off: bool,
    ) -> Option<Route> {
        match before {
            Some(before) if self.mutation == Some(Mutation::NoSecondLook) || is_cut_off => {
                Some(before.clone())
            }
            _ => self.store.records.get(&uaid).cloned().map(Into::into),
        }
    }

    fn clear_node_if(
        &mut self,
        uaid: Uaid,
        is_it: impl FnOnce(&RouterRecord) -> bool,
    ) -> StoreAnswer {
        let record = self.store.records.get_mut(&uaid).filter(|record| is_it(record));
        StoreAnswer::NodeCleared(record.map(|record| record.node = None).is_some())
    }

    /// Sets a record that is later than a connection of now to the instant before it.
    fn repair(&mut self, registration: &Registration) {
        if let Some(record) = self.store.records.get_mut(&registration.uaid) {
            let before = Time(registration.connected_at.0 - 1);
            record.connected_at = record.connected_at.min(before);
        }
    }

    fn set_month_back(&mut self, registration: &Registration) {
        if let Some(record) = self.store.records.get_mut(&registration.uaid) {
            record.curmonth = record.curmonth.min(Month::of(registration.connected_at));
        }
    }

    /// Reads as if the node's clock were further ahead.
    fn fetch_early(&mut self, operation: &StoreOp) -> StoreAnswer {
        let mut early = operation.clone();
        if let StoreOp::Fetch { now, .. } = &mut early {
            *now = *now + Span(APART.unsigned_abs());
        }
        execute(self.store, &early)
    }

    fn forget_old_month(&mut self, uaid: Uaid) {
        if let Some(record) = self.store.records.get_mut(&uaid) {
            record.oldmonth = None;
        }
    }

    fn record_has_left(&self, uaid: Uaid, month: Month) -> bool {
        self.store.records.get(&uaid).is_some_and(|record| month < record.curmonth)
    }

    fn move_record_first(&mut self, uaid: Uaid, month: Month, operation: &StoreOp) -> StoreAnswer {
        let Some(record) = self.store.records.get_mut(&uaid).filter(|it| it.curmonth < month)
        else {
            return execute(self.store, operation);
        };
        record.oldmonth = Some(record.curmonth);
        record.curmonth = month;
        StoreAnswer::ChannelsAdded
    }

    fn copy_channels_late(&mut self, step: &MonthStep) {
        let MonthStep { uaid, from, to, .. } = *step;
        if let Some(channels) = self.store.channels(uaid, from).cloned() {
            self.store.execute(&StoreOp::AddChannels { uaid, month: to, channels });
        }
    }

    fn fetch_by_timestamp(&mut self, operation: &StoreOp) -> StoreAnswer {
        let answer = execute(self.store, operation);
        match (operation, answer) {
            (StoreOp::Fetch { after: Some(after), .. }, StoreAnswer::Fetched(page)) => {
                let is_last = |message: &&Message| message.id.to_string() == after.as_str();
                let last = self.messages.iter().find(is_last).map(|last| last.accepted_at);
                let is_later = |message: &Message| Some(message.accepted_at) > last;
                let messages = page.messages.into_iter().filter(is_later).collect();
                StoreAnswer::Fetched(Page { messages, ..page })
            }
            (_, answer) => answer,
        }
    }
}
