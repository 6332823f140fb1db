//! The commands that wait.

use std::collections::VecDeque;

use crate::wire::ClientMessage;

/// The oldest first. An idle connection holds no memory for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[expect(clippy::box_collection, reason = "it is mostly absent, and a pointer is smaller")]
pub(in crate::connection) struct Commands(Option<Box<VecDeque<ClientMessage>>>);

impl Commands {
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |commands| commands.len())
    }

    pub(super) fn push_back(&mut self, command: ClientMessage) {
        self.0.get_or_insert_default().push_back(command);
    }

    /// Puts a command back that was taken.
    pub(in crate::connection) fn push_front(&mut self, command: ClientMessage) {
        self.0.get_or_insert_default().push_front(command);
    }

    pub(in crate::connection) fn pop_front(&mut self) -> Option<ClientMessage> {
        let command = self.0.as_mut()?.pop_front();
        self.0.take_if(|commands| commands.is_empty());
        command
    }
}
