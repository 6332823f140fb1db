//! The first page of stored messages: a small one, so that an agent that connects and leaves costs few reads.

use crate::connection::config::Limits;
use crate::time::{Span, Time};

/// Time from the first page to the next one, if no ack arrives before.
const NEXT_PAGE_WAIT: Span = Span(50);

/// Whether the first page was read, and when the next one may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum FirstPage {
    #[default]
    Unread,
    /// It was sent, and other pages follow.
    Sent { next_at: Time },
    /// An ack has arrived, or the wait is over, or there is no other page.
    Done,
}

impl FirstPage {
    /// The maximum number of rows of the next page.
    pub(super) fn rows_max(self, limits: &Limits) -> usize {
        let max = limits.fetch_rows_max;
        if self == Self::Unread { max.min(limits.first_fetch_rows_max) } else { max }
    }

    /// A page was read. One that is as small as the others delays none.
    pub(super) fn page_read(&mut self, is_followed: bool, limits: &Limits, now: Time) {
        if *self == Self::Unread {
            let is_small = limits.first_fetch_rows_max < limits.fetch_rows_max;
            *self = if is_followed && is_small {
                Self::Sent { next_at: now + NEXT_PAGE_WAIT }
            } else {
                Self::Done
            };
        }
    }

    /// The next page is read at once.
    pub(super) fn end_wait(&mut self) {
        if matches!(self, Self::Sent { .. }) {
            *self = Self::Done;
        }
    }

    /// Ends the wait if it is over, or if the clock was set back.
    pub(super) fn on_time(&mut self, now: Time) {
        if let Self::Sent { next_at } = *self
            && (next_at <= now || now + NEXT_PAGE_WAIT < next_at)
        {
            self.end_wait();
        }
    }

    /// Until when the next page waits.
    pub(super) fn next_at(self) -> Option<Time> {
        match self {
            Self::Sent { next_at } => Some(next_at),
            Self::Unread | Self::Done => None,
        }
    }
}
