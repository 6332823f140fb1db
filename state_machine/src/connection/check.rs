//! The storage check: rows are fetched page by page and sent as they come.

use std::collections::BTreeSet;

use super::Cx;
use super::session::Session;
use super::window::Held;
use crate::ids::Chid;
use crate::message::{Message, MessageRef};
use crate::month::Month;
use crate::store::{Cursor, Page, PageLimit, StoreOrder};

/// Whether storage is to be looked at, and how far the look has come.
///
/// `wanted` coalesces: it is cleared when a check begins, so what is stored after that is looked for again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct StorageCheck {
    wanted: bool,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum Stage {
    #[default]
    Idle,
    /// A page is on its way, with this many rows at most.
    Fetching { rows: usize },
    /// Rows of channels that are not known here came along: the channels are being read again
    /// before such rows are deleted.
    Confirming { doubtful: Vec<MessageRef>, next: Option<Cursor> },
    /// There may be more, once acks have made room.
    Paused { after: Cursor },
}

impl StorageCheck {
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.stage != Stage::Idle
    }

    /// Whether a page is on its way: the one time when a push may overtake what is in storage.
    pub(super) fn is_fetching(&self) -> bool {
        matches!(self.stage, Stage::Fetching { .. })
    }

    /// How many rows may be on their way: room for them is kept in the window.
    pub(super) fn rows_coming(&self) -> usize {
        match self.stage {
            Stage::Fetching { rows } => rows,
            Stage::Idle | Stage::Confirming { .. } | Stage::Paused { .. } => 0,
        }
    }

    /// Whether it waits for the store.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Fetching { .. } | Stage::Confirming { .. })
    }

    /// Whether all was looked at.
    pub(super) fn is_done(&self) -> bool {
        !self.wanted && self.stage == Stage::Idle
    }
}

impl Session {
    /// Begins a check or goes on with it, where that is possible now.
    ///
    /// A message that was just sent holds the check back: it is in no table yet, and its ack is near.
    pub(super) fn check_storage(&mut self, month: Month, cx: &mut Cx<'_>) {
        if self.room(cx) == 0 {
            return;
        }
        match &self.check.stage {
            Stage::Idle if self.check.wanted && !self.window.is_fresh() => {
                self.check.wanted = false;
                self.fetch(month, None, cx);
            }
            Stage::Paused { after } => self.fetch(month, Some(after.clone()), cx),
            Stage::Idle | Stage::Fetching { .. } | Stage::Confirming { .. } => {}
        }
    }

    /// How many messages may be sent now; nothing until half the window is free, so that a
    /// full one is not refilled row by row.
    fn room(&self, cx: &Cx<'_>) -> usize {
        let max = cx.config.limits.unacked_max;
        let used = self.window.len().max(self.settling.backlog());
        if used > max / 2 { 0 } else { max - used }
    }

    fn fetch(&mut self, month: Month, after: Option<Cursor>, cx: &mut Cx<'_>) {
        let limits = &cx.config.limits;
        let rows = limits.fetch_rows_max.min(self.room(cx)).max(1);
        self.check.stage = Stage::Fetching { rows };
        let limit = PageLimit { rows, bytes: limits.fetch_bytes_max };
        let order = StoreOrder::Fetch { uaid: self.uaid, month, after, limit, now: cx.now };
        self.orders.give(order, cx.out);
    }

    /// A page came.
    pub(super) fn fetched(&mut self, page: Page, month: Month, cx: &mut Cx<'_>) {
        let Page { messages, next } = page;
        let mut doubtful = Vec::new();
        for message in messages {
            if let Some(stranger) = self.deliver_row(message, cx) {
                doubtful.push(stranger);
            }
        }
        if doubtful.is_empty() {
            self.check.stage = resting(next);
        } else {
            self.check.stage = Stage::Confirming { doubtful, next };
            let order = StoreOrder::ReadChannels { uaid: self.uaid, month };
            self.orders.give(order, cx.out);
        }
    }

    /// Sends a row unless it was sent or acked before; gives it back where its channel is unknown.
    fn deliver_row(&mut self, message: Message, cx: &mut Cx<'_>) -> Option<MessageRef> {
        if self.settling.remembers(message.id) {
            self.settling.delete(message.reference());
        } else if !self.channels.contains(&message.chid) {
            return Some(message.reference());
        } else if !self.window.saw_row(message.id) && message.urgency >= self.min_urgency {
            self.send(message, Held::Store, cx);
        }
        None
    }

    /// The channels were read again: rows of those still unknown are deleted, the others looked at again.
    ///
    /// Only the channels in doubt are learned from it: a command of this connection may have
    /// changed the others since they were read.
    pub(super) fn channels_confirmed(&mut self, channels: Option<BTreeSet<Chid>>) {
        let Stage::Confirming { doubtful, next } = std::mem::take(&mut self.check.stage) else {
            return;
        };
        let channels = channels.unwrap_or_default();
        for message in doubtful {
            if channels.contains(&message.chid) {
                self.channels.insert(message.chid);
                self.check.wanted = true;
            } else {
                self.settling.delete(message);
            }
        }
        self.check.stage = resting(next);
    }
}

fn resting(next: Option<Cursor>) -> Stage {
    next.map_or(Stage::Idle, |after| Stage::Paused { after })
}
