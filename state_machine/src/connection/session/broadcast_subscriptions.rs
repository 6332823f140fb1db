//! The broadcasts that an agent subscribed to, and up to which change it has them.

use crate::broadcast::{BroadcastRefusal, BroadcastUpdate, Broadcasts, Versions};
use crate::connection::effect::{Effect, Effects};
use crate::feed::{FeedKey, FeedSyncId};

/// The subscriptions; none until the agent names a broadcast, so that an idle connection holds no memory for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct BroadcastSubscriptions(Option<Box<Subscribed>>);

/// Ids and a number, and never the versions that were sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Subscribed {
    /// The ids, in order. A broadcast that does not exist is sent once it does.
    ids: Vec<FeedKey>,
    /// The last change that was sent; none until the machine first sees the broadcasts.
    last_sent: Option<FeedSyncId>,
    /// The versions that the agent has, until the machine next sees the broadcasts.
    agent_has: Versions,
    /// The contents of the next message.
    update: BroadcastUpdate,
}

impl BroadcastSubscriptions {
    /// Adds what an agent names, at most `max` in all. The version it names counts, whatever was sent before.
    pub(super) fn subscribe(&mut self, versions: Versions, max: usize) {
        if versions.is_empty() {
            return;
        }
        let subscribed = self.0.get_or_insert_default();
        for (id, version) in versions {
            if let Err(at) = subscribed.ids.binary_search(&id) {
                if subscribed.ids.len() >= max {
                    subscribed.refuse(id, max);
                    continue;
                }
                subscribed.ids.insert(at, id.clone());
            }
            subscribed.agent_has.insert(id, version);
        }
    }

    /// Notes what changed, for the next message. The first time it subscribes this connection to changes.
    pub(super) fn observe(&mut self, all: &Broadcasts, out: &mut Effects) {
        let Some(subscribed) = &mut self.0 else { return };
        let is_first = subscribed.last_sent.is_none();
        subscribed.observe(all);
        if is_first {
            out.push(Effect::SubscribeBroadcasts { last_sent: all.cursor() });
        }
    }

    pub(super) fn take_update(&mut self) -> BroadcastUpdate {
        let update = self.0.as_mut().map(|subscribed| std::mem::take(&mut subscribed.update));
        update.unwrap_or_default()
    }

    pub(super) fn close(self, out: &mut Effects) {
        if self.0.is_some_and(|subscribed| subscribed.last_sent.is_some()) {
            out.push(Effect::UnsubscribeBroadcasts);
        }
    }
}

impl Subscribed {
    /// At most `max` refusals are in one message.
    fn refuse(&mut self, id: FeedKey, max: usize) {
        if self.update.refused.len() < max {
            self.update.refused.insert(id, BroadcastRefusal::TooMany);
        }
    }

    fn observe(&mut self, all: &Broadcasts) {
        let Self { ids, update, .. } = self;
        // A lesser number than before belongs to a feed that was started anew: all of it counts as changed.
        let last_sent = self.last_sent.filter(|sent| *sent <= all.cursor()).unwrap_or_default();
        let agent_has = std::mem::take(&mut self.agent_has);
        for id in ids {
            let version = all.version(id.as_str());
            let is_news = match agent_has.get(id) {
                Some(has) => version.is_some_and(|version| version != has),
                None => all.changed_since(id.as_str(), last_sent).is_some(),
            };
            if agent_has.contains_key(id) || is_news || version.is_none() {
                update.versions.remove(id);
                update.refused.remove(id);
            }
            if let Some(shared) = all.shared_id(id) {
                *id = shared;
            }
            match version {
                Some(version) if is_news => {
                    update.versions.insert(id.clone(), version.clone());
                }
                None if agent_has.contains_key(id) => {
                    update.refused.insert(id.clone(), BroadcastRefusal::NotFound);
                }
                Some(_) | None => {}
            }
        }
        self.last_sent = Some(all.cursor());
    }
}
