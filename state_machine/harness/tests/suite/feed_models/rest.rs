//! What must be true where nothing is under way.
//!
//! Whatever was written must have its number by then. Followers may be away, or know nothing of what another node
//! published: so from each such state they start, each node looks once for what the others did, and then all of them must
//! have everything. What is promised "in the end" is thus a property of a state, and cycles cannot hide anything.

use harness::feed::promises::{Broken, Promise};
use state_machine::Time;
use state_machine::feed::PublisherWait;

use super::action::{Action, FollowerIndex, NodeIndex};
use super::scenario::{Bounds, Scenario};
use super::world::World;

/// Later than anything comes to pass that does not go round in a circle: deadlines alone move time.
const MUCH_LATER: Time = Time(30_000);

/// Steps after which everybody should be at rest.
const STEPS_MAX: usize = 400;

impl Scenario {
    /// Checks that what is under way does not go round in a circle.
    pub(crate) fn goes_on(&self, world: &World) -> Result<(), Broken> {
        if world.now < MUCH_LATER {
            return Ok(());
        }
        self.hunts(Err(Promise::ComesToRest.broken("somebody asks again and again")))
    }

    /// Checks a world in which nothing is under way.
    pub(crate) fn judge(&self, world: &World) -> Result<(), Broken> {
        self.hunts(world.ledger.is_published(&world.store.table))?;
        let mut end = world.clone();
        end.comes_to_its_end(self);
        if let Some(broken) = end.broken {
            return Err(broken);
        }
        let mut replicas = end.followers.iter().map(|follower| &follower.replica);
        self.hunts(replicas.try_for_each(|replica| replica.is_complete(&end.ledger)))
    }

    /// In a hunt, other promises may be broken.
    fn hunts(&self, kept: Result<(), Broken>) -> Result<(), Broken> {
        kept.or_else(|broken| match self.quarry {
            Some(quarry) if quarry != broken.promise => Ok(()),
            _ => Err(broken),
        })
    }
}

impl World {
    /// Everybody starts and looks, and nobody changes anything any more.
    pub(crate) fn comes_to_its_end(&mut self, scenario: &Scenario) {
        self.left = Bounds::default();
        let is_away = |at: &FollowerIndex| self.followers[*at].running.is_none();
        let away: Vec<FollowerIndex> = (0..self.followers.len()).filter(is_away).collect();
        for follower in away {
            self.happens(scenario, &Action::Starts(follower));
        }
        self.runs_out(scenario);
        let polls = |at: &NodeIndex| self.nodes[*at].waits_for(PublisherWait::Poll);
        let polling: Vec<NodeIndex> = (0..self.nodes.len()).filter(polls).collect();
        for node in polling {
            self.happens(scenario, &Action::PublisherDeadline(node));
        }
        self.runs_out(scenario);
    }

    /// Whatever is under way comes to pass, the first thing first.
    pub(crate) fn runs_out(&mut self, scenario: &Scenario) {
        for _ in 0..STEPS_MAX {
            match self.under_way().first() {
                Some(action) if self.broken.is_none() => self.happens(scenario, action),
                _ => return,
            }
        }
        let detail = "there is no end to what is under way";
        self.breaks(scenario, Promise::ComesToRest.broken(detail));
    }
}
