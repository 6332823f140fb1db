//! What the log says about a disk whose space ended, once a minute.

use slog::{Logger, info, warn};
use storage::DiskSpace;

/// The disk as it was at the last look.
#[derive(Default)]
pub(super) struct DiskWatch {
    /// The counts at the last look.
    seen: Counts,
    /// The counts when the disk last had space for everything.
    had_space: Counts,
    has_none: bool,
}

/// Refusals since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    messages: u64,
    subscriptions: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// So many new user agents and channels were refused since the last look.
    SubscriptionsRefused(u64),
    /// The disk has space again, after so many refusals.
    HasSpace(Counts),
}

impl DiskWatch {
    pub(super) fn look(&mut self, disk: DiskSpace, log: &Logger) {
        match self.change(disk) {
            Some(Change::SubscriptionsRefused(refused)) => {
                warn!(log, "new user agents and channels are refused, the disk has less than half of disk_free_min";
                    "refused" => refused, "free_bytes" => disk.free_bytes);
            }
            Some(Change::HasSpace(Counts { messages, subscriptions })) => {
                info!(log, "the disk has space again, messages are stored"; "free_bytes" => disk.free_bytes,
                    "messages_refused" => messages, "subscriptions_refused" => subscriptions);
            }
            None => {}
        }
    }

    /// A disk that refused something since the last look has no space yet.
    fn change(&mut self, disk: DiskSpace) -> Option<Change> {
        let (messages, subscriptions) = (disk.messages_refused, disk.subscriptions_refused);
        let counts = Counts { messages, subscriptions };
        let before = std::mem::replace(&mut self.seen, counts);
        if disk.is_low() || counts != before {
            self.has_none = true;
            let refused = subscriptions - before.subscriptions;
            return (disk.is_low() && refused > 0).then_some(Change::SubscriptionsRefused(refused));
        }
        let had_space = std::mem::replace(&mut self.had_space, counts);
        std::mem::take(&mut self.has_none).then(|| {
            Change::HasSpace(Counts {
                messages: messages - had_space.messages,
                subscriptions: subscriptions - had_space.subscriptions,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(free_bytes: u64, messages_refused: u64, subscriptions_refused: u64) -> DiskSpace {
        DiskSpace { free_bytes, free_bytes_min: 64, messages_refused, subscriptions_refused }
    }

    #[test]
    fn a_disk_that_has_space_again_is_reported_once_with_the_refusals_meanwhile() {
        let mut watch = DiskWatch::default();
        assert_eq!(watch.change(disk(100, 0, 0)), None);
        assert_eq!(watch.change(disk(63, 5, 0)), None);
        assert_eq!(watch.change(disk(20, 9, 2)), Some(Change::SubscriptionsRefused(2)));
        assert_eq!(watch.change(disk(63, 9, 2)), None);
        let counts = Counts { messages: 9, subscriptions: 2 };
        assert_eq!(watch.change(disk(64, 9, 2)), Some(Change::HasSpace(counts)));
        assert_eq!(watch.change(disk(64, 9, 2)), None);
    }

    #[test]
    fn a_full_disk_without_a_minimum_has_space_when_nothing_is_refused_any_more() {
        let mut watch = DiskWatch::default();
        let full =
            |messages_refused| DiskSpace { free_bytes_min: 0, ..disk(0, messages_refused, 0) };
        assert_eq!(watch.change(full(3)), None);
        assert_eq!(watch.change(full(7)), None);
        let counts = Counts { messages: 7, subscriptions: 0 };
        assert_eq!(watch.change(full(7)), Some(Change::HasSpace(counts)));
        assert_eq!(watch.change(full(8)), None);
        let counts = Counts { messages: 1, subscriptions: 0 };
        assert_eq!(watch.change(full(8)), Some(Change::HasSpace(counts)));
    }
}
