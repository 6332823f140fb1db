//! What a node is to be told when that can be: bounded, and the same notification stands in it once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use state_machine::{Time, Uaid};

/// Something that a node is told of a user agent. Nothing is lost when it is told twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Notification {
    /// A message was stored for it.
    MessageStored(Uaid),
    /// It is connected elsewhere, since then.
    ConnectedElsewhere(Uaid, Time),
}

/// The notifications that wait, the longest waiting first.
pub(super) struct PendingNotifications {
    order: VecDeque<Key>,
    waiting: HashMap<Key, Notification>,
    max: usize,
}

/// Which notifications are the same: those of a kind for one agent.
type Key = (Kind, Uaid);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    MessageStored,
    ConnectedElsewhere,
}

impl PendingNotifications {
    /// None, with room for `max`.
    pub(super) fn up_to(max: usize) -> Self {
        Self { order: VecDeque::new(), waiting: HashMap::new(), max }
    }

    /// Adds one; of two moves of an agent the later counts. Does nothing where there is no room.
    pub(super) fn add(&mut self, notification: Notification) {
        let is_full = self.order.len() >= self.max;
        match self.waiting.entry(notification.key()) {
            Entry::Occupied(mut there) => {
                let latest = notification.max(*there.get());
                there.insert(latest);
            }
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(place) => {
                place.insert(notification);
                self.order.push_back(notification.key());
            }
        }
    }

    /// Takes up to `max` out.
    pub(super) fn take(&mut self, max: usize) -> Vec<Notification> {
        let taken = self.order.drain(..max.min(self.order.len()));
        taken.filter_map(|key| self.waiting.remove(&key)).collect()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl Notification {
    fn key(self) -> Key {
        match self {
            Self::MessageStored(uaid) => (Kind::MessageStored, uaid),
            Self::ConnectedElsewhere(uaid, _) => (Kind::ConnectedElsewhere, uaid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uaid = Uaid([1; 16]);
    const B: Uaid = Uaid([2; 16]);

    fn holding(max: usize, notifications: &[Notification]) -> PendingNotifications {
        let mut all = PendingNotifications::up_to(max);
        notifications.iter().for_each(|notification| all.add(*notification));
        all
    }

    #[test]
    fn the_same_errand_stands_once_and_the_first_comes_first() {
        let mut all = holding(
            9,
            &[
                Notification::MessageStored(A),
                Notification::MessageStored(B),
                Notification::MessageStored(A),
            ],
        );
        assert_eq!(all.take(1), [Notification::MessageStored(A)]);
        assert_eq!(all.take(9), [Notification::MessageStored(B)]);
        assert!(all.is_empty());
        all.add(Notification::MessageStored(A));
        assert_eq!(
            all.take(9),
            [Notification::MessageStored(A)],
            "one that was taken out is a new one"
        );
    }

    #[test]
    fn of_two_moves_the_later_counts_whichever_was_added_first() {
        let moves = [20, 30, 10].map(|since| Notification::ConnectedElsewhere(A, Time(since)));
        let mut all = holding(9, &[&moves[..], &[Notification::MessageStored(A)]].concat());
        assert_eq!(
            all.take(9),
            [Notification::ConnectedElsewhere(A, Time(30)), Notification::MessageStored(A)]
        );
    }

    #[test]
    fn one_more_than_there_is_room_for_is_left_out_and_a_move_that_is_in_still_counts_later() {
        let mut all = holding(
            1,
            &[Notification::ConnectedElsewhere(A, Time(1)), Notification::MessageStored(B)],
        );
        all.add(Notification::ConnectedElsewhere(A, Time(2)));
        assert_eq!(all.take(9), [Notification::ConnectedElsewhere(A, Time(2))]);
    }
}
