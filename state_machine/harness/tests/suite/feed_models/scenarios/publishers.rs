//! Two nodes publish concurrently.

use crate::feed_models::promises::Promise;
use state_machine::feed::PublisherWait;
use storage_reference::{Answer, Commit, Request};

use crate::feed_models::check::is_caught;
use crate::feed_models::mutation::Mutation;
use crate::feed_models::node::Publish;
use crate::feed_models::rule::{Rule, publication, read_version};
use crate::feed_models::scenario::{Bounds, Scenario};
use crate::feed_models::world::World;
use crate::search::{Search, by_size, holds, tests};

fn two_publishers() -> Scenario {
    Scenario::new("two_publishers", 2, 2)
        .published(&[0])
        .follower(0)
        .followed()
        .bound(Bounds {
            writes: 2,
            republishes: by_size(0, 1),
            polls: by_size(0, 1),
            ..Bounds::default()
        })
        .seen("a publication finds that the sequence has moved on", |_, world| {
            world
                .drafts()
                .any(|draft| read_version(draft) != Some(world.store.feed().sequence().version))
        })
        .seen("a publication finds that its key has changed", |_, world| {
            world.drafts().any(|draft| world.finds_a_key_changed(draft))
        })
}

/// Several keys are published together, and one of them changes meanwhile.
fn batches() -> Scenario {
    Scenario::new("batches", 3, by_size(1, 2))
        .batch(2)
        .writers(&[0])
        .published(&[0, 1])
        .follower(0)
        .followed()
        .bound(Bounds { writes: by_size(3, 4), ..Bounds::default() })
        .seen("two keys are about to be published at once", |_, world| {
            world.drafts().any(|draft| draft.keys.len() == 2)
        })
        .seen("others wait behind them", |_, world| {
            world.rules().any(|rule| {
                let is_more = |answer: &Answer| match answer {
                    Answer::Pending(page) => !page.is_all,
                    _ => false,
                };
                publication(rule).is_some() && rule.answers.iter().any(is_more)
            })
        })
}

/// A key is changed through two nodes at once, while it is published.
fn two_writers() -> Scenario {
    Scenario::new("two_writers", 1, 2)
        .published(&[0])
        .follower(0)
        .followed()
        .writing_in_steps()
        .bound(Bounds { writes: 2, node_crashes: by_size(0, 1), ..Bounds::default() })
        .seen("two writers have read the same row", |_, world| {
            let before = world.writes.iter().filter_map(|write| match &*write.rule.next {
                Request::Commit(commit) => Some(commit.keys[0].before),
                _ => None,
            });
            let before: Vec<_> = before.collect();
            before.len() == 2 && before[0] == before[1]
        })
}

/// Keys change through one node, and a follower reads through the other.
fn followed_elsewhere() -> Scenario {
    Scenario::new("followed_elsewhere", by_size(1, 2), 2)
        .writers(&[0])
        .published(&[0])
        .follower(1)
        .bound(Bounds { writes: 2, polls: by_size(1, 2), ..Bounds::default() })
        .seen("the consumer knows nothing of what was published elsewhere", |_, world: &World| {
            let is_behind = world.followers[0].saved < world.store.feed().sequence().value;
            is_behind && world.under_way().is_empty()
        })
        .seen("a poll finds what was published elsewhere", |search: &Search<Scenario>, world| {
            let is_looking = !world.nodes[1].waits_for(PublisherWait::Poll);
            let has_polled = world.left.polls < search.scenario.start.left.polls;
            has_polled && is_looking
        })
}

impl World {
    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.nodes.iter().filter_map(|node| node.publish.as_ref().and_then(Publish::rule))
    }

    pub(super) fn drafts(&self) -> impl Iterator<Item = &Commit> {
        self.rules().filter_map(publication)
    }

    fn finds_a_key_changed(&self, draft: &Commit) -> bool {
        draft.keys.iter().any(|change| {
            let row = self.store.feed().keys.get(&change.key);
            row.map(|row| row.version) != change.before.map(|before| before.version)
        })
    }
}

tests! {
    two_publishers_give_no_number_twice: holds(&two_publishers());
    two_writers_of_a_key_get_different_versions: holds(&two_writers());
    batches_lose_no_key_that_changes_meanwhile: holds(&batches());
    what_another_node_published_is_found: holds(&followed_elsewhere());
}

#[test]
fn a_publication_without_a_condition_on_the_sequence_is_noticed() {
    let promises = [Promise::OneNumberAKey, Promise::LastStateArrives];
    is_caught(&two_publishers(), Mutation::NoSequenceCondition, &promises);
}

tests! {
    a_publication_without_a_condition_on_its_keys_is_noticed:
        is_caught(&two_publishers(), Mutation::NoKeyCondition, &[Promise::LastStateArrives]);
    a_batch_that_hides_what_waits_behind_it_is_noticed:
        is_caught(&batches(), Mutation::NothingBehind, &[Promise::ChangesArePublished]);
}

#[test]
fn a_follower_that_the_publisher_does_not_know_of_is_noticed() {
    let promises = [Promise::LastStateArrives];
    is_caught(&followed_elsewhere(), Mutation::WatchForgotten, &promises);
}
