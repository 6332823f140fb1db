//! Searches the states of a scenario for a broken rule, and prints a counterexample.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the duration of a search is printed, and nothing depends on it"
)]

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use crate::cases;
use stateright::{Checker, HasDiscoveries, Model, Property, UniformChooser};

/// Tests of one call each.
macro_rules! tests {
    ($($(#[$about:meta])* $name:ident: $check:expr;)+) => {
        $($(#[$about])* #[test] fn $name() { $check; })+
    };
}
pub(crate) use tests;

/// An initial world, and bounds for the actions in it.
pub(crate) trait Scenario: Clone + Send + Sync + 'static {
    type World: Clone + fmt::Debug + Hash + PartialEq + Send + Sync + 'static;
    type Action: Clone + fmt::Debug + PartialEq + Send + Sync + 'static;

    fn name(&self) -> &'static str;

    /// The initial world of the search.
    fn start(&self) -> &Self::World;

    /// States that the search must reach; otherwise the scenario proves nothing.
    fn sights(&self) -> &[Sight<Self>];

    /// The seeded bug, and the rule that the search must find broken; none if no rule may be.
    fn quarry(&self) -> Option<String>;

    /// All actions that are possible; none after a broken rule.
    fn actions(&self, world: &Self::World, actions: &mut Vec<Self::Action>);

    /// The state after an action. If nothing is in progress in it, the final checks are applied.
    fn after(&self, world: &Self::World, action: &Self::Action) -> Self::World;

    /// Whether a rule is broken; in a search for one, whether that one is.
    fn is_broken(&self, world: &Self::World) -> bool;

    /// The path to a counterexample: each action with the machines' reaction to it, and the broken rule.
    fn report(&self, path: Vec<Self::Action>) -> String;
}

/// A name and a predicate of states that the search must reach.
pub(crate) type Sight<S> = (&'static str, fn(&Search<S>, &<S as Scenario>::World) -> bool);

/// A scenario as a stateright model.
pub(crate) struct Search<S> {
    pub(crate) scenario: S,
}

const UNBROKEN: &str = "no rule is broken";

impl<S: Scenario> Model for Search<S> {
    type State = S::World;
    type Action = S::Action;

    fn init_states(&self) -> Vec<S::World> {
        vec![self.scenario.start().clone()]
    }

    fn actions(&self, world: &S::World, actions: &mut Vec<S::Action>) {
        self.scenario.actions(world, actions);
    }

    fn next_state(&self, world: &S::World, action: S::Action) -> Option<S::World> {
        Some(self.scenario.after(world, &action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let unbroken = |search: &Self, world: &S::World| !search.scenario.is_broken(world);
        let is_hunt = self.scenario.quarry().is_some();
        let sights = self.scenario.sights().iter().filter(|_| !is_hunt);
        let sights = sights.map(|(name, seen)| Property::sometimes(name, *seen));
        [Property::always(UNBROKEN, unbroken)].into_iter().chain(sights).collect()
    }
}

/// Searches every state of a scenario: no rule may be broken, and every listed sight must be reached.
///
/// The search is breadth-first, so that a counterexample is among the shortest; in the large size
/// it is depth-first, for its memory.
pub(crate) fn holds<S: Scenario>(scenario: &S) {
    let begun = Instant::now();
    let search = Search { scenario: scenario.clone() }.checker();
    if is_large() {
        is_clean(scenario, begun, &search.spawn_dfs().join());
    } else {
        is_clean(scenario, begun, &search.spawn_bfs().join());
    }
}

/// Walks at random through a scenario that is too large for a search.
pub(crate) fn holds_on_walks<S: Scenario>(scenario: &S, states: usize) {
    let seed = cases::seed();
    println!("repeat these walks: PROPTEST_RNG_SEED={seed}");
    let begun = Instant::now();
    let search = Search { scenario: scenario.clone() }.checker();
    let walks = search.target_state_count(states).spawn_simulation(seed, UniformChooser).join();
    println!("random walks instead of a search, with the number of occurrences:");
    is_clean(scenario, begun, &walks);
}

fn is_clean<S: Scenario>(scenario: &S, begun: Instant, checker: &impl Checker<Search<S>>) {
    let (name, states) = (scenario.name(), checker.unique_state_count());
    let seconds = begun.elapsed().as_secs_f32();
    println!("{name}: {states} states, {} steps deep, {seconds:.1} s", checker.max_depth());
    if let Some(path) = checker.discovery(UNBROKEN) {
        panic!("a rule is broken in {name}:\n\n{}", scenario.report(path.into_actions()));
    }
    checker.assert_properties();
}

/// Searches a scenario with a seeded bug for the shortest violation of its quarry.
pub(crate) fn hunt<S: Scenario>(scenario: &S) {
    let begun = Instant::now();
    let search = Search { scenario: scenario.clone() }.checker();
    let search = search.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, seconds) = (search.unique_state_count(), begun.elapsed().as_secs_f32());
    let (quarry, name) = (scenario.quarry().expect("a hunt has a quarry"), scenario.name());
    let Some(path) = search.discovery(UNBROKEN) else {
        panic!("{quarry} in {name} was not noticed: it holds in all {states} states");
    };
    println!(
        "{quarry} in {name}, found after {states} states, {seconds:.1} s:\n\n{}",
        scenario.report(path.into_actions())
    );
}

/// Whether the environment selects the larger size.
pub(crate) fn is_large() -> bool {
    std::env::var_os("MODEL_SIZE").is_some_and(|size| size == "large")
}

/// The first value in the small size, the second in the large one.
pub(crate) fn by_size<T>(small: T, large: T) -> T {
    if is_large() { large } else { small }
}

/// The log of a counterexample, written only when one is printed. It is not part of a state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Diary(pub(crate) Option<Vec<String>>);

impl Diary {
    /// A diary that is written.
    pub(crate) fn open() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(line());
        }
    }

    /// The log, and how it ends.
    pub(crate) fn text(self, broken: Option<impl fmt::Display>) -> String {
        let broken = broken.map_or("nothing is broken".to_owned(), |broken| broken.to_string());
        format!("{}\n=> {broken}\n", self.0.unwrap_or_default().join("\n"))
    }
}

impl PartialEq for Diary {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Diary {}

impl Hash for Diary {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
