//! The table of states, found by running the real machine: who reads it reads what the code does.
//!
//! [`render`] explores from a fresh connection, with a small alphabet of events and a store that gives every
//! kind of answer. Connections that look alike from outside are taken for one, and ways on which nothing
//! new comes up are given up, which keeps the search short. What it finds did happen.

mod event_alphabet;
mod explore;
mod hidden_state;
mod print;

use std::str::FromStr;
use std::sync::OnceLock;

use explore::Transitions;

/// A way to draw the table of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A diagram of the phases for Mermaid, which Markdown viewers draw.
    Mermaid,
    /// A diagram of the phases for Graphviz.
    Dot,
    /// All transitions as Markdown tables, one a phase.
    Table,
}

/// Not the name of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected mermaid, dot or table")]
pub struct UnknownFormat;

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "mermaid" => Ok(Self::Mermaid),
            "dot" => Ok(Self::Dot),
            "table" => Ok(Self::Table),
            _ => Err(UnknownFormat),
        }
    }
}

/// Draws the table of states. The search is done once a process.
pub fn render(format: Format) -> String {
    static TRANSITIONS: OnceLock<Transitions> = OnceLock::new();
    let transitions = TRANSITIONS.get_or_init(explore::transitions);
    match format {
        Format::Mermaid => print::mermaid(transitions),
        Format::Dot => print::dot(transitions),
        Format::Table => print::tables(transitions),
    }
}
