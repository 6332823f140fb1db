//! Who is connected to this node, by uaid.

use std::collections::BTreeMap;

use crate::ids::{ConnectionId, Uaid};

/// The live connections. `R` is how one is reached; a test needs none.
///
/// A connection leaves only its own entry: one that was displaced cannot take its successor along.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Registry<R> {
    live: BTreeMap<Uaid, Entry<R>>,
}

/// A live connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry<R> {
    /// Which.
    pub connection: ConnectionId,
    /// How it is reached.
    pub handle: R,
}

impl<R> Registry<R> {
    /// Nobody is connected.
    pub fn new() -> Self {
        Self { live: BTreeMap::new() }
    }

    /// `connection` is found under `uaid` from now on. Gives back the one it displaces, which is to be told.
    pub fn insert(&mut self, uaid: Uaid, connection: ConnectionId, handle: R) -> Option<Entry<R>> {
        self.live
            .insert(uaid, Entry { connection, handle })
            .filter(|displaced| displaced.connection != connection)
    }

    /// `connection` is no longer found under `uaid`, if it still was.
    pub fn remove(&mut self, uaid: Uaid, connection: ConnectionId) {
        if self.live.get(&uaid).is_some_and(|entry| entry.connection == connection) {
            self.live.remove(&uaid);
        }
    }

    /// Who is connected as `uaid`.
    pub fn find(&self, uaid: Uaid) -> Option<&Entry<R>> {
        self.live.get(&uaid)
    }

    /// Everybody.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<R>> {
        self.live.values()
    }

    /// How many are connected.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether nobody is.
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
    fn a_displaced_connection_that_leaves_takes_nobody_along() {
        let mut registry = Registry::new();
        registry.insert(WHO, OLD, ());
        registry.insert(WHO, NEW, ());
        registry.remove(WHO, OLD);
        assert_eq!(registry.find(WHO).map(|entry| entry.connection), Some(NEW));
        registry.remove(WHO, NEW);
        assert!(registry.is_empty());
    }

    #[test]
    fn entering_again_displaces_nobody() {
        let mut registry = Registry::new();
        registry.insert(WHO, OLD, ());
        assert_eq!(registry.insert(WHO, OLD, ()), None);
        assert_eq!(registry.iter().count(), 1);
    }
}
