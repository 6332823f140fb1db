//! Runs the steps of a script, and compares their effects.

use super::bindings::Bindings;
use super::step::{Expected, Mismatch, Step};
use super::trace::{MachineState, TraceStep};

/// The machines that the inputs of one language drive.
pub(crate) trait World {
    type Input;

    /// Executes an input and returns its effects as lines. An input that is impossible now changes nothing.
    fn happens(&mut self, input: &Self::Input) -> Result<Vec<String>, String>;

    /// The time since the start, in milliseconds.
    fn elapsed_ms(&self) -> u64;

    /// Every machine in its present state.
    fn machines(&self) -> Vec<MachineState>;

    /// What else a trace shows.
    fn facts(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A step that was run, beside what its script expects.
pub(crate) struct Ran<'a> {
    pub(crate) trace: TraceStep,
    pub(crate) expected: &'a [Expected],
    pub(crate) compared: Result<(), Mismatch>,
}

/// Runs every step until `see` fails.
pub(crate) fn run<W: World>(
    steps: &[Step<W::Input>],
    world: &mut W,
    mut see: impl FnMut(Ran<'_>) -> Result<(), Mismatch>,
) -> Result<(), Mismatch> {
    let mut names = Bindings::fixed();
    for step in steps {
        let effects = world.happens(&step.input).map_err(|reason| step.refused(reason))?;
        let compared = step.compare(&effects, &mut names);
        let expected = || step.effects.iter().map(|effect| effect.text.clone()).collect();
        let trace = TraceStep {
            line: step.line,
            at_ms: world.elapsed_ms(),
            event: step.text.clone(),
            effects,
            expected: compared.is_err().then(expected),
            machines: world.machines(),
            facts: world.facts(),
        };
        see(Ran { trace, expected: &step.effects, compared })?;
    }
    Ok(())
}
