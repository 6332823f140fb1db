//! The final checks, in states where nothing is in progress.
//!
//! Every write must have its number by then. Followers may be away, or not know of another node's
//! publications. From each such state they therefore start, each node sweeps once, and all
//! followers must then have every write. A promise "in the end" is thus a property of a state, and
//! cycles cannot hide a violation.

use crate::feed_models::promises::Promise;
use harness::invariants::Broken;
use state_machine::Time;
use state_machine::feed::PublisherWait;

use super::action::{Action, FollowerIndex, NodeIndex};
use super::scenario::{Bounds, Scenario};
use super::world::World;

/// Later than any action in a run without a cycle: only deadlines advance the time.
const MUCH_LATER: Time = Time(30_000);

/// Steps after which every node and follower must be at rest.
const STEPS_MAX: usize = 400;

impl Scenario {
    /// Checks that the operations in progress do not form a cycle.
    pub(crate) fn goes_on(&self, world: &World) -> Result<(), Broken<Promise>> {
        if world.now < MUCH_LATER {
            return Ok(());
        }
        self.hunts(Err(
            Promise::ComesToRest.broken("a publisher or consumer never stops its requests")
        ))
    }

    /// Checks a world in which nothing is in progress.
    pub(crate) fn judge(&self, world: &World) -> Result<(), Broken<Promise>> {
        self.hunts(world.ledger.is_published(world.store.feed()))?;
        let mut end = world.clone();
        end.comes_to_its_end(self);
        if let Some(broken) = end.broken {
            return Err(broken);
        }
        let mut replicas = end.followers.iter().map(|follower| &follower.replica);
        self.hunts(
            replicas.try_for_each(|replica| replica.is_complete(&end.ledger, end.store.feed())),
        )
    }

    /// A search for one broken promise ignores the others.
    fn hunts(&self, kept: Result<(), Broken<Promise>>) -> Result<(), Broken<Promise>> {
        kept.or_else(|broken| match self.quarry {
            Some(quarry) if quarry != broken.rule => Ok(()),
            _ => Err(broken),
        })
    }
}

impl World {
    /// Starts every follower and sweeps every node. No key is changed any more.
    pub(crate) fn comes_to_its_end(&mut self, scenario: &Scenario) {
        self.left = Bounds::default();
        self.starts_all(scenario);
        let polls = |at: &NodeIndex| self.nodes[*at].waits_for(PublisherWait::Poll);
        let polling: Vec<NodeIndex> = (0..self.nodes.len()).filter(polls).collect();
        for node in polling {
            self.happens(scenario, &Action::PublisherDeadline(node));
        }
        self.runs_out(scenario);
        // Those whose cursor was below the horizon start over.
        self.starts_all(scenario);
    }

    fn starts_all(&mut self, scenario: &Scenario) {
        let is_away = |at: &FollowerIndex| self.followers[*at].running.is_none();
        let away: Vec<FollowerIndex> = (0..self.followers.len()).filter(is_away).collect();
        for follower in away {
            self.happens(scenario, &Action::Starts(follower));
        }
        self.runs_out(scenario);
    }

    /// Executes the operations in progress, always the first one.
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
