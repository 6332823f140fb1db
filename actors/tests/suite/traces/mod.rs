//! What the client actors of a test did, step by step, and what must be true of it.
//!
//! Every client on a [`Wire`](crate::wire::Wire) keeps its record here. Every test that runs on
//! [`clockwork`](crate::clockwork) has it checked at its end: the rules of `harness::invariants`
//! for each connection, and its promises for all of them together.

mod promises;
mod tampered;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use harness::invariants::{self, ConnectionChecker, Invariant, Promise, StepRecord};
use state_machine::connection::{Config, Connection, Effect, Effects, Event, PhaseName, Wait};
use state_machine::delivery::Outcome;
use state_machine::{Message, MessageId, Month, OpId, RouterRecord, Time, Uaid};
use tokio::sync::Notify;

/// Something that happened in a test, in the sequence in which it did.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    /// A connection was accepted.
    Opened {
        line: usize,
        config: Arc<Config>,
    },
    Stepped {
        line: usize,
        step: Step,
    },
    /// An application server got the outcome of its message.
    Told {
        uaid: Uaid,
        message: Message,
        outcome: Outcome,
    },
    /// An agent has acked all messages and nothing is in flight: its rows in the store.
    Rests {
        uaid: Uaid,
        record: RouterRecord,
        rows: Vec<(Month, MessageId)>,
    },
}

/// One step of a connection, as it is seen from outside.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) now: Time,
    pub(crate) event: Event,
    pub(crate) effects: Effects,
    pub(crate) before: PhaseName,
    pub(crate) after: PhaseName,
    unacked: usize,
    deadline: Option<(Time, Wait)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(pub(crate) Vec<Entry>);

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A rule of every connection.
    Rule(invariants::Broken<Invariant>),
    /// A promise of all of them together.
    Promise(invariants::Broken<Promise>),
    /// A record moved to an earlier month.
    Month { from: Month, to: Month },
}

/// Where a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineNow {
    pub(crate) phase: PhaseName,
    /// Orders that the store has not answered.
    pub(crate) open_orders: usize,
    /// What the connection is to wait for next.
    pub(crate) waits_for: Option<Wait>,
    /// Messages of the agent that it has taken in.
    pub(crate) said: usize,
}

#[derive(Default)]
struct Book {
    trace: Trace,
    lines: Vec<Line>,
    moved: Rc<Notify>,
}

#[derive(Debug)]
struct Line {
    phase: PhaseName,
    open: BTreeSet<OpId>,
    waits_for: Option<Wait>,
    said: usize,
}

thread_local! {
    /// A test has one thread, and all its actors are on it.
    static BOOK: RefCell<Book> = RefCell::default();
}

/// Begins a new book.
pub(crate) fn begin() {
    BOOK.take();
}

/// The trace so far.
pub(crate) fn so_far() -> Trace {
    BOOK.with_borrow(|book| book.trace.clone())
}

/// A connection is accepted; its number here.
pub(crate) fn opened(config: &Arc<Config>) -> usize {
    BOOK.with_borrow_mut(|book| {
        let line = book.lines.len();
        let (phase, open) = (PhaseName::AwaitingHello, BTreeSet::new());
        book.lines.push(Line { phase, open, waits_for: None, said: 0 });
        book.trace.0.push(Entry::Opened { line, config: Arc::clone(config) });
        line
    })
}

/// Steps a connection and writes the step down.
pub(crate) fn step(line: usize, connection: &mut Connection, now: Time, event: Event) -> Effects {
    let before = connection.phase();
    let effects = connection.step(now, event.clone());
    let step = Step {
        now,
        event,
        effects: effects.clone(),
        before,
        after: connection.phase(),
        unacked: connection.unacked(),
        deadline: connection.deadline(),
    };
    BOOK.with_borrow_mut(|book| book.stepped(line, step));
    effects
}

/// An application server gets the outcome of its message.
pub(crate) fn told(uaid: Uaid, message: Message, outcome: Outcome) {
    note(Entry::Told { uaid, message, outcome });
}

/// Writes down what the store has, at the end of a test.
pub(crate) fn rests(uaid: Uaid, record: RouterRecord, rows: Vec<(Month, MessageId)>) {
    note(Entry::Rests { uaid, record, rows });
}

/// Where a connection is now.
pub(crate) fn line(line: usize) -> LineNow {
    BOOK.with_borrow(|book| {
        let Line { phase, ref open, waits_for, said } = book.lines[line];
        LineNow { phase, open_orders: open.len(), waits_for, said }
    })
}

/// Waits until it is so. Looked at after every step of a connection.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    loop {
        let moved = BOOK.with_borrow(|book| Rc::clone(&book.moved));
        let next = moved.notified();
        if is_so() {
            return;
        }
        next.await;
    }
}

fn note(entry: Entry) {
    BOOK.with_borrow_mut(|book| book.trace.0.push(entry));
}

impl Book {
    fn stepped(&mut self, number: usize, step: Step) {
        let line = &mut self.lines[number];
        if let Event::StoreAnswered { op, .. } = &step.event {
            line.open.remove(op);
        }
        line.open.extend(step.effects.iter().filter_map(|effect| match effect {
            Effect::SubmitStoreOp { op, .. } => Some(*op),
            _ => None,
        }));
        line.said += usize::from(matches!(step.event, Event::MessageReceived(_)));
        line.phase = step.after;
        line.waits_for = step.deadline.map(|(_, wait)| wait);
        self.trace.0.push(Entry::Stepped { line: number, step });
        self.moved.notify_waiters();
    }
}

impl LineNow {
    /// Whether an order failed, and is to be given again.
    pub(crate) fn waits_for_retry(self) -> bool {
        self.waits_for == Some(Wait::Retry)
    }
}

impl Trace {
    /// Checks the rules of each connection and the promises.
    pub(crate) fn check(&self) -> Result<(), Broken> {
        self.rules().map_err(Broken::Rule)?;
        self.promises()
    }

    /// The last steps of all connections, for the message of a test that hangs.
    pub(crate) fn last_steps(&self) -> String {
        let step = |entry: &Entry| match entry {
            Entry::Stepped { line, step } => {
                Some(format!("{line}: {:?} in {:?}", step.event, step.after))
            }
            _ => None,
        };
        let mut last: Vec<_> = self.0.iter().rev().filter_map(step).take(5).collect();
        last.reverse();
        last.join("; ")
    }

    /// The steps of one connection.
    pub(crate) fn steps(&self, of: usize) -> impl Iterator<Item = &Step> {
        self.0.iter().filter_map(move |entry| match entry {
            Entry::Stepped { line, step } if *line == of => Some(step),
            _ => None,
        })
    }

    fn promises(&self) -> Result<(), Broken> {
        promises::check(self)
    }

    fn rules(&self) -> Result<(), invariants::Broken<Invariant>> {
        let mut checkers: BTreeMap<usize, ConnectionChecker> = BTreeMap::new();
        for entry in &self.0 {
            match entry {
                Entry::Opened { line, config } => {
                    checkers.insert(*line, ConnectionChecker::new(Arc::clone(config)));
                }
                Entry::Stepped { line, step } => {
                    let checker = checkers.get_mut(line).expect("a line is opened first");
                    checker.observe(&step.seen())?;
                }
                Entry::Told { .. } | Entry::Rests { .. } => {}
            }
        }
        Ok(())
    }
}

impl Step {
    fn seen(&self) -> StepRecord<'_> {
        let Self { now, ref event, ref effects, before, after, unacked, deadline } = *self;
        StepRecord { now, event, effects, before, after, unacked, deadline }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(violation) => write!(f, "{violation}"),
            Self::Promise(broken) => write!(f, "{broken}"),
            Self::Month { from, to } => write!(f, "a record moves back, from {from} to {to}"),
        }
    }
}
