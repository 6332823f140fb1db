//! Operations in progress: mailbox messages, store operations, pushes. Any of them may be executed
//! next.

use std::collections::BTreeMap;

use state_machine::connection::Event;
use state_machine::store::{StoreAnswer, StoreFailed, StoreOp};
use state_machine::{MessageId, RouterRecord, Uaid};

use super::op::How;
use super::push::Push;
use super::{SyntaxError, World};

/// An operation in progress.
#[derive(Debug, Clone, Copy)]
pub(super) enum UnderWay {
    Mail(usize),
    Operation(usize, usize),
    Push(usize),
    /// A notification from one node to another.
    Notification(usize),
}

impl World {
    pub(super) fn under_way(&self) -> Vec<UnderWay> {
        let mut things = Vec::new();
        for (at, connection) in self.connections.iter().enumerate() {
            things.extend(connection.mail.front().map(|_| UnderWay::Mail(at)));
            things.extend(
                (0..connection.operations.len())
                    .map(|operation| UnderWay::Operation(at, operation)),
            );
        }
        let pending = |push: &usize| self.pushes[*push].is_pending();
        things.extend((0..self.pushes.len()).filter(pending).map(UnderWay::Push));
        things.extend((0..self.post.notifications.len()).map(UnderWay::Notification));
        things
    }

    pub(super) fn comes_to_pass(&mut self, thing: UnderWay, how: How) -> Result<(), SyntaxError> {
        match thing {
            UnderWay::Mail(connection) => match self.connections[connection].mail.pop_front() {
                Some(event) => self.step(connection, &event),
                None => Ok(()),
            },
            UnderWay::Operation(connection, operation) => {
                self.store_answers(connection, operation, how)
            }
            UnderWay::Push(push) => self.push_goes_on(push, how),
            UnderWay::Notification(notification) => {
                self.notification_arrives(notification, how);
                Ok(())
            }
        }
    }

    pub(super) fn go_all(&mut self) -> Result<(), SyntaxError> {
        const THINGS_MAX: usize = 5000;
        for _ in 0..THINGS_MAX {
            match self.under_way().first() {
                Some(thing) => self.comes_to_pass(*thing, How::Well)?,
                None => return Ok(()),
            }
        }
        Err("there is no end to what is under way".to_owned())
    }

    /// One user agent's writes are executed in the order of their submission.
    pub(super) fn store_answers(
        &mut self,
        connection: usize,
        operation: usize,
        how: How,
    ) -> Result<(), SyntaxError> {
        let number = self.connections[connection].operations[operation].number;
        if self.connections[connection].operations[operation].is_write() {
            self.write_all(number)?;
            if !how.is_undone() {
                self.write(connection, operation)?;
            }
        }
        let pending = self.connections[connection].operations.remove(operation);
        self.post.is_clear_lost |=
            how.is_undone() && matches!(pending.operation, StoreOp::ClearNode { .. });
        let answer = match how {
            How::Well => Ok(pending.done.unwrap_or_else(|| self.store.execute(&pending.operation))),
            How::Early => {
                Ok(pending.done.or(pending.early).expect("writes are done, reads were early"))
            }
            How::NoSpace if pending.operation.is_write() => Ok(StoreAnswer::NoSpace),
            How::AckReplyLost | How::NotDone | How::NoSpace => Err(StoreFailed),
        };
        if let (StoreOp::Delete { messages, .. }, Ok(StoreAnswer::Deleted(_))) =
            (&pending.operation, &answer)
        {
            messages.iter().for_each(|message| self.settle(message.id));
        }
        self.step(connection, &Event::StoreAnswered { op: pending.op, answer })
    }

    /// Executes the writes that were submitted before the one with this number.
    pub(super) fn write_all(&mut self, before: usize) -> Result<(), SyntaxError> {
        let mut writes: Vec<(usize, usize, usize)> = Vec::new();
        for (at, connection) in self.connections.iter().enumerate() {
            let operations = connection.operations.iter().enumerate();
            let due = operations
                .filter(|(_, operation)| operation.is_write() && operation.number < before);
            writes.extend(due.map(|(operation, pending)| (pending.number, at, operation)));
        }
        writes.sort_unstable();
        writes
            .into_iter()
            .try_for_each(|(_, connection, operation)| self.write(connection, operation))
    }

    pub(super) fn write(&mut self, connection: usize, operation: usize) -> Result<(), SyntaxError> {
        let pending = &mut self.connections[connection].operations[operation];
        if pending.done.is_none() {
            let before = self.store.records.clone();
            pending.done = Some(self.store.execute(&pending.operation));
            self.records_changed(&before)?;
        }
        self.nothing_reappears()
    }

    pub(super) fn records_changed(
        &mut self,
        before: &BTreeMap<Uaid, RouterRecord>,
    ) -> Result<(), SyntaxError> {
        for (uaid, record) in self.store.records.clone() {
            let Some(before) = before.get(&uaid) else { continue };
            if record.curmonth < before.curmonth {
                return Err(format!("the record moves back from {:?}", before.curmonth));
            }
            self.post.moved(before, &record);
        }
        Ok(())
    }

    /// An ack is settled when its delete is durable and no component will store the message.
    pub(super) fn settle(&mut self, id: MessageId) {
        let is_over = |push: &Push| push.message.id != id || push.outcome.is_some();
        let is_acked = self.agent.got.contains_key(&id)
            && !self.agent.unacked.iter().any(|update| update.id == id);
        let is_there = self.rows().any(|row| row == id);
        if is_acked && !is_there && self.pushes.iter().all(is_over) {
            self.settled.insert(id);
        }
    }

    pub(super) fn nothing_reappears(&self) -> Result<(), SyntaxError> {
        match self.rows().find(|id| self.settled.contains(id)) {
            Some(id) => Err(format!("{id} is stored after its ack was settled")),
            None => Ok(()),
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = MessageId> {
        self.agent.uaid.into_iter().flat_map(|uaid| self.store.rows(uaid)).map(|(_, id)| id)
    }
}
