//! The search.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::alphabet::{START, answers, connection, events};
use crate::connection::{Wait, Connection, Effect, Event, PhaseName};
use crate::ids::OpId;
use crate::store::{StoreFailed, StoreOrder};
use crate::time::Time;

/// What happens in a phase, and the phase after it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Transition {
    pub(super) phase: PhaseName,
    pub(super) event: &'static str,
    pub(super) after: PhaseName,
}

/// Every transition that was seen, with all that was ever ordered in it.
pub(super) type Transitions = BTreeMap<Transition, Vec<&'static str>>;

/// Connections looked at. More than there are to be found with this alphabet.
const STATES_MAX: usize = 3000;

/// Events between a fresh connection and the last one looked at.
const DEPTH_MAX: usize = 24;

/// A connection in the search, and the orders that its store has not answered.
#[derive(Debug, Clone)]
struct State {
    connection: Connection,
    now: Time,
    orders: Vec<(OpId, StoreOrder)>,
    depth: usize,
    record: usize,
    commands: usize,
}

/// What a connection does when something happens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reaction {
    transition: Transition,
    effects: Vec<&'static str>,
}

/// Explores until nothing new is found.
pub(super) fn transitions() -> Transitions {
    let fresh = State { connection: connection(), now: START, orders: Vec::new(), depth: 0, record: 0, commands: 0 };
    let mut seen = BTreeSet::from([fresh.aspect()]);
    let mut transitions = Transitions::new();
    let mut waiting = VecDeque::from([fresh]);
    let mut n=0;
    while let Some(state) = waiting.pop_front() {
        n+=1;
        for (reaction, next) in state.neighbours() {
            reaction.note(&mut transitions);
            if seen.insert(next.aspect()) {
                waiting.push_back(next);
            }
        }
    }
    eprintln!("{n} states, {} table", transitions.values().map(|v| v.len()+1).sum::<usize>());
    transitions
}

impl State {
    fn aspect(&self) -> (PhaseName, usize, Vec<String>, Option<Wait>, usize, usize) {
        let mut orders: Vec<String> = self.orders.iter().map(|(_, o)| { let mut t = match o { StoreOrder::Fetch { month, after, .. } => format!("fetch {month:?} {}", after.is_some()), StoreOrder::ReadChannels { month, .. } => format!("read {month:?}"), o => o.effect_name().to_string() };
        for (m, n) in [("2026_11", "a"), ("2026_10", "b"), ("2026_09", "c")] { t = t.replace(m, n); }
        t.retain(|c| !c.is_ascii_digit()); t }).collect();
        orders.sort();
        (self.connection.phase(), self.record, orders, self.connection.deadline().map(|d| d.1), self.connection.unacked().min(2), self.commands)
    }

    /// Everything that may happen next.
    fn neighbours(&self) -> Vec<(Reaction, Self)> {
        let now = |event| (self.now, event);
        let mut happenings: Vec<(Time, Event)> = events().into_iter().map(now).collect();
        happenings.extend(self.connection.deadline().map(|(at, _)| (at, Event::TimePassed)));
        for (op, order) in &self.orders {
            let answered = answers(order).into_iter().map(Ok).chain([Err(StoreFailed)]);
            happenings.extend(answered.map(|answer| now(Event::StoreAnswered { op: *op, answer })));
        }
        happenings.into_iter().map(|(at, event)| self.stepped(at, event)).collect()
    }

    fn stepped(&self, now: Time, event: Event) -> (Reaction, Self) {
        let mut state = Self { now, depth: self.depth + 1, ..self.clone() };
        let (phase, name) = (self.connection.phase(), event.name());
        match &event {
            Event::StoreAnswered { answer: Ok(crate::store::StoreAnswer::Registered(crate::store::Registered::Done(r))), .. } => {
                let c = r.curmonth.to_string(); let o = r.oldmonth.is_some();
                state.record = 1 + usize::from(c == "2026_10") + 2 * usize::from(o);
            }
            Event::Said(crate::wire::ClientMessage::Register{..}|crate::wire::ClientMessage::Unregister{..}|crate::wire::ClientMessage::Urgency{..}) => state.commands += 1,
            _ => {}
        }
        if let Event::StoreAnswered { op, .. } = event {
            state.orders.retain(|(open, _)| *open != op);
        }
        let effects = state.connection.step(now, event);
        let after = state.connection.phase();
        let transition = Transition { phase, event: name, after };
        let reaction = Reaction { transition, effects: effects.iter().map(Effect::name).collect() };
        for effect in effects {
            if ["send registered", "send register refused", "send unregistered", "send urgency set"].contains(&effect.name()) { state.commands -= 1; }
            if let Effect::Ask { op, order } = effect {
                state.orders.push((op, order));
            }
        }
        (reaction, state)
    }
}

impl Reaction {
    fn note(self, transitions: &mut Transitions) {
        let noted = transitions.entry(self.transition).or_default();
        for effect in self.effects {
            if !noted.contains(&effect) {
                noted.push(effect);
            }
        }
    }
}
