//! The connections of this node, by uaid.

use std::collections::BTreeMap;

use crate::access::AccessId;
use crate::ids::{ConnectionId, Uaid};

/// The live connections. `R` is the handle of a connection; tests need none.
///
/// A connection removes only its own entry: a replaced connection cannot remove its successor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Registry<R> {
    live: BTreeMap<Uaid, Entry<R>>,
}

/// A live connection and its handle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry<R> {
    pub connection: ConnectionId,
    /// The handle that delivers events to it.
    pub handle: R,
}

impl<R> Registry<R> {
    pub fn new() -> Self {
        Self { live: BTreeMap::new() }
    }

    /// Registers `connection` under `uaid`. Returns the connection it replaces, which the caller
    /// must notify.
    pub fn insert(&mut self, uaid: Uaid, connection: ConnectionId, handle: R) -> Option<Entry<R>> {
        self.live
            .insert(uaid, Entry { connection, handle })
            .filter(|displaced| displaced.connection != connection)
    }

    /// Removes `connection` from `uaid`, unless a newer one has replaced it.
    pub fn remove(&mut self, uaid: Uaid, connection: ConnectionId) {
        if self.live.get(&uaid).is_some_and(|entry| entry.connection == connection) {
            self.live.remove(&uaid);
        }
    }

    /// The connection of `uaid` on this node.
    pub fn find(&self, uaid: Uaid) -> Option<&Entry<R>> {
        self.live.get(&uaid)
    }

    /// All live connections, in the order of their uaids.
    pub fn iter(&self) -> impl Iterator<Item = (Uaid, &Entry<R>)> {
        self.live.iter().map(|(uaid, entry)| (*uaid, entry))
    }

    /// The live connections of an access token. They are neighbours: no other connection is looked at.
    pub fn of_access(&self, id: AccessId) -> impl Iterator<Item = &Entry<R>> {
        let [first, last] = [0, u8::MAX].map(|byte| {
            let mut uaid = [byte; 16];
            uaid[..6].copy_from_slice(&id.0);
            Uaid(uaid)
        });
        let near = self.live.range(first..=last);
        near.filter(move |(uaid, _)| uaid.access() == Some(id)).map(|(_, entry)| entry)
    }

    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

impl<R> Default for Registry<R> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Uaid = Uaid([7; 16]);
    const OLD: ConnectionId = ConnectionId(1);
    const NEW: ConnectionId = ConnectionId(2);

    #[test]
    fn the_newer_connection_displaces_the_older_one() {
        let mut registry = Registry::new();
        assert_eq!(registry.insert(WHO, OLD, "old"), None);
        let displaced = Entry { connection: OLD, handle: "old" };
        assert_eq!(registry.insert(WHO, NEW, "new"), Some(displaced));
        assert_eq!(registry.find(WHO).map(|entry| entry.handle), Some("new"));
        assert_eq!(registry.len(), 1);
    }

    #[test]
    fn a_displaced_connection_does_not_remove_its_successor() {
        let mut registry = Registry::new();
        registry.insert(WHO, OLD, ());
        registry.insert(WHO, NEW, ());
        registry.remove(WHO, OLD);
        assert_eq!(registry.find(WHO).map(|entry| entry.connection), Some(NEW));
        assert!(!registry.is_empty());
        registry.remove(WHO, NEW);
        assert_eq!((registry.is_empty(), registry.len()), (true, 0));
    }

    #[test]
    fn the_connections_of_a_token_are_found_among_their_neighbours() {
        let mut registry = Registry::new();
        let [before, id, after] = [[1, 1, 1, 1, 1, 0], [1; 6], [1, 1, 1, 1, 1, 2]].map(AccessId);
        for (number, access) in [before, id, id, after].into_iter().enumerate() {
            let uaid = Uaid::with_access([number as u8; 16], access);
            registry.insert(uaid, ConnectionId(number as u64), ());
        }
        // The same bytes in a uaid without a token.
        registry.insert(Uaid([1; 16]), ConnectionId(9), ());
        let of = |id| registry.of_access(id).map(|entry| entry.connection.0).collect::<Vec<_>>();
        assert_eq!((of(before), of(id), of(after)), (vec![0], vec![1, 2], vec![3]));
    }

    #[test]
    fn a_connection_that_registers_again_displaces_no_other() {
        let mut registry = Registry::new();
        registry.insert(WHO, OLD, ());
        assert_eq!(registry.insert(WHO, OLD, ()), None);
        assert_eq!(registry.iter().count(), 1);
    }
}
