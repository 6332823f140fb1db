//! Checks that the deadline of a machine contains everything that it waits for.
//!
//! A driver steps a machine at its deadline and not before. A wait that the deadline omits, or has too late, is therefore
//! late in production, while a test that steps the machine at any time does not notice.

use std::fmt::Debug;

use super::rule::{Broken, Invariant};
use state_machine::connection::{Connection, Event};
use state_machine::time::{Span, Time};

/// Checks [`Invariant::NothingDueBeforeDeadline`] for a connection that rests between two steps.
pub fn waits_for_deadline(connection: &Connection) -> Result<(), Broken<Invariant>> {
    let deadline = connection.deadline();
    let pass = |connection: &mut Connection, now| connection.step(now, Event::TimePassed);
    waits_until(connection, deadline.map(|(at, _)| at), pass).map_err(|detail| {
        Invariant::NothingDueBeforeDeadline.broken(format!("{detail}: {deadline:?}"))
    })
}

/// Checks that time alone changes nothing until one millisecond before the deadline; without a deadline, that it never
/// does. `pass` steps the machine with the time that passed. The error is what was observed.
pub fn waits_until<M: Clone + PartialEq, E: Debug>(
    machine: &M,
    deadline: Option<Time>,
    pass: impl FnOnce(&mut M, Time) -> Vec<E>,
) -> Result<(), String> {
    let now = deadline.map_or(Time(u64::MAX), |at| at - Span(1));
    let mut later = machine.clone();
    let effects = pass(&mut later, now);
    if !effects.is_empty() {
        return Err(format!("{effects:?} before the deadline, at {now:?}"));
    }
    if later != *machine {
        return Err(format!("the state changes before the deadline, at {now:?}"));
    }
    Ok(())
}
