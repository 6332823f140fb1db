//! The connections of this node, by uaid.

use std::collections::BTreeMap;

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
    pub fn iter(&self) -> impl Iterator<Item = &Entry<R>> {
        self.live.values()
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
    fn a_connection_that_registers_again_displaces_no_other() {
        let mut registry = Registry::new();
        registry.insert(WHO, OLD, ());
        assert_eq!(registry.insert(WHO, OLD, ()), None);
        assert_eq!(registry.iter().count(), 1);
    }
}
