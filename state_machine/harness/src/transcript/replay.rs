//! Runs a transcript against the pure machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::write::TranscriptWriter;
use super::{Bindings, Expected, Input, Step, Transcript};
use state_machine::connection::{Connection, Effect, Effects, Event, PhaseName, Wait};
use state_machine::ids::OpId;
use state_machine::store::{StoreAnswer, StoreOp};
use state_machine::time::Time;

/// A step that was run, with its effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    /// The time of the step.
    pub at: Time,
    /// The time of the previous step.
    pub before: Time,
    pub event: Event,
    /// All effects of the step, in their order.
    pub effects: Effects,
    pub phase: PhaseName,
    /// The machine's next deadline, and its reason.
    pub deadline: Option<(Time, Wait)>,
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

/// Runs every step. Returns the steps, or the first mismatch.
pub fn run(transcript: &Transcript) -> Result<Vec<StepReport>, Mismatch> {
    let mut steps = Vec::new();
    replay(transcript, |ran| steps.push(ran.clone()))?;
    Ok(steps)
}

/// Runs every step and passes each to `see`, including one that fails.
pub fn replay(transcript: &Transcript, mut see: impl FnMut(&StepReport)) -> Result<(), Mismatch> {
    replay_all(transcript, |step, ran, got, names| {
        see(ran);
        step.compare(got, names)
    })
}

/// Runs every step and passes each to `see`, with its effects as lines, until `see` fails.
pub(super) fn replay_all(
    transcript: &Transcript,
    mut see: impl FnMut(&Step, &StepReport, &[String], &mut Bindings) -> Result<(), Mismatch>,
) -> Result<(), Mismatch> {
    let config = Arc::new(transcript.config.clone());
    let mut connection = Connection::new(config, transcript.seed, transcript.start);
    let writer = transcript.writer();
    let mut names = Bindings::fixed();
    let mut now = transcript.start;
    let mut open = BTreeMap::new();
    for step in &transcript.steps {
        let before = now;
        if let Input::Wait(span) = step.input {
            now = before + span;
            check_wait(step, now, connection.deadline(), &writer)?;
        }
        let event = step.input.event(&names).expect("names are checked when a transcript is read");
        check_answer(step, &event, &mut open, &writer)?;
        let effects = connection.step(now, event.clone());
        let (phase, deadline) = (connection.phase(), connection.deadline());
        let ran = StepReport { at: now, before, event, effects, phase, deadline };
        open.extend(ran.effects.iter().filter_map(ordered));
        let got: Vec<String> =
            ran.effects.iter().map(|effect| writer.effect(effect, now)).collect();
        see(step, &ran, &got, &mut names)?;
    }
    Ok(())
}

impl Transcript {
    /// The writer for the lines of this session.
    pub fn writer(&self) -> TranscriptWriter<'_> {
        TranscriptWriter { config: &self.config, start: self.start }
    }
}

impl TranscriptWriter<'_> {
    /// The lines of a step: the event, the phase and deadline after it as a comment, the effects. A
    /// head and such steps are a transcript.
    pub fn ran(&self, ran: &StepReport) -> String {
        let StepReport { at, before, event, effects, phase, deadline } = ran;
        let mut lines: Vec<String> = self.wait(event, *before, *at).into_iter().collect();
        lines.push(self.event(event, *before, *at));
        lines.push(self.phase(*phase, *deadline));
        lines.extend(effects.iter().map(|effect| self.effect(effect, *at)));
        lines.push(String::new());
        lines.join("\n")
    }
}

impl Step {
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
        let missed = expected[agreed..].iter().map(|expected| (expected.line, &*expected.text));
        let report = difference(&self.text, got, agreed, missed);
        Err(Mismatch { line: self.line, report })
    }
}

/// Both sides of a difference, from the first line after the `agreed` ones.
pub(crate) fn difference<'a>(
    after: &str,
    got: &[String],
    agreed: usize,
    missed: impl Iterator<Item = (usize, &'a str)>,
) -> String {
    let mut report = format!("after `{after}`");
    got[..agreed].iter().for_each(|line| report += &format!("\n      {line}"));
    missed.for_each(|(line, text)| report += &format!("\n{line:4} - {text}"));
    got[agreed..].iter().for_each(|line| report += &format!("\n     + {line}"));
    report + "\n     (- expected, + got)"
}

impl Expected {
    /// Whether this effect's line equals the one that was produced. An open name is bound in the
    /// comparison.
    pub fn is(&self, got: &str, names: &mut Bindings) -> bool {
        let frames = self.text.strip_prefix("agent< ").zip(got.strip_prefix("agent< "));
        self.text == got
            || frames.is_some_and(|(template, frame)| {
                let frame = names.substitute(frame).unwrap_or_else(|_| frame.to_owned());
                names.matches(template, &frame)
            })
    }
}

/// A driver steps a connection at every deadline, so a wait must not pass one.
fn check_wait(
    step: &Step,
    until: Time,
    deadline: Option<(Time, Wait)>,
    writer: &TranscriptWriter<'_>,
) -> Result<(), Mismatch> {
    match deadline {
        Some((at, wait)) if at < until => {
            let until = super::tokens::offset_text(until, writer.start);
            let at = super::tokens::offset_text(at, writer.start);
            let report = format!(
                "this waits until {until}, over a deadline ({wait} at {at}): wait until that first"
            );
            Err(Mismatch { line: step.line, report })
        }
        _ => Ok(()),
    }
}

fn ordered(effect: &Effect) -> Option<(OpId, StoreOp)> {
    match effect {
        Effect::SubmitStoreOp { op, order } => Some((*op, order.clone())),
        _ => None,
    }
}

/// The store answers only operations that are open, each once.
fn check_answer(
    step: &Step,
    event: &Event,
    open: &mut BTreeMap<OpId, StoreOp>,
    writer: &TranscriptWriter<'_>,
) -> Result<(), Mismatch> {
    let Event::StoreAnswered { op, answer } = event else { return Ok(()) };
    let report = match (open.remove(op), answer) {
        (Some(_), Err(_)) => return Ok(()),
        (Some(order), Ok(answer)) if matches(answer, &order) => return Ok(()),
        (Some(order), Ok(_)) => {
            let order = writer.order(&order, writer.start);
            format!("operation {} is `{order}`, which has another answer", op.0)
        }
        (None, _) => format!("no operation {} waits for an answer", op.0),
    };
    Err(Mismatch { line: step.line, report })
}

fn matches(answer: &StoreAnswer, order: &StoreOp) -> bool {
    matches!(
        (answer, order),
        (StoreAnswer::Registered(_), StoreOp::Register(_))
            | (StoreAnswer::Channels(_), StoreOp::ReadChannels { .. })
            | (StoreAnswer::Fetched(_), StoreOp::Fetch { .. } | StoreOp::FetchVersions { .. })
            | (StoreAnswer::Deleted, StoreOp::Delete { .. })
            | (StoreAnswer::OffersRecorded, StoreOp::RecordOffers { .. })
            | (
                StoreAnswer::ChannelsAdded,
                StoreOp::AddChannels { .. } | StoreOp::CreateChannels { .. }
            )
            | (
                StoreAnswer::ChannelRemoved,
                StoreOp::RemoveChannel { .. } | StoreOp::RemoveChannelAndVersion { .. },
            )
            | (StoreAnswer::MonthUpdated(_), StoreOp::UpdateMonth(_))
            | (StoreAnswer::MoveFinished(_), StoreOp::FinishMove(_))
            | (StoreAnswer::Moved, StoreOp::MoveMessages { .. })
            | (StoreAnswer::NodeCleared(_), StoreOp::ClearNode { .. })
            | (StoreAnswer::OverLimit, StoreOp::Register(_) | StoreOp::AddChannels { .. })
    ) || *answer == StoreAnswer::NoSpace && order.is_write()
}
