//! Records what the broadcast rules need to know of a connection, and checks them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::rule::{Checked, Invariant as Is, check};
use state_machine::broadcast::{BroadcastRefusal, BroadcastUpdate, Broadcasts, Versions};
use state_machine::connection::Event;
use state_machine::feed::FeedKey;
use state_machine::wire::ClientMessage;

/// The broadcast state of an agent as it is visible from outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct BroadcastChecker {
    /// The last broadcasts that the node sent to the connection.
    latest: Option<Arc<Broadcasts>>,
    /// The versions of the broadcasts that the agent named: as the agent sent them, or as updated
    /// since.
    has: Versions,
    /// The broadcasts that the agent named after the node had sent any.
    said_since: BTreeSet<FeedKey>,
    is_followed: bool,
}

impl BroadcastChecker {
    /// Records an event before its effects.
    pub(super) fn happened(&mut self, event: &Event, max: usize) {
        match event {
            Event::BroadcastsChanged(all) => {
                self.latest = Some(Arc::clone(all));
                self.said_since.clear();
            }
            Event::MessageReceived(ClientMessage::Hello { broadcasts, .. }) => {
                self.said(broadcasts, max);
                if self.latest.is_some() {
                    self.said_since.clear();
                }
            }
            Event::MessageReceived(ClientMessage::BroadcastSubscribe { broadcasts }) => {
                self.said(broadcasts, max);
            }
            _ => {}
        }
    }

    /// Records that the connection subscribed or unsubscribed.
    pub(super) fn follows(&mut self, is_followed: bool) -> Checked {
        let before = std::mem::replace(&mut self.is_followed, is_followed);
        check!(before != is_followed, Is::BroadcastsFollowed, "subscribed twice: {is_followed}");
        Ok(())
    }

    /// Checks an update that was sent to the agent.
    pub(super) fn sent(&mut self, news: &BroadcastUpdate) -> Checked {
        let latest = |id: &FeedKey| self.latest.as_ref().and_then(|all| all.version(id.as_str()));
        for (id, version) in &news.versions {
            let is_named = self.has.contains_key(id);
            check!(is_named, Is::BroadcastsNamed, "{id} was sent and not named");
            check!(latest(id) == Some(version), Is::BroadcastsNamed, "{id} was sent as {version}");
        }
        for (id, refusal) in &news.refused {
            let is_right = match refusal {
                BroadcastRefusal::NotFound => latest(id).is_none() && self.has.contains_key(id),
                BroadcastRefusal::TooMany => !self.has.contains_key(id),
            };
            check!(is_right, Is::BroadcastsNamed, "{id} was refused as {refusal:?}");
        }
        self.has.extend(news.versions.clone());
        Ok(())
    }

    /// Checks what must hold between steps, from the answer to hello until the connection is
    /// closed.
    pub(super) fn rested(&self, is_closed: bool) -> Checked {
        if is_closed {
            check!(!self.is_followed, Is::BroadcastsFollowed, "closed and followed");
            return Ok(());
        }
        let Some(latest) = &self.latest else { return Ok(()) };
        for (id, has) in self.has.iter().filter(|(id, _)| !self.said_since.contains(*id)) {
            let version = latest.version(id.as_str());
            let is_told = version.is_none_or(|version| version == has);
            check!(is_told, Is::BroadcastsDelivered, "{id} is {version:?}, the agent has {has}");
            check!(self.is_followed, Is::BroadcastsFollowed, "{id} is not followed");
        }
        Ok(())
    }

    fn said(&mut self, broadcasts: &Versions, max: usize) {
        for (id, version) in broadcasts {
            if self.has.contains_key(id) || self.has.len() < max {
                self.has.insert(id.clone(), version.clone());
                self.said_since.insert(id.clone());
            }
        }
    }
}
