//! `kalends dev states`: the states of a connection, drawn from the machine itself.

use std::io::{self, ErrorKind, Write};

use clap::ValueEnum;
use harness::chart::{self, Format};

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
    match writeln!(io::stdout(), "{}", chart::render(format).trim_end()) {
        // Its reader, such as `head`, has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
