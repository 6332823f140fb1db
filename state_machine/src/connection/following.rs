//! The broadcasts an agent asked for: what it said it has, and how far it was told.

use super::Cx;
use super::effect::Effect;
use super::session::Session;
use crate::broadcast::{Broadcasts, News, Refusal, Versions};
use crate::feed::{FeedKey, FeedSyncId};
use crate::wire::ServerMessage;

/// What is followed. It holds ids and a number, and never the versions it was told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Following {
    /// Which broadcasts, in order. Those that do not exist are followed too: they are told once they do.
    ids: Vec<FeedKey>,
    /// Changes up to here were told; none until the node first said what the broadcasts are.
    told: Option<FeedSyncId>,
    /// What the agent said it has, until the node says what the broadcasts are.
    said: Versions,
    /// What is to be told with the next message.
    news: News,
}

impl Following {
    /// Whether the node was asked to tell of changes.
    pub(super) fn is_followed(&self) -> bool {
        self.told.is_some()
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
        if self.news.refused.len() < max {
            self.news.refused.insert(id, Refusal::TooMany);
        }
    }

    /// Finds out what there is to tell, now that the broadcasts are these.
    fn learn(&mut self, all: &Broadcasts) {
        let Self { ids, news, .. } = self;
        // A lesser number than before is of a feed that was started anew: all of it counts as changed.
        let told = self.told.filter(|told| *told <= all.cursor()).unwrap_or_default();
        let said = std::mem::take(&mut self.said);
        for id in ids {
            let version = all.version(id.as_str());
            let is_news = match said.get(id) {
                Some(has) => version.is_some_and(|version| version != has),
                None => all.changed_since(id.as_str(), told).is_some(),
            };
            if said.contains_key(id) || is_news || version.is_none() {
                news.versions.remove(id);
                news.refused.remove(id);
            }
            if let Some(shared) = all.shared_id(id) {
                *id = shared;
            }
            match version {
                Some(version) if is_news => {
                    news.versions.insert(id.clone(), version.clone());
                }
                None if said.contains_key(id) => {
                    news.refused.insert(id.clone(), Refusal::NotFound);
                }
                Some(_) | None => {}
            }
        }
        self.told = Some(all.cursor());
    }
}

impl Session {
    /// The agent says which broadcasts it has. The node says right after what they are.
    pub(super) fn subscribe(&mut self, said: Versions, cx: &mut Cx<'_>) {
        if !said.is_empty() {
            let max = cx.config.limits.broadcasts_per_agent_max;
            self.following.get_or_insert_default().subscribe(said, max);
        }
    }

    /// Takes in what the broadcasts are, and says nothing yet.
    pub(super) fn learn_broadcasts(&mut self, all: &Broadcasts, cx: &mut Cx<'_>) {
        let Some(following) = &mut self.following else { return };
        let was_followed = following.is_followed();
        following.learn(all);
        if !was_followed {
            cx.out.push(Effect::FollowBroadcasts { told: all.cursor() });
        }
    }

    /// Tells what there is to tell, if there is anything.
    pub(super) fn broadcasts_changed(&mut self, all: &Broadcasts, cx: &mut Cx<'_>) {
        self.learn_broadcasts(all, cx);
        let news = self.take_news();
        if !news.is_empty() {
            cx.out.push(Effect::Send(ServerMessage::Broadcast(news)));
        }
    }

    /// Answers hello.
    pub(super) fn greet(&mut self, cx: &mut Cx<'_>) {
        let (uaid, broadcasts) = (self.uaid, self.take_news());
        cx.out.push(Effect::Send(ServerMessage::Hello { uaid, broadcasts }));
    }

    fn take_news(&mut self) -> News {
        self.following
            .as_mut()
            .map(|following| std::mem::take(&mut following.news))
            .unwrap_or_default()
    }
}
