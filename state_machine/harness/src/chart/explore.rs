//! The breadth-first search over the states of a connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::event_alphabet::{START, answers, connection, events};
use crate::transcript::submitted;
use state_machine::connection::{Connection, Effect, Effects, Event, PhaseName};
use state_machine::ids::OpId;
use state_machine::store::{StoreAnswer, StoreFailed, StoreOp};
use state_machine::time::Time;

/// An event in a phase, and the phase after it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Transition {
    pub(super) phase: PhaseName,
    pub(super) event: &'static str,
    pub(super) after: PhaseName,
}

/// Every transition that the search took, with the effects it ever produced.
pub(super) type Transitions = BTreeMap<Transition, BTreeSet<&'static str>>;

/// Steps without a new transition after which the search abandons a path.
const PATIENCE: u8 = 3;

/// A connection, and the operations it waits for.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) connection: Connection,
    pub(super) now: Time,
    /// Store operations without an answer.
    pub(super) operations: Vec<(OpId, StoreOp)>,
}

/// A connection in the search.
#[derive(Debug, Clone)]
struct SearchState {
    watched: Watched,
    /// Steps since the last new transition on this path.
    stale: u8,
}

/// Explores until nothing new is found.
pub(super) fn transitions() -> Transitions {
    let mut transitions = Transitions::new();
    let mut least_stale = BTreeMap::new();
    let mut waiting = VecDeque::from([SearchState::fresh()]);
    while let Some(state) = waiting.pop_front() {
        for (now, event) in state.happenings() {
            let next = state.stepped(now, &event, &mut transitions);
            if next.stale == PATIENCE {
                continue;
            }
            let known = least_stale.entry(next.state_key()).or_insert(PATIENCE);
            if next.stale < *known {
                *known = next.stale;
                waiting.push_back(next);
            }
        }
    }
    transitions
}

impl Watched {
    pub(super) fn step(&mut self, now: Time, event: Event) -> Effects {
        self.now = now;
        if let Event::StoreAnswered { op, .. } = &event {
            self.operations.retain(|(open, _)| open != op);
        }
        let effects = self.connection.step(now, event);
        self.operations.extend(effects.iter().filter_map(submitted));
        effects
    }
}

impl SearchState {
    fn fresh() -> Self {
        let watched = Watched { connection: connection(), now: START, operations: Vec::new() };
        Self { watched, stale: 0 }
    }

    /// Every event that may happen next, and its time.
    fn happenings(&self) -> Vec<(Time, Event)> {
        let Watched { connection, now, operations } = &self.watched;
        let now = |event| (*now, event);
        let mut happenings: Vec<(Time, Event)> = events().into_iter().map(now).collect();
        happenings.extend(connection.deadline().map(|(at, _)| (at, Event::TimePassed)));
        for (op, operation) in operations {
            let no_space = operation.is_write().then_some(StoreAnswer::NoSpace);
            let answers = answers(operation).into_iter().chain(no_space);
            let answered = answers.map(Ok).chain([Err(StoreFailed)]);
            let answered = answered.map(|answer| Event::StoreAnswered { op: *op, answer });
            happenings.extend(answered.map(now));
        }
        happenings
    }

    fn stepped(&self, now: Time, event: &Event, transitions: &mut Transitions) -> Self {
        let mut next = self.clone();
        let effects = next.watched.step(now, event.clone());
        let [phase, after] = [self, &next].map(|state| state.watched.connection.phase());
        let transition = Transition { phase, event: event.name(), after };
        next.stale = if note(transition, &effects, transitions) { 0 } else { self.stale + 1 };
        next
    }

    /// The connection as text without times and counters, the reason for its deadline and the
    /// operations without an answer. Of the states with one key, only the first is searched.
    fn state_key(&self) -> String {
        let Watched { connection, operations, .. } = &self.watched;
        let wait = connection.deadline().map(|(_, wait)| wait);
        let operations = operations.iter().map(|(_, operation)| operation.effect_name());
        let text = format!("{wait:?} {:?} {:?}", operations.collect::<Vec<_>>(), connection);
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| !is_number(word)).collect()
    }
}

/// Adds a step's effects to the table. Returns whether any of it was new.
fn note(transition: Transition, effects: &[Effect], transitions: &mut Transitions) -> bool {
    let is_new = !transitions.contains_key(&transition);
    let noted = transitions.entry(transition).or_default();
    let before = noted.len();
    noted.extend(effects.iter().map(Effect::name));
    is_new || noted.len() > before
}
