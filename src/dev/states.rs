//! `kalends dev states`: the states of a connection, drawn from the machine itself.

use std::io;

use clap::ValueEnum;
use harness::chart::{self, Format};

use super::files::print;

/// How states are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatesFormat {
    /// A Mermaid diagram, as GitHub draws it
    Mermaid,
    /// A graph for Graphviz
    Dot,
    /// A table in Markdown
    Table,
}

/// Prints the states of a connection to standard output.
pub fn run(format: StatesFormat) -> Result<(), io::Error> {
    let format = match format {
        StatesFormat::Mermaid => Format::Mermaid,
        StatesFormat::Dot => Format::Dot,
        StatesFormat::Table => Format::Table,
    };
    print(&[chart::render(format).trim_end().to_owned()])
}
