//! What a search of the states checks, and how a counterexample is printed.

use super::action::Action;
use super::mutation::Mutation;
use super::promises::Promise;
use super::scenario::Scenario;
use super::world::World;
use crate::search::{self, Diary, Sight, hunt};

/// Searches a scenario with a seeded bug for the shortest violation of each of these promises.
pub(crate) fn is_caught(scenario: &Scenario, mutation: Mutation, promises: &[Promise]) {
    for promise in promises {
        let mutation = Some(mutation);
        hunt(&Scenario { mutation, quarry: Some(*promise), ..scenario.clone() });
    }
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
        Some(format!("{:?} breaks {}", self.mutation, self.quarry?))
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.possible(world, actions);
    }

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

    /// In a search for one promise, the world records only that one.
    fn is_broken(&self, world: &World) -> bool {
        world.broken.is_some()
    }

    fn report(&self, path: Vec<Action>) -> String {
        let mut world = World { diary: Diary::open(), ..self.start.clone() };
        for action in path {
            world.happens(self, &action);
        }
        let broken = world.broken.take().or_else(|| {
            let broken = self.goes_on(&world).and_then(|()| self.judge(&world)).err();
            let end = "At rest. If all follow and look, and nothing changes any more:";
            world.diary.note(|| end.to_owned());
            world.comes_to_its_end(self);
            broken
        });
        world.diary.text(broken)
    }
}
