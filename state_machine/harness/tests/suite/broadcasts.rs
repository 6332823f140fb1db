//! Random histories of broadcasts and of an agent that subscribes to some. Every rule is checked at
//! every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cases::config;
use harness::invariants::CheckedConnection;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use state_machine::broadcast::{BroadcastUpdate, Broadcasts, Versions};
use state_machine::connection::{
    CloseReason, Connection, ConnectionSeed, Effect, Effects, Event, Limits, PhaseName,
};
use state_machine::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue, Update, Version};
use state_machine::month::Month;
use state_machine::store::{Page, RegisterResult, StoreAnswer, StoreOp};
use state_machine::wire::{ClientMessage, ServerMessage};
use state_machine::{OpId, Time, Uaid};

const NOW: Time = Time(1_793_700_000_000);

/// Broadcasts that an agent may have in this test. There is one more than that.
const FOLLOWED_MAX: usize = 3;

/// An event of a random history.
#[derive(Debug, Clone)]
enum Happening {
    /// A broadcast gets a version, or is deleted.
    Changes { id: u8, version: Option<u8> },
    /// The node wakes the connection, if it is subscribed.
    Wakes,
    /// The agent sends the versions it has, and the node the broadcasts.
    Subscribes(BTreeMap<u8, u8>),
    /// The store answers its oldest operation.
    StoreAnswers,
}

/// A node, a connection, and the versions that its agent received.
struct Scene {
    watched: CheckedConnection,
    broadcasts: Broadcasts,
    operations: Vec<(OpId, StoreOp)>,
    follows: bool,
    /// The agent's versions of the broadcasts that it named, up to the limit.
    has: Versions,
    is_known: bool,
}

impl Scene {
    fn new(is_known: bool) -> Self {
        let limits = Limits {
            broadcasts_per_agent_max: FOLLOWED_MAX,
            ..harness::transcript::default_limits()
        };
        let config = harness::transcript::default_config(limits);
        let seed = ConnectionSeed { fresh_uaid: Uaid([9; 16]), jitter: 0 };
        Self {
            watched: CheckedConnection::new(Arc::new(config), seed, NOW),
            broadcasts: Broadcasts::default(),
            operations: Vec::new(),
            follows: false,
            has: Versions::new(),
            is_known,
        }
    }

    fn connection(&self) -> &Connection {
        &self.watched.connection
    }

    fn happens(&mut self, happening: &Happening) -> Result<(), TestCaseError> {
        match happening {
            Happening::Changes { id, version } => {
                self.changes(*id, *version);
                Ok(())
            }
            Happening::Wakes if self.follows => self.tells(),
            Happening::Wakes => Ok(()),
            Happening::Subscribes(said) => {
                let broadcasts = self.says(said);
                self.step(&Event::MessageReceived(ClientMessage::BroadcastSubscribe {
                    broadcasts,
                }))?;
                self.tells()
            }
            Happening::StoreAnswers if self.operations.is_empty() => Ok(()),
            Happening::StoreAnswers => {
                let (op, operation) = self.operations.remove(0);
                self.step(&Event::StoreAnswered { op, answer: Ok(answer(operation)) })
            }
        }
    }

    fn hello(&mut self, said: &BTreeMap<u8, u8>) -> Result<(), TestCaseError> {
        if !said.is_empty() {
            self.tells()?;
        }
        let (uaid, broadcasts) = (self.is_known.then_some(Uaid([1; 16])), self.says(said));
        self.step(&Event::MessageReceived(ClientMessage::Hello {
            uaid,
            broadcasts,
            use_webpush: true,
        }))
    }

    fn changes(&mut self, id: u8, version: Option<u8>) {
        let feed_sync_id = self.broadcasts.cursor().plus(1);
        let (key, value) = (key(id), version.map(value));
        let update = Update { feed_sync_id, key, version: Version::default(), value };
        let cursor = feed_sync_id;
        let updates = vec![update];
        self.broadcasts.apply(FeedPage { updates, cursor, head: cursor, ..FeedPage::default() });
    }

    fn tells(&mut self) -> Result<(), TestCaseError> {
        self.step(&Event::BroadcastsChanged(Arc::new(self.broadcasts.clone())))
    }

    fn says(&mut self, said: &BTreeMap<u8, u8>) -> Versions {
        let said: Versions = said.iter().map(|(id, version)| (key(*id), value(*version))).collect();
        for (id, version) in &said {
            if self.has.contains_key(id) || self.has.len() < FOLLOWED_MAX {
                self.has.insert(id.clone(), version.clone());
            }
        }
        said
    }

    fn step(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let kept = self.watched.step(NOW, event);
        let effects = kept.map_err(|violation| TestCaseError::fail(violation.to_string()))?;
        self.execute(effects);
        Ok(())
    }

    fn execute(&mut self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::SubmitStoreOp { op, operation } => self.operations.push((op, operation)),
                Effect::SubscribeBroadcasts { last_sent: told } => {
                    assert!(told <= self.broadcasts.cursor() && !self.follows);
                    self.follows = true;
                }
                Effect::UnsubscribeBroadcasts => self.follows = false,
                Effect::Send(
                    ServerMessage::Broadcast(broadcasts) | ServerMessage::Hello { broadcasts, .. },
                ) => self.hears(broadcasts),
                _ => {}
            }
        }
    }

    fn hears(&mut self, BroadcastUpdate { versions, refused }: BroadcastUpdate) {
        assert!(versions.len() <= FOLLOWED_MAX && refused.len() <= 2 * FOLLOWED_MAX);
        self.has.extend(versions);
    }

    /// Checks that the agent ends with the last version of every broadcast that it subscribed to.
    fn comes_to_rest(&mut self) -> Result<(), TestCaseError> {
        while self.connection().phase() != PhaseName::Ready {
            self.happens(&Happening::StoreAnswers)?;
        }
        self.happens(&Happening::Wakes)?;
        for (id, has) in &self.has {
            let version = self.broadcasts.version(id.as_str());
            prop_assert!(version.is_none_or(|version| version == has), "{}: {:?}", id, version);
        }
        prop_assert_eq!(self.follows, !self.has.is_empty());
        self.step(&Event::SocketClosed)?;
        prop_assert!(!self.follows);
        Ok(())
    }
}

fn answer(operation: StoreOp) -> StoreAnswer {
    match operation {
        StoreOp::Register(registration) => StoreAnswer::Registered(RegisterResult::Registered(
            registration.record(Month::of(NOW)),
            None,
        )),
        StoreOp::ReadChannels { .. } => StoreAnswer::Channels(Some([].into())),
        StoreOp::Fetch { .. } => StoreAnswer::Fetched(Page::default()),
        other => panic!("nothing here leads to {other:?}"),
    }
}

fn key(id: u8) -> FeedKey {
    FeedKey::parse(&format!("broadcast {id}")).expect("a key is text")
}

fn value(version: u8) -> FeedValue {
    FeedValue::parse(&format!("v{version}")).expect("a value is text")
}

fn said() -> impl Strategy<Value = BTreeMap<u8, u8>> {
    btree_map(0..4_u8, 0..3_u8, 0..4)
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (0..4_u8, prop::option::weighted(0.8, 0..3_u8))
            .prop_map(|(id, version)| Happening::Changes { id, version }),
        3 => Just(Happening::Wakes),
        2 => said().prop_map(Happening::Subscribes),
        2 => Just(Happening::StoreAnswers),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_agent_has_the_last_version_of_what_it_asked_for(
        is_known: bool,
        before in vec((0..4_u8, 0..3_u8), 0..4),
        hello in said(),
        happenings in vec(happening(), 0..40),
    ) {
        let mut scene = Scene::new(is_known);
        before.iter().for_each(|(id, version)| scene.changes(*id, Some(*version)));
        scene.hello(&hello)?;
        happenings.iter().try_for_each(|happening| scene.happens(happening))?;
        scene.comes_to_rest()?;
    }
}

#[test]
fn a_connection_does_not_keep_the_broadcasts_that_it_sent() {
    let mut scene = Scene::new(false);
    scene.hello(&BTreeMap::from([(0, 0)])).expect("no rule is broken");
    let all = Arc::new(Broadcasts::of([(key(0), value(1)), (key(1), value(1))]));
    scene.step(&Event::BroadcastsChanged(Arc::clone(&all))).expect("no rule is broken");
    let mut connection = scene.connection().clone();
    drop(scene);
    assert_eq!(Arc::strong_count(&all), 1);
    let effects = connection.step(NOW, Event::SocketClosed);
    assert_eq!(effects.last(), Some(&Effect::Close(CloseReason::SocketClosed)));
    assert!(all.cursor() > FeedSyncId::NONE);
}
