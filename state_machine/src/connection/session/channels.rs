//! The channels of an agent.

use std::collections::BTreeSet;

use crate::ids::Chid;

/// In order, and without room for more: most agents have one or two, and a node of a tree has room for eleven.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(in crate::connection) struct Channels(Box<[Chid]>);

impl Channels {
    pub(in crate::connection) fn contains(&self, chid: Chid) -> bool {
        self.0.binary_search(&chid).is_ok()
    }

    pub(in crate::connection) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::connection) fn insert(&mut self, chid: Chid) {
        if let Err(at) = self.0.binary_search(&chid) {
            let (before, after) = self.0.split_at(at);
            self.0 = [before, &[chid], after].concat().into();
        }
    }

    pub(super) fn remove(&mut self, chid: Chid) {
        self.0 = self.0.iter().copied().filter(|other| *other != chid).collect();
    }
}

impl From<BTreeSet<Chid>> for Channels {
    fn from(channels: BTreeSet<Chid>) -> Self {
        Self(channels.into_iter().collect())
    }
}

impl From<&Channels> for BTreeSet<Chid> {
    fn from(channels: &Channels) -> Self {
        channels.0.iter().copied().collect()
    }
}
