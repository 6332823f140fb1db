//! The table of states, rendered from a search over the real machine, so that it cannot differ from
//! the code.
//!
//! [`render`] explores from a fresh connection, with a small alphabet of events and a store that
//! gives every kind of answer. The search treats connections that look alike from outside as one,
//! and abandons a path on which nothing new appears. Every transition in the table was executed.

mod event_alphabet;
mod explore;
#[cfg(test)]
mod hostile_agent;
mod print;

use std::str::FromStr;
use std::sync::OnceLock;

use explore::Transitions;

/// The output format of the table of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A diagram of the phases for Mermaid, which Markdown viewers draw.
    Mermaid,
    /// A diagram of the phases for Graphviz.
    Dot,
    /// All transitions as Markdown tables, one a phase.
    Table,
}

/// The error for a name that is not a format.
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

/// Renders the table of states.
pub fn render(format: Format) -> String {
    let transitions = transitions();
    match format {
        Format::Mermaid => print::mermaid(transitions),
        Format::Dot => print::dot(transitions),
        Format::Table => print::tables(transitions),
    }
}

/// The pairs of different phases between which a step may lead.
pub fn phase_changes() -> Vec<(String, String)> {
    print::edges(transitions())
        .keys()
        .map(|(from, to)| (from.to_string(), to.to_string()))
        .collect()
}

/// A process runs the search once and keeps its result.
fn transitions() -> &'static Transitions {
    static TRANSITIONS: OnceLock<Transitions> = OnceLock::new();
    TRANSITIONS.get_or_init(explore::transitions)
}
