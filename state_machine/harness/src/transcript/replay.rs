//! Runs a transcript against the pure machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::input::{Input, Transcript};
use super::write::TranscriptWriter;
use crate::script::tokens::offset_text;
use crate::script::{
    Bindings, MachineKind, MachineState, Mismatch, NameKind, Unacked, World, since,
};
use state_machine::connection::{
    Config, Connection, ConnectionSeed, Effect, Effects, Event, UnackedMessage, Wait,
};
use state_machine::ids::OpId;
use state_machine::store::StoreOp;
use state_machine::time::{Span, Time};

/// A step that was run, with its effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    /// The time of the step.
    pub at: Time,
    pub event: Event,
    /// All effects of the step, in their order.
    pub effects: Effects,
}

/// The machine of a script, and the operations that it waits for.
#[derive(Debug, Clone)]
pub struct SessionWorld {
    config: Arc<Config>,
    /// What times in lines are relative to.
    start: Time,
    /// The start of the script by the clock of this node.
    zero: Time,
    now: Time,
    connection: Connection,
    open: BTreeMap<OpId, StoreOp>,
}

/// Runs every step. Returns the steps, or the first mismatch.
pub fn run(transcript: &Transcript) -> Result<Vec<StepReport>, Mismatch> {
    let mut world = SessionWorld::new(transcript);
    let mut names = Bindings::fixed();
    let steps = transcript.steps.iter().map(|step| {
        let ran = world.step(&step.input).map_err(|reason| step.refused(reason))?;
        step.compare(&world.lines(&ran.effects), &mut names)?;
        Ok(ran)
    });
    steps.collect()
}

impl Transcript {
    /// The writer for the lines of this session.
    pub fn writer(&self) -> TranscriptWriter<'_> {
        TranscriptWriter { config: &self.config, start: self.start }
    }
}

impl SessionWorld {
    /// The machine at the start of a script.
    pub fn new(transcript: &Transcript) -> Self {
        let Transcript { start, config, seed, .. } = transcript;
        Self::begin(Arc::new(config.clone()), *seed, [*start; 2], *start)
    }

    /// A connection of `now`, in a script that began at `start`, which was `zero` by the clock of this node.
    pub(crate) fn begin(
        config: Arc<Config>,
        seed: ConnectionSeed,
        [start, zero]: [Time; 2],
        now: Time,
    ) -> Self {
        let connection = Connection::new(Arc::clone(&config), seed, now);
        Self { config, start, zero, now, connection, open: BTreeMap::new() }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// An operation without an answer.
    pub(crate) fn open(&self, op: OpId) -> Option<&StoreOp> {
        self.open.get(&op)
    }

    pub(crate) fn writer(&self) -> TranscriptWriter<'_> {
        TranscriptWriter { config: &self.config, start: self.start }
    }

    /// Executes an input, or returns why it is impossible now.
    pub(crate) fn step(&mut self, input: &Input) -> Result<StepReport, String> {
        let event =
            input.event(&Bindings::fixed()).expect("names are checked when a script is read");
        match input {
            Input::Wait(span) => self.wait(*span),
            Input::Frame(_) | Input::Event(_) => self.happens_now(event),
        }
    }

    /// The lines of effects.
    pub(crate) fn lines(&self, effects: &[Effect]) -> Vec<String> {
        effects.iter().map(|effect| self.writer().effect(effect, self.now)).collect()
    }

    pub(crate) fn happens_now(&mut self, event: Event) -> Result<StepReport, String> {
        let writer = TranscriptWriter { config: &self.config, start: self.start };
        check_answer(&event, &mut self.open, &writer)?;
        let effects = self.connection.step(self.now, event.clone());
        self.open.extend(effects.iter().filter_map(submitted));
        Ok(StepReport { at: self.now, event, effects })
    }

    /// A driver steps a connection at every deadline, so a wait must not pass one.
    pub(crate) fn check_wait(&self, span: Span) -> Result<(), String> {
        let until = self.now + span;
        let Some((at, wait)) = self.connection.deadline().filter(|(at, _)| *at < until) else {
            return Ok(());
        };
        let [until, at] = [until, at].map(|time| offset_text(time, self.start));
        Err(format!(
            "this waits until {until}, over a deadline ({wait} at {at}): wait until that first"
        ))
    }

    fn wait(&mut self, span: Span) -> Result<StepReport, String> {
        self.check_wait(span)?;
        self.now = self.now + span;
        self.happens_now(Event::TimePassed)
    }

    /// The machine in its present state, under a name.
    pub(crate) fn state(&self, name: &str) -> MachineState {
        let message = |UnackedMessage { id, chid, sent_at }: UnackedMessage| Unacked {
            message: id.name(),
            channel: chid.name(),
            sent_at_ms: sent_at.map(|at| since(at, self.zero)),
        };
        let deadline = |(at, wait): (Time, Wait)| (at, wait.to_string());
        MachineState {
            unacked: self.connection.unacked_messages().into_iter().map(message).collect(),
            ..MachineState::new(name, MachineKind::Connection, &self.connection.phase())
                .with_deadlines(self.connection.deadlines().map(deadline), self.zero)
        }
    }
}

impl World for SessionWorld {
    type Input = Input;

    fn happens(&mut self, input: &Input) -> Result<Vec<String>, String> {
        let ran = self.step(input)?;
        Ok(self.lines(&ran.effects))
    }

    fn elapsed_ms(&self) -> u64 {
        self.now.since(self.zero).0
    }

    fn machines(&self) -> Vec<MachineState> {
        vec![self.state("connection")]
    }
}

/// The operation that an effect submits.
pub(crate) fn submitted(effect: &Effect) -> Option<(OpId, StoreOp)> {
    match effect {
        Effect::SubmitStoreOp { op, operation } => Some((*op, operation.clone())),
        _ => None,
    }
}

/// The store answers only operations that are open, each once.
fn check_answer(
    event: &Event,
    open: &mut BTreeMap<OpId, StoreOp>,
    writer: &TranscriptWriter<'_>,
) -> Result<(), String> {
    let Event::StoreAnswered { op, answer } = event else { return Ok(()) };
    match (open.remove(op), answer) {
        (Some(_), Err(_)) => Ok(()),
        (Some(operation), Ok(answer)) if answer.fits(&operation) => Ok(()),
        (Some(operation), Ok(_)) => {
            let operation = writer.operation(&operation, writer.start);
            Err(format!("operation {} is `{operation}`, which has another answer", op.0))
        }
        (None, _) => Err(format!("no operation {} waits for an answer", op.0)),
    }
}
