//! The progress of a storage scan: rows are fetched page by page and sent as they arrive.

use crate::message::{Message, MessageKey};
use crate::store::Cursor;

/// Whether a scan is requested, and how far the current one is.
///
/// Requests coalesce. The flag is cleared when a scan starts, so a message stored after that makes another scan.
///
/// A scan that left rows out reads storage a second time, and sends them after all others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct StorageScan {
    requested: bool,
    /// Whether a lower minimal urgency has requested it.
    is_release: bool,
    state: ScanState,
    pass: Pass,
    has_left_out: bool,
}

/// The first pass leaves out the messages that were offered often without an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Pass {
    #[default]
    First,
    Second,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum ScanState {
    #[default]
    Idle,
    /// A page of at most this many rows is being read.
    Fetching { rows: usize },
    /// The page had rows of unknown channels: the channels are read again before such rows are deleted.
    Confirming(Box<Confirming>),
    /// More rows may follow, after this position or from the beginning. The scan continues once there is room.
    Paused { after: Option<Cursor> },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Confirming {
    doubtful: Vec<MessageKey>,
    next: Option<Cursor>,
}

impl StorageScan {
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// Requests a scan for rows that a higher minimal urgency has left.
    pub(super) fn request_release(&mut self) {
        (self.requested, self.is_release) = (true, true);
    }

    pub(super) fn is_active(&self) -> bool {
        self.state != ScanState::Idle
    }

    /// Whether a page is being read: the only time at which a push may overtake stored messages.
    pub(super) fn is_fetching(&self) -> bool {
        matches!(self.state, ScanState::Fetching { .. })
    }

    /// How many rows may arrive: the window keeps room for them.
    pub(super) fn rows_pending(&self) -> usize {
        match self.state {
            ScanState::Fetching { rows } => rows,
            ScanState::Idle | ScanState::Confirming(_) | ScanState::Paused { .. } => 0,
        }
    }

    pub(super) fn awaits_store(&self) -> bool {
        matches!(self.state, ScanState::Fetching { .. } | ScanState::Confirming(_))
    }

    /// Whether all rows were read and no further scan is requested.
    pub(super) fn is_done(&self) -> bool {
        !self.requested && self.state == ScanState::Idle
    }

    /// Whether a requested scan can start. A second pass ends for it, because its rows are sent after all others.
    pub(super) fn can_start(&self) -> bool {
        let is_paused = matches!(self.state, ScanState::Paused { .. });
        self.requested
            && (self.state == ScanState::Idle || (is_paused && self.pass == Pass::Second))
    }

    /// Starts a requested scan. Returns whether a lower minimal urgency has requested it.
    pub(super) fn start(&mut self) -> bool {
        let started = Self { state: ScanState::Paused { after: None }, ..Self::default() };
        std::mem::replace(self, started).is_release
    }

    /// Continues the scan with a page of `rows`. Returns the position of the page, or none if there is nothing to fetch
    /// now.
    pub(super) fn fetch(&mut self, rows: usize) -> Option<Option<Cursor>> {
        let ScanState::Paused { after } = &mut self.state else { return None };
        let after = after.take();
        self.state = ScanState::Fetching { rows };
        Some(after)
    }

    /// Whether a message that was offered often without an ack is left to the second pass.
    pub(super) fn leaves_out(&mut self, message: &Message) -> bool {
        let is_left_out = self.pass == Pass::First && message.is_offered_often();
        self.has_left_out |= is_left_out;
        is_left_out
    }

    /// A page was read, `doubtful` of whose rows belong to unknown channels.
    pub(super) fn page_read(&mut self, doubtful: Vec<MessageKey>, next: Option<Cursor>) {
        if doubtful.is_empty() {
            self.pause_at(next);
        } else {
            self.state = ScanState::Confirming(Box::new(Confirming { doubtful, next }));
        }
    }

    /// The channels were read: ends the confirmation and returns the rows in doubt.
    pub(super) fn take_doubtful(&mut self) -> Vec<MessageKey> {
        match std::mem::take(&mut self.state) {
            ScanState::Confirming(confirming) => {
                let Confirming { doubtful, next } = *confirming;
                self.pause_at(next);
                doubtful
            }
            other @ (ScanState::Idle | ScanState::Fetching { .. } | ScanState::Paused { .. }) => {
                self.state = other;
                Vec::new()
            }
        }
    }

    fn pause_at(&mut self, next: Option<Cursor>) {
        self.state = if next.is_some() {
            ScanState::Paused { after: next }
        } else if std::mem::take(&mut self.has_left_out) {
            self.pass = Pass::Second;
            ScanState::Paused { after: None }
        } else {
            self.pass = Pass::First;
            ScanState::Idle
        };
    }
}
