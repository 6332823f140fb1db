//! What a search of the states checks, and how a counterexample is printed.

use harness::invariants::{Invariant, Promise};
use state_machine::Message;

use super::action::Action;
use super::mutation::Mutation;
use super::scenario::Scenario;
use super::world::{Fall, World};
use crate::search::{self, Diary, Sight, hunt};

/// The target of a search with a seeded bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quarry {
    Promise(Promise),
    Rule(Invariant),
}

impl From<Promise> for Quarry {
    fn from(promise: Promise) -> Self {
        Self::Promise(promise)
    }
}

impl From<Invariant> for Quarry {
    fn from(rule: Invariant) -> Self {
        Self::Rule(rule)
    }
}

/// Searches a scenario with a seeded bug for the shortest violation of this promise or rule; the others are ignored.
pub(crate) fn is_caught(scenario: Scenario, mutation: Mutation, quarry: impl Into<Quarry>) {
    let mut scenario = scenario.with(mutation);
    scenario.quarry = Some(quarry.into());
    hunt(&scenario);
}

impl search::Scenario for Scenario {
    type World = World;
    type Action = Action;

    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self) -> &World {
        &self.start
    }

    fn sights(&self) -> &[Sight<Self>] {
        &self.sights
    }

    fn quarry(&self) -> Option<String> {
        Some(format!("{:?} breaks {:?}", self.mutation, self.quarry?))
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.possible(world, actions);
    }

    fn after(&self, world: &World, action: &Action) -> World {
        let mut after = world.clone();
        after.happens(self, action);
        if after.broken.is_none() && after.under_way(self).is_empty() {
            after.broken = self.judge(&after).err().map(Fall::Promise);
        }
        after
    }

    fn is_broken(&self, world: &World) -> bool {
        world.broken.as_ref().is_some_and(|fall| match (self.quarry, fall) {
            (None, _) => true,
            (Some(Quarry::Promise(quarry)), Fall::Promise(broken)) => broken.rule == quarry,
            (Some(Quarry::Rule(quarry)), Fall::Rule(broken)) => broken.rule == quarry,
            (Some(_), _) => false,
        })
    }

    fn report(&self, path: Vec<Action>) -> String {
        let mut world = World { diary: Diary::open(), ..self.start.clone() };
        for action in path {
            world.happens(self, &action);
        }
        let fall = world.broken.take().or_else(|| {
            let fall = self.judge(&world).err().map(Fall::Promise);
            world.diary.note(|| "At rest. If the agent reconnects and acks everything:".to_owned());
            world.comes_back(self);
            fall
        });
        // Messages have their names there, as in a script.
        let name = |text: String, (which, message): (usize, &Message)| {
            text.replace(&message.id.to_string(), &format!("M{which}"))
        };
        self.messages.iter().enumerate().fold(world.diary.text(fall), name)
    }
}
