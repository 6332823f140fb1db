//! A [`Script`] is one of any language: a session ([`crate::transcript`]), a feed history ([`crate::feed`]), a push
//! ([`crate::delivery`]) or one agent on two nodes ([`crate::two_nodes`]).

pub mod fill;

use crate::delivery::DeliveryScript;
use crate::feed::transcript::{History, World as FeedWorld};
use crate::script::tokens::date_text;
use crate::script::{MachineState, Mismatch, ParseError, Ran, TraceStep, World, run};
use crate::transcript::{SessionWorld, Transcript};
use crate::two_nodes::{TwoNodes, TwoNodesScript};
use state_machine::Time;

/// A language of scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// One connection, in `.session` files.
    Session,
    /// Writers, publishers and followers of one feed, in `.feed` files.
    Feed,
    /// One push, in `.delivery` files.
    Delivery,
    /// One agent on two nodes, in `.agent` files.
    Agent,
}

/// A parsed script, ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    Session(Transcript),
    Feed(History),
    Delivery(DeliveryScript),
    Agent(TwoNodesScript),
}

impl Language {
    pub const ALL: [Self; 4] = [Self::Session, Self::Feed, Self::Delivery, Self::Agent];

    /// The extension of its files, and its name in a trace.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Feed => "feed",
            Self::Delivery => "delivery",
            Self::Agent => "agent",
        }
    }
}

impl Script {
    /// Reads a script. Its errors begin with the line: put the file's name and a colon before them.
    pub fn parse(language: Language, text: &str) -> Result<Self, ParseError> {
        match language {
            Language::Session => Transcript::parse(text).map(Self::Session),
            Language::Feed => History::parse(text).map(Self::Feed),
            Language::Delivery => DeliveryScript::parse(text).map(Self::Delivery),
            Language::Agent => TwoNodesScript::parse(text).map(Self::Agent),
        }
    }

    /// The sentence of the first line.
    pub fn title(&self) -> &str {
        match self {
            Self::Session(script) => &script.title,
            Self::Feed(script) => &script.title,
            Self::Delivery(script) => &script.title,
            Self::Agent(script) => &script.title,
        }
    }

    /// When the script starts, as RFC 3339; none if it has no dates.
    pub fn start(&self) -> Option<String> {
        let start: Time = match self {
            Self::Session(script) => script.start,
            Self::Feed(_) => return None,
            Self::Delivery(script) => script.start,
            Self::Agent(script) => script.start,
        };
        Some(date_text(start))
    }

    /// The machines before the first step.
    pub fn machines(&self) -> Vec<MachineState> {
        match self {
            Self::Session(script) => SessionWorld::new(script).machines(),
            Self::Feed(script) => FeedWorld::new(script.setup.clone()).machines(),
            Self::Delivery(script) => script.world().machines(),
            Self::Agent(script) => TwoNodes::new(script).machines(),
        }
    }

    /// Runs every step and passes each to `see`, including one that fails. Returns the first mismatch.
    pub fn replay(&self, mut see: impl FnMut(TraceStep)) -> Result<(), Mismatch> {
        self.run(|ran| {
            see(ran.trace);
            ran.compared
        })
    }

    /// Runs every step until `see` fails.
    pub(crate) fn run(
        &self,
        see: impl FnMut(Ran<'_>) -> Result<(), Mismatch>,
    ) -> Result<(), Mismatch> {
        match self {
            Self::Session(script) => run(&script.steps, &mut SessionWorld::new(script), see),
            Self::Feed(script) => {
                run(&script.steps, &mut FeedWorld::new(script.setup.clone()), see)
            }
            Self::Delivery(script) => run(&script.steps, &mut script.world(), see),
            Self::Agent(script) => run(&script.steps, &mut TwoNodes::new(script), see),
        }
    }
}
