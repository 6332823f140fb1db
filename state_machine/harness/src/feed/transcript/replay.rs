//! Runs a history against the machines.

use std::fmt;

use super::input::Input;
use super::outcome::Outcome;
use super::world::{OutOfTurn, World};
use super::{History, Step};
use crate::transcript::{Mismatch, difference};

/// A step that was run. It displays as lines of a history, with the state after it as a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    pub input: Input,
    /// The state, after the step, of the publisher or consumer that the input addressed.
    pub state: String,
    /// The results of the step.
    pub outcomes: Vec<Outcome>,
}

/// Runs every step and passes each to `see`, including one that fails.
pub fn replay(history: &History, mut see: impl FnMut(&StepReport)) -> Result<(), Mismatch> {
    let mut world = World::new(history.setup.clone());
    for step in &history.steps {
        let refused = |reason: OutOfTurn| Mismatch { line: step.line, report: reason.to_string() };
        let outcomes = world.happens(&step.input).map_err(refused)?;
        let state = world.state_after(&step.input);
        let ran = StepReport { input: step.input.clone(), state, outcomes };
        see(&ran);
        step.compare(&ran.outcomes)?;
    }
    Ok(())
}

impl Step {
    fn compare(&self, outcomes: &[Outcome]) -> Result<(), Mismatch> {
        let got: Vec<String> = outcomes.iter().map(Outcome::to_string).collect();
        let pairs = self.expected.iter().zip(&got);
        let agreed = pairs.take_while(|((_, expected), got)| expected == *got).count();
        if agreed == self.expected.len() && agreed == got.len() {
            return Ok(());
        }
        let missed = self.expected[agreed..].iter().map(|(line, text)| (*line, text.as_str()));
        let report = difference(&self.input.to_string(), &got, agreed, missed);
        Err(Mismatch { line: self.line, report })
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.input)?;
        writeln!(f, "# {}", self.state)?;
        self.outcomes.iter().try_for_each(|outcome| writeln!(f, "{outcome}"))
    }
}
