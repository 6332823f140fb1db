//! Runs a search for violations and prints a counterexample.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the duration of a search is printed, and nothing depends on it"
)]

use std::time::Instant;

use crate::cases;
use crate::feed_models::promises::Promise;
use stateright::{Checker, HasDiscoveries, Model, Path, UniformChooser};

use super::action::Action;
use super::model::{QUARRY, Search};
use super::mutation::Mutation;
use super::scenario::{Scenario, is_large};
use super::world::{Diary, World};

/// Searches every state of a scenario: no promise may be broken, and every listed sight must be
/// reached.
///
/// The search is breadth-first, so that a counterexample is among the shortest; in the large size
/// it is depth-first, for its memory.
pub(crate) fn holds(scenario: &Scenario) {
    let begun = Instant::now();
    let search = Search { scenario: scenario.clone() }.checker();
    if is_large() {
        is_clean(scenario, begun, &search.spawn_dfs().join());
    } else {
        is_clean(scenario, begun, &search.spawn_bfs().join());
    }
}

/// Walks at random through a scenario that is too large for a search.
pub(crate) fn holds_on_walks(scenario: &Scenario, states: usize) {
    let seed = cases::seed();
    println!("repeat these walks: PROPTEST_RNG_SEED={seed}");
    let begun = Instant::now();
    let search = Search { scenario: scenario.clone() }.checker();
    let walks = search.target_state_count(states).spawn_simulation(seed, UniformChooser).join();
    println!("random walks instead of a search, with the number of occurrences:");
    is_clean(scenario, begun, &walks);
}

/// Searches a scenario with a seeded bug for the shortest violation of each of these promises.
pub(crate) fn is_caught(scenario: &Scenario, mutation: Mutation, promises: &[Promise]) {
    for promise in promises {
        let mutation = Some(mutation);
        let scenario = Scenario { mutation, quarry: Some(*promise), ..scenario.clone() };
        hunt(&scenario, *promise);
    }
}

fn hunt(scenario: &Scenario, promise: Promise) {
    let begun = Instant::now();
    let search = Search { scenario: scenario.clone() }.checker();
    let search = search.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, seconds) = (search.unique_state_count(), begun.elapsed().as_secs_f32());
    let (bug, promise) = (scenario.mutation, promise.name());
    let Some(path) = search.discovery(QUARRY) else {
        panic!("{bug:?} was not noticed in {}: {promise} holds in {states} states", scenario.name);
    };
    println!(
        "{bug:?} breaks {promise} in {}, found after {states} states, {seconds:.1} s:\n\n{}",
        scenario.name,
        told(scenario, path)
    );
}

fn is_clean(scenario: &Scenario, begun: Instant, checker: &impl Checker<Search>) {
    let name = scenario.name;
    let states = checker.unique_state_count();
    let seconds = begun.elapsed().as_secs_f32();
    println!("{name}: {states} states, {} steps deep, {seconds:.1} s", checker.max_depth());
    for (property, path) in checker.discoveries() {
        let is_sight = scenario.sights.iter().any(|(sight, _)| *sight == property);
        assert!(is_sight, "{property} is broken in {name}:\n\n{}", told(scenario, path));
    }
    checker.assert_properties();
}

/// The path to a counterexample: each action with the machines' reaction to it.
fn told(scenario: &Scenario, path: Path<World, Action>) -> String {
    let mut world = World { diary: Diary::open(), ..scenario.start.clone() };
    for action in path.into_actions() {
        world.happens(scenario, &action);
    }
    let broken = world.broken.take().or_else(|| {
        let broken = scenario.goes_on(&world).and_then(|()| scenario.judge(&world)).err();
        world.note(|| "At rest. If all follow and look, and nothing changes any more:".to_owned());
        world.comes_to_its_end(scenario);
        broken
    });
    let broken = broken.map_or("nothing is broken".to_owned(), |broken| broken.to_string());
    format!("{}\n=> {broken}\n", world.diary.text())
}
