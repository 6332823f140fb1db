//! A session script as its parser reads it.

use crate::script::{Bindings, UnknownName};
use state_machine::connection::{Config, ConnectionSeed, Event};
use state_machine::time::{Span, Time};
use state_machine::wire::ClientMessage;

/// A parsed session script, ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// The sentence of the first line.
    pub title: String,
    /// The time at which the socket was accepted, by the node's clock.
    pub start: Time,
    /// The node's name and its limits.
    pub config: Config,
    /// The uaid for a new agent, and the connection's jitter.
    pub seed: ConnectionSeed,
    /// The inputs, each with its expected effects.
    pub steps: Vec<Step>,
}

/// An input and all its expected effects.
pub type Step = crate::script::Step<Input>;

/// An input of a script: one line with `>`, or `wait`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The agent sent this text frame, in which [`Bindings::substitute`] replaces names by ids.
    Frame(String),
    /// Time passes. The span may not pass a deadline.
    Wait(Span),
    /// Any other event, as the connection receives it.
    Event(Event),
}

impl Input {
    /// The connection's event for this input, with the ids of `names`.
    pub fn event(&self, names: &Bindings) -> Result<Event, UnknownName> {
        Ok(match self {
            Self::Frame(template) => match ClientMessage::parse(&names.substitute(template)?) {
                Ok(message) => Event::MessageReceived(message),
                Err(frame) => Event::InvalidFrame(frame),
            },
            Self::Wait(_) => Event::TimePassed,
            Self::Event(event) => event.clone(),
        })
    }
}
