//! A scenario as a stateright model: states, actions, properties.

use crate::feed_models::promises::Promise;
use stateright::{Model, Property};

use super::action::Action;
use super::scenario::Scenario;
use super::world::World;

/// A search of every state of a scenario.
pub(crate) struct Search {
    pub(crate) scenario: Scenario,
}

/// The property that the search for a seeded bug must violate.
pub(crate) const QUARRY: &str = "the promise under test";

macro_rules! kept {
    ($($promise:ident)*) => {
        vec![$(
            Property::always(Promise::$promise.name(), |_, world: &World| {
                !world.has_broken(Promise::$promise)
            }),
        )*]
    };
}

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
        if self.scenario.quarry.is_some() {
            return vec![Property::always(QUARRY, |_, world: &World| world.broken.is_none())];
        }
        let mut properties = kept();
        let sights = self.scenario.sights.iter();
        properties.extend(sights.map(|(name, seen)| Property::sometimes(name, *seen)));
        properties
    }
}

/// The properties that must hold in every state.
fn kept() -> Vec<Property<Search>> {
    let kept = kept!(
        SequenceOnlyGrows
        NumberedOnce
        OneNumberAKey
        VersionsOnlyGrow
        NumbersRunForward
        ChangesArePublished
        LastStateArrives
        OneAtATime
        ComesToRest
        NothingDueBeforeDeadline
    );
    assert_eq!(kept.len(), Promise::ALL.len(), "every promise is checked");
    kept
}

impl Scenario {
    /// The state after an action. If nothing is in progress in it, the final checks are applied.
    fn after(&self, world: &World, action: &Action) -> World {
        let mut after = world.clone();
        after.happens(self, action);
        if after.broken.is_none() {
            let is_at_rest = after.under_way().is_empty();
            let judged = if is_at_rest { self.judge(&after) } else { self.goes_on(&after) };
            after.broken = judged.err();
        }
        after
    }
}
