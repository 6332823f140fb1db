//! What a node is to be told when that can be: bounded, and the same errand stands in it once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use state_machine::{Time, Uaid};

/// Something that a node is told of a user agent. Nothing is lost when it is told twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Errand {
    /// A message was stored for it.
    Stored(Uaid),
    /// It is connected elsewhere, since then.
    Moved(Uaid, Time),
}

/// The errands that wait, the longest waiting first.
pub(super) struct Errands {
    order: VecDeque<Key>,
    waiting: HashMap<Key, Errand>,
    max: usize,
}

/// Which errands are the same: those of a kind for one agent.
type Key = (Kind, Uaid);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Stored,
    Moved,
}

impl Errands {
    /// None, with room for `max`.
    pub(super) fn up_to(max: usize) -> Self {
        Self { order: VecDeque::new(), waiting: HashMap::new(), max }
    }

    /// Adds one; of two moves of an agent the later counts. Does nothing where there is no room.
    pub(super) fn add(&mut self, errand: Errand) {
        let is_full = self.order.len() >= self.max;
        match self.waiting.entry(errand.key()) {
            Entry::Occupied(mut there) => {
                let latest = errand.max(*there.get());
                there.insert(latest);
            }
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(place) => {
                place.insert(errand);
                self.order.push_back(errand.key());
            }
        }
    }

    /// Takes up to `max` out.
    pub(super) fn take(&mut self, max: usize) -> Vec<Errand> {
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

impl Errand {
    fn key(self) -> Key {
        match self {
            Self::Stored(uaid) => (Kind::Stored, uaid),
            Self::Moved(uaid, _) => (Kind::Moved, uaid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uaid = Uaid([1; 16]);
    const B: Uaid = Uaid([2; 16]);

    fn holding(max: usize, errands: &[Errand]) -> Errands {
        let mut all = Errands::up_to(max);
        errands.iter().for_each(|errand| all.add(*errand));
        all
    }

    #[test]
    fn the_same_errand_stands_once_and_the_first_comes_first() {
        let mut all = holding(9, &[Errand::Stored(A), Errand::Stored(B), Errand::Stored(A)]);
        assert_eq!(all.take(1), [Errand::Stored(A)]);
        assert_eq!(all.take(9), [Errand::Stored(B)]);
        assert!(all.is_empty());
        all.add(Errand::Stored(A));
        assert_eq!(all.take(9), [Errand::Stored(A)], "one that was taken out is a new one");
    }

    #[test]
    fn of_two_moves_the_later_counts_whichever_was_added_first() {
        let moves = [20, 30, 10].map(|since| Errand::Moved(A, Time(since)));
        let mut all = holding(9, &[&moves[..], &[Errand::Stored(A)]].concat());
        assert_eq!(all.take(9), [Errand::Moved(A, Time(30)), Errand::Stored(A)]);
    }

    #[test]
    fn one_more_than_there_is_room_for_is_left_out_and_a_move_that_is_in_still_counts_later() {
        let mut all = holding(1, &[Errand::Moved(A, Time(1)), Errand::Stored(B)]);
        all.add(Errand::Moved(A, Time(2)));
        assert_eq!(all.take(9), [Errand::Moved(A, Time(2))]);
    }
}
