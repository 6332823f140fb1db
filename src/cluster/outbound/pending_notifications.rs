//! A bounded queue of notifications for one node, without repetitions.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};

use state_machine::Uaid;

use crate::cluster::request::PeerRequest;

/// Notifications that wait until the node can be reached, oldest first.
pub(super) struct PendingNotifications {
    order: VecDeque<Key>,
    by_key: HashMap<Key, PeerRequest>,
    max: usize,
}

/// One notification of each kind is kept per agent.
type Key = (Discriminant<PeerRequest>, Uaid);

impl PendingNotifications {
    pub(super) fn up_to(max: usize) -> Self {
        Self { order: VecDeque::new(), by_key: HashMap::new(), max }
    }

    /// Adds a notification, or drops it. Of two `ConnectedElsewhere` the later one is kept.
    pub(super) fn add(&mut self, notification: PeerRequest) {
        let key = (discriminant(&notification), notification.uaid());
        match self.by_key.entry(key) {
            Entry::Occupied(mut kept) => *kept.get_mut() = notification.max(*kept.get()),
            Entry::Vacant(_) if self.order.len() >= self.max => {}
            Entry::Vacant(entry) => {
                entry.insert(notification);
                self.order.push_back(key);
            }
        }
    }

    /// Removes up to `max` of them.
    pub(super) fn take(&mut self, max: usize) -> Vec<PeerRequest> {
        let keys = self.order.drain(..max.min(self.order.len()));
        keys.filter_map(|key| self.by_key.remove(&key)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use state_machine::Time;

    use super::PeerRequest::{ConnectedElsewhere, MessageStored};
    use super::*;

    const A: Uaid = Uaid([1; 16]);
    const B: Uaid = Uaid([2; 16]);

    fn queue(max: usize, notifications: &[PeerRequest]) -> PendingNotifications {
        let mut queue = PendingNotifications::up_to(max);
        notifications.iter().for_each(|notification| queue.add(*notification));
        queue
    }

    #[test]
    fn a_repeated_notification_is_kept_once_in_its_first_position() {
        let mut queue = queue(9, &[MessageStored(A), MessageStored(B), MessageStored(A)]);
        assert_eq!(queue.take(1), [MessageStored(A)]);
        assert_eq!(queue.take(9), [MessageStored(B)]);
        assert!(queue.is_empty());
        queue.add(MessageStored(A));
        assert_eq!(queue.take(9), [MessageStored(A)], "it is no repetition of one that was taken");
    }

    #[test]
    fn of_several_connections_elsewhere_the_latest_is_kept_in_any_order() {
        let moves = [20, 30, 10].map(|since| ConnectedElsewhere(A, Time(since)));
        let mut queue = queue(9, &[&moves[..], &[MessageStored(A)]].concat());
        assert_eq!(queue.take(9), [ConnectedElsewhere(A, Time(30)), MessageStored(A)]);
    }

    #[test]
    fn a_full_queue_drops_new_notifications_and_updates_kept_ones() {
        let mut queue = queue(1, &[ConnectedElsewhere(A, Time(1)), MessageStored(B)]);
        queue.add(ConnectedElsewhere(A, Time(2)));
        assert_eq!(queue.take(9), [ConnectedElsewhere(A, Time(2))]);
    }
}
