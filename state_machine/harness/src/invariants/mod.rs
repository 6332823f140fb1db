//! The rules that hold for every connection in every history, each under one name.
//!
//! A [`ConnectionChecker`] observes events, effects, phases and deadlines of one connection, step
//! by step. The property test, the model checker and the traces of the real actors are therefore
//! checked by the same rules. A [`DeliveryModel`] does the same for the promises of the whole
//! service.

use std::sync::Arc;

use state_machine::connection::{Config, Connection, ConnectionSeed, Effects, Event};
use state_machine::time::Time;

mod broadcast_checker;
mod connection_checker;
mod deadlines;
mod fairness_checker;
mod known;
mod location_checker;
mod promises;
pub mod rule;

pub use connection_checker::ConnectionChecker;
pub use deadlines::{waits_for_deadline, waits_until};
pub use promises::{DeliveryModel, Promise};
pub use rule::{Broken, Invariant, StepRecord};

/// A connection and its checker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckedConnection {
    pub connection: Connection,
    checker: ConnectionChecker,
}

impl CheckedConnection {
    /// Accepts a socket at `now`.
    pub fn new(config: Arc<Config>, seed: ConnectionSeed, now: Time) -> Self {
        let checker = ConnectionChecker::new(Arc::clone(&config));
        Self { connection: Connection::new(config, seed, now), checker }
    }

    /// The number of commands of the agent without an answer.
    pub fn unanswered_commands(&self) -> usize {
        self.checker.unanswered_commands()
    }

    /// Steps the connection and checks every rule.
    pub fn step(&mut self, now: Time, event: &Event) -> Result<Effects, Broken<Invariant>> {
        let before = self.connection.phase();
        let effects = self.connection.step(now, event.clone());
        let seen = StepRecord {
            now,
            event,
            effects: &effects,
            before,
            after: self.connection.phase(),
            unacked: self.connection.unacked(),
            deadline: self.connection.deadline(),
        };
        self.checker.observe(&seen)?;
        waits_for_deadline(&self.connection)?;
        Ok(effects)
    }
}
