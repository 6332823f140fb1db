//! The broadcasts an agent asked for: what it said it has, and how far it was told.

use super::StepContext;
use super::effect::Effect;
use super::session::Session;
use crate::broadcast::{BroadcastRefusal, BroadcastUpdate, Broadcasts, Versions};
use crate::feed::{FeedKey, FeedSyncId};
use crate::wire::ServerMessage;

/// What is followed. It holds ids and a number, and never the versions it was told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct BroadcastSubscriptions {
    /// Which broadcasts, in order. Those that do not exist are followed too: they are told once they do.
    ids: Vec<FeedKey>,
    /// Changes up to here were told; none until the node first said what the broadcasts are.
    last_sent: Option<FeedSyncId>,
    /// What the agent said it has, until the node says what the broadcasts are.
    said: Versions,
    /// What is to be told with the next message.
    update: BroadcastUpdate,
}

impl BroadcastSubscriptions {
    /// Whether the node was asked to tell of changes.
    pub(super) fn is_followed(&self) -> bool {
        self.last_sent.is_some()
    }

    /// What an agent says of a broadcast counts, whatever it was told before.
    fn subscribe(&mut self, said: Versions, max: usize) {
        for (id, version) in said {
            if let Err(at) = self.ids.binary_search(&id) {
                if self.ids.len() >= max {
                    self.refuse(id, max);
                    continue;
                }
                self.ids.insert(at, id.clone());
            }
            self.said.insert(id, version);
        }
    }

    /// An agent that asks for thousands is told of some of them: answers are bounded too.
    fn refuse(&mut self, id: FeedKey, max: usize) {
        if self.update.refused.len() < max {
            self.update.refused.insert(id, BroadcastRefusal::TooMany);
        }
    }

    /// Finds out what there is to tell, now that the broadcasts are these.
    fn observe(&mut self, all: &Broadcasts) {
        let Self { ids, update, .. } = self;
        // A lesser number than before is of a feed that was started anew: all of it counts as changed.
        let told = self.last_sent.filter(|told| *told <= all.cursor()).unwrap_or_default();
        let said = std::mem::take(&mut self.said);
        for id in ids {
            let version = all.version(id.as_str());
            let is_news = match said.get(id) {
                Some(has) => version.is_some_and(|version| version != has),
                None => all.changed_since(id.as_str(), told).is_some(),
            };
            if said.contains_key(id) || is_news || version.is_none() {
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
                None if said.contains_key(id) => {
                    update.refused.insert(id.clone(), BroadcastRefusal::NotFound);
                }
                Some(_) | None => {}
            }
        }
        self.last_sent = Some(all.cursor());
    }
}

impl Session {
    /// The agent says which broadcasts it has. The node says right after what they are.
    pub(super) fn subscribe(&mut self, said: Versions, cx: &mut StepContext<'_>) {
        if !said.is_empty() {
            let max = cx.config.limits.broadcasts_per_agent_max;
            self.subscriptions.get_or_insert_default().subscribe(said, max);
        }
    }

    /// Takes in what the broadcasts are, and says nothing yet.
    pub(super) fn observe_broadcasts(&mut self, all: &Broadcasts, cx: &mut StepContext<'_>) {
        let Some(subscriptions) = &mut self.subscriptions else { return };
        let was_followed = subscriptions.is_followed();
        subscriptions.observe(all);
        if !was_followed {
            cx.out.push(Effect::SubscribeBroadcasts { last_sent: all.cursor() });
        }
    }

    /// Tells what there is to tell, if there is anything.
    pub(super) fn broadcasts_changed(&mut self, all: &Broadcasts, cx: &mut StepContext<'_>) {
        self.observe_broadcasts(all, cx);
        let update = self.take_update();
        if !update.is_empty() {
            cx.out.push(Effect::Send(ServerMessage::Broadcast(update)));
        }
    }

    /// Answers hello.
    pub(super) fn send_hello(&mut self, cx: &mut StepContext<'_>) {
        let (uaid, broadcasts) = (self.uaid, self.take_update());
        cx.out.push(Effect::Send(ServerMessage::Hello { uaid, broadcasts }));
    }

    fn take_update(&mut self) -> BroadcastUpdate {
        self.subscriptions
            .as_mut()
            .map(|subscriptions| std::mem::take(&mut subscriptions.update))
            .unwrap_or_default()
    }
}
