//! The progress of a storage scan: rows are fetched page by page and sent as they arrive.

use crate::message::MessageKey;
use crate::store::Cursor;

/// Whether a scan is requested, and how far the current one is.
///
/// Requests coalesce. The flag is cleared when a scan starts, so a message stored after that makes another scan.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct StorageScan {
    requested: bool,
    state: ScanState,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum ScanState {
    #[default]
    Idle,
    /// A page of at most this many rows is being read.
    Fetching { rows: usize },
    /// The page had rows of unknown channels: the channels are read again before such rows are deleted.
    Confirming { doubtful: Vec<MessageKey>, next: Option<Cursor> },
    /// More rows may follow. The scan continues once acks have made room.
    Paused { after: Cursor },
}

impl StorageScan {
    pub(super) fn request(&mut self) {
        self.requested = true;
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
            ScanState::Idle | ScanState::Confirming { .. } | ScanState::Paused { .. } => 0,
        }
    }

    pub(super) fn awaits_store(&self) -> bool {
        matches!(self.state, ScanState::Fetching { .. } | ScanState::Confirming { .. })
    }

    /// Whether all rows were read and no further scan is requested.
    pub(super) fn is_done(&self) -> bool {
        !self.requested && self.state == ScanState::Idle
    }

    /// Starts or continues the scan with a page of `rows`. Returns the position of the page, or none if there is nothing
    /// to fetch now; a new scan waits while it `is_delayed`.
    pub(super) fn start_fetch(&mut self, rows: usize, is_delayed: bool) -> Option<Option<Cursor>> {
        let after = match &self.state {
            ScanState::Idle if self.requested && !is_delayed => {
                self.requested = false;
                None
            }
            ScanState::Paused { after } => Some(after.clone()),
            ScanState::Idle | ScanState::Fetching { .. } | ScanState::Confirming { .. } => {
                return None;
            }
        };
        self.state = ScanState::Fetching { rows };
        Some(after)
    }

    /// A page was read, `doubtful` of whose rows belong to unknown channels.
    pub(super) fn page_read(&mut self, doubtful: Vec<MessageKey>, next: Option<Cursor>) {
        self.state = if doubtful.is_empty() {
            paused_at(next)
        } else {
            ScanState::Confirming { doubtful, next }
        };
    }

    /// The channels were read: ends the confirmation and returns the rows in doubt.
    pub(super) fn take_doubtful(&mut self) -> Vec<MessageKey> {
        match std::mem::take(&mut self.state) {
            ScanState::Confirming { doubtful, next } => {
                self.state = paused_at(next);
                doubtful
            }
            other @ (ScanState::Idle | ScanState::Fetching { .. } | ScanState::Paused { .. }) => {
                self.state = other;
                Vec::new()
            }
        }
    }
}

fn paused_at(next: Option<Cursor>) -> ScanState {
    next.map_or(ScanState::Idle, |after| ScanState::Paused { after })
}
