//! The storage check: rows are fetched page by page and sent as they come.

use std::collections::BTreeSet;

use super::StepContext;
use super::session::Session;
use super::unacked_window::Origin;
use crate::ids::Chid;
use crate::message::{Message, MessageKey};
use crate::month::Month;
use crate::store::{Cursor, Page, PageLimit, StoreOp};

/// Whether storage is to be looked at, and how far the look has come.
///
/// `requested` coalesces: it is cleared when a check begins, so what is stored after that is looked for again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct StorageScan {
    requested: bool,
    state: ScanState,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum ScanState {
    #[default]
    Idle,
    /// A page is on its way, with this many rows at most.
    Fetching { rows: usize },
    /// Rows of channels that are not known here came along: the channels are being read again
    /// before such rows are deleted.
    Confirming { doubtful: Vec<MessageKey>, next: Option<Cursor> },
    /// There may be more, once acks have made room.
    Paused { after: Cursor },
}

impl StorageScan {
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    pub(super) fn is_active(&self) -> bool {
        self.state != ScanState::Idle
    }

    /// Whether a page is on its way: the one time when a push may overtake what is in storage.
    pub(super) fn is_fetching(&self) -> bool {
        matches!(self.state, ScanState::Fetching { .. })
    }

    /// How many rows may be on their way: room for them is kept in the window.
    pub(super) fn rows_pending(&self) -> usize {
        match self.state {
            ScanState::Fetching { rows } => rows,
            ScanState::Idle | ScanState::Confirming { .. } | ScanState::Paused { .. } => 0,
        }
    }

    /// Whether it waits for the store.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, ScanState::Fetching { .. } | ScanState::Confirming { .. })
    }

    /// Whether all was looked at.
    pub(super) fn is_done(&self) -> bool {
        !self.requested && self.state == ScanState::Idle
    }
}

impl Session {
    /// Begins a check or goes on with it, where that is possible now.
    ///
    /// A message that was just sent holds the check back: it is in no table yet, and its ack is near.
    pub(super) fn scan_storage(&mut self, month: Month, cx: &mut StepContext<'_>) {
        if self.room(cx) == 0 {
            return;
        }
        match &self.scan.state {
            ScanState::Idle if self.scan.requested && !self.window.has_unstored() => {
                self.scan.requested = false;
                self.fetch(month, None, cx);
            }
            ScanState::Paused { after } => self.fetch(month, Some(after.clone()), cx),
            ScanState::Idle | ScanState::Fetching { .. } | ScanState::Confirming { .. } => {}
        }
    }

    /// How many messages may be sent now; nothing until half the window is free, so that a
    /// full one is not refilled row by row.
    fn room(&self, cx: &StepContext<'_>) -> usize {
        let max = cx.config.limits.unacked_max;
        let used = self.window.len().max(self.deletes.backlog());
        if used > max / 2 { 0 } else { max - used }
    }

    fn fetch(&mut self, month: Month, after: Option<Cursor>, cx: &mut StepContext<'_>) {
        let limits = &cx.config.limits;
        let rows = limits.fetch_rows_max.min(self.room(cx)).max(1);
        self.scan.state = ScanState::Fetching { rows };
        let limit = PageLimit { rows, bytes: limits.fetch_bytes_max };
        let order = StoreOp::Fetch { uaid: self.uaid, month, after, limit, now: cx.now };
        self.ops.submit(order, cx.out);
    }

    /// A page came.
    pub(super) fn fetched(&mut self, page: Page, month: Month, cx: &mut StepContext<'_>) {
        let Page { messages, next } = page;
        let mut doubtful = Vec::new();
        for message in messages {
            if let Some(stranger) = self.deliver_row(message, cx) {
                doubtful.push(stranger);
            }
        }
        if doubtful.is_empty() {
            self.scan.state = resting(next);
        } else {
            self.scan.state = ScanState::Confirming { doubtful, next };
            let order = StoreOp::ReadChannels { uaid: self.uaid, month };
            self.ops.submit(order, cx.out);
        }
    }

    /// Sends a row unless it was sent or acked before; gives it back where its channel is unknown.
    fn deliver_row(&mut self, message: Message, cx: &mut StepContext<'_>) -> Option<MessageKey> {
        if self.deletes.remembers(message.id) {
            self.deletes.delete(message.key());
        } else if !self.channels.contains(&message.chid) {
            return Some(message.key());
        } else if !self.window.note_row(message.id) && message.urgency >= self.min_urgency {
            self.send(message, Origin::Store, cx);
        }
        None
    }

    /// The channels were read again: rows of those still unknown are deleted, the others looked at again.
    ///
    /// Only the channels in doubt are learned from it: a command of this connection may have
    /// changed the others since they were read.
    pub(super) fn channels_confirmed(&mut self, channels: Option<BTreeSet<Chid>>) {
        let ScanState::Confirming { doubtful, next } = std::mem::take(&mut self.scan.state) else {
            return;
        };
        let channels = channels.unwrap_or_default();
        for message in doubtful {
            if channels.contains(&message.chid) {
                self.channels.insert(message.chid);
                self.scan.requested = true;
            } else {
                self.deletes.delete(message);
            }
        }
        self.scan.state = resting(next);
    }
}

fn resting(next: Option<Cursor>) -> ScanState {
    next.map_or(ScanState::Idle, |after| ScanState::Paused { after })
}
