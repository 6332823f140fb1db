//! An input with its expected effects, and their comparison with what the machines did.

use super::bindings::Bindings;

/// An input and all its expected effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<I> {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The line as the file has it.
    pub text: String,
    pub input: I,
    /// All expected effects, in their order.
    pub effects: Vec<Expected>,
}

/// An expected effect, as a line with `<`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub line: usize,
    /// The line in its canonical form.
    pub text: String,
}

/// The error for effects that differ from the expected ones. It displays as `14: after ...` and the
/// lines that differ.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {report}")]
pub struct Mismatch {
    pub line: usize,
    /// The difference, as text of several lines.
    pub report: String,
}

impl<I> Step<I> {
    /// Compares all effects of this step with the expected ones, as lines.
    pub fn compare(&self, got: &[String], names: &mut Bindings) -> Result<(), Mismatch> {
        let all: Vec<&Expected> = self.effects.iter().collect();
        self.compare_those(&all, got, names)
    }

    /// Compares only the effects that a runner can observe, for example the frames for the agent.
    pub fn compare_those(
        &self,
        expected: &[&Expected],
        got: &[String],
        names: &mut Bindings,
    ) -> Result<(), Mismatch> {
        let agreed =
            expected.iter().zip(got).take_while(|(expected, got)| expected.is(got, names)).count();
        if agreed == expected.len() && agreed == got.len() {
            return Ok(());
        }
        let report = difference(&self.text, got, agreed, &expected[agreed..]);
        Err(Mismatch { line: self.line, report })
    }

    /// The error for an input that is impossible now.
    pub(crate) fn refused(&self, reason: String) -> Mismatch {
        Mismatch { line: self.line, report: reason }
    }
}

/// Both sides of a difference, from the first line after the `agreed` ones.
fn difference(after: &str, got: &[String], agreed: usize, missed: &[&Expected]) -> String {
    let mut report = format!("after `{after}`");
    got[..agreed].iter().for_each(|line| report += &format!("\n      {line}"));
    missed.iter().for_each(|it| report += &format!("\n{:4} - {}", it.line, it.text));
    got[agreed..].iter().for_each(|line| report += &format!("\n     + {line}"));
    report + "\n     (- expected, + got)"
}

impl Expected {
    /// The text before the `<`: `agent`, `store`, `push`, `registry`, `node`, `broadcasts` or `close`.
    pub fn recipient(&self) -> &str {
        self.text.split('<').next().unwrap_or_default()
    }

    /// Whether this effect's line equals the one that was produced. An open name is bound in the
    /// comparison.
    pub fn is(&self, got: &str, names: &mut Bindings) -> bool {
        self.text == got
            || frame(&self.text).zip(frame(got)).is_some_and(|((to, template), (whom, frame))| {
                let frame = names.substitute(frame).unwrap_or_else(|_| frame.to_owned());
                to == whom && names.matches(template, &frame)
            })
    }
}

/// The recipient and the JSON of a line that is a frame for the agent, on a named node or not.
fn frame(line: &str) -> Option<(&str, &str)> {
    let (recipient, frame) = line.split_once("< ")?;
    recipient.ends_with("agent").then_some((recipient, frame))
}
