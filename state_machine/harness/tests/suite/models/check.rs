//! Runs a search for violations and prints a counterexample.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the duration of a search is printed, and nothing depends on it"
)]

use std::time::Instant;

use crate::cases;
use state_machine::Message;
use stateright::{Checker, HasDiscoveries, Model, Path, UniformChooser};

use super::action::Action;
use super::diary::Diary;
use super::model::{Quarry, Search};
use super::scenario::{Scenario, is_large};
use super::world::{Fall, World};

/// Searches every state of a scenario: no property may be broken, and every listed sight must be
/// reached.
///
/// The search is breadth-first, so that a counterexample is among the shortest; in the large size
/// it is depth-first, for its memory.
pub(crate) fn holds(scenario: &Scenario) {
    let begun = Instant::now();
    let search = Search { scenario: scenario.clone(), quarry: None }.checker();
    if is_large() {
        is_clean(scenario, begun, &search.spawn_dfs().join());
    } else {
        is_clean(scenario, begun, &search.spawn_bfs().join());
    }
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

/// Walks at random through a scenario that is too large for a search.
pub(crate) fn holds_on_walks(scenario: &Scenario, states: usize) {
    let seed = cases::seed();
    println!("repeat these walks: PROPTEST_RNG_SEED={seed}");
    let begun = Instant::now();
    let search = Search { scenario: scenario.clone(), quarry: None }.checker();
    let walks = search.target_state_count(states).spawn_simulation(seed, UniformChooser).join();
    println!("random walks instead of a search, with the number of occurrences:");
    is_clean(scenario, begun, &walks);
}

/// Searches a scenario with a seeded bug for the shortest violation of the named property.
pub(crate) fn is_caught(scenario: &Scenario, quarry: Quarry) {
    let begun = Instant::now();
    let checker = Search { scenario: scenario.clone(), quarry: Some(quarry) }
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (states, name) = (checker.unique_state_count(), scenario.name);
    let found = checker.discovery(Quarry::PROPERTY);
    let seconds = begun.elapsed().as_secs_f32();
    match found {
        Some(path) => println!(
            "{:?} breaks {quarry:?} in {name}, found after {states} states, {seconds:.1} s:\n\n{}",
            scenario.mutation,
            told(scenario, path)
        ),
        None => panic!(
            "{:?} was not noticed in {name}: {quarry:?} holds in all {states} states",
            scenario.mutation
        ),
    }
}

/// The path to a counterexample: each action with the machines' reaction to it.
fn told(scenario: &Scenario, path: Path<World, Action>) -> String {
    let mut world = World { diary: Diary::open(), ..scenario.start.clone() };
    for action in path.into_actions() {
        world.happens(scenario, &action);
    }
    let fall = world.broken.take().or_else(|| {
        let fall = scenario.judge(&world).err().map(Fall::Promise);
        world.diary.note(|| "At rest. If the agent reconnects and acks everything:".to_owned());
        world.comes_back(scenario);
        fall
    });
    let fall = fall.map_or("nothing is broken".to_owned(), |fall| fall.to_string());
    with_names(&format!("{}\n=> {fall}\n", world.diary.text()), scenario)
}

/// Replaces the ids of messages by their names.
fn with_names(text: &str, scenario: &Scenario) -> String {
    let name = |text: String, (which, message): (usize, &Message)| {
        text.replace(&message.id.to_string(), &format!("M{which}"))
    };
    scenario.messages.iter().enumerate().fold(text.to_owned(), name)
}
