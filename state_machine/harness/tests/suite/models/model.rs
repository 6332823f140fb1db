//! A scenario as a stateright model: states, actions, properties.

use harness::invariants::{Invariant, Promise};
use stateright::{Model, Property};

use super::action::Action;
use super::scenario::Scenario;
use super::world::{Fall, World};

/// A search of every state of a scenario.
pub(crate) struct Search {
    pub(crate) scenario: Scenario,
    /// The one property that the search must violate; the others are then ignored. The first
    /// counterexample, which is the shortest, ends the search.
    pub(crate) quarry: Option<Quarry>,
}

/// The target of a search with a seeded bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quarry {
    Promise(Promise),
    Rule(Invariant),
}

macro_rules! kept {
    ($promise:expr) => {
        Property::always($promise.name(), |_, world: &World| !world.has_broken($promise))
    };
}

/// The property that the search for a seeded bug must violate.
const QUARRY: &str = "the promise under test";

/// The rules of a single connection, except those with a property of their own.
const RULES: &str = "rules_of_a_connection";

impl Model for Search {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.scenario.start.clone()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.scenario.actions(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        Some(self.scenario.after(world, &action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.quarry {
            Some(_) => vec![Property::always(QUARRY, |search: &Self, world: &World| {
                !search.quarry.is_some_and(|quarry| quarry.is_caught(world))
            })],
            None => kept().into_iter().chain(self.seen()).collect(),
        }
    }
}

impl Search {
    fn seen(&self) -> impl Iterator<Item = Property<Self>> {
        self.scenario.sights.iter().map(|(name, seen)| Property::sometimes(name, *seen))
    }
}

/// The properties that must hold in every state.
fn kept() -> Vec<Property<Search>> {
    vec![
        kept!(Promise::AcceptedNeverLost),
        kept!(Promise::AckedNeverAgain),
        kept!(Promise::NothingLeftBehind),
        kept!(Promise::SubscriptionKept),
        kept!(Promise::FoundWhileConnected),
        kept!(Promise::ReceiptsAreTrue),
        kept!(Promise::ComesToRest),
        Property::always(Invariant::CommandsWaitForReady.name(), |_, world: &World| {
            !world.has_violated(Invariant::CommandsWaitForReady)
        }),
        Property::always(RULES, |_, world: &World| match &world.broken {
            Some(Fall::Rule(broken)) => broken.rule == Invariant::CommandsWaitForReady,
            Some(Fall::Promise(_)) | None => true,
        }),
    ]
}

impl Quarry {
    pub(crate) const PROPERTY: &str = QUARRY;

    fn is_caught(self, world: &World) -> bool {
        match self {
            Self::Promise(promise) => world.has_broken(promise),
            Self::Rule(rule) => world.has_violated(rule),
        }
    }
}

impl Scenario {
    /// The state after an action. If nothing is in progress in it, the final checks are applied.
    fn after(&self, world: &World, action: &Action) -> World {
        let mut after = world.clone();
        after.happens(self, action);
        if after.broken.is_none() && after.under_way(self).is_empty() {
            after.broken = self.judge(&after).err().map(Fall::Promise);
        }
        after
    }
}
