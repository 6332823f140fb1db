//! `kalends states`: the states of a connection, drawn from the machine itself.

use std::io::{self, Write};

use harness::chart::{self, Format};

use crate::cli::StatesFormat;

/// Prints the states.
pub fn run(format: StatesFormat) -> Result<(), io::Error> {
    let format = match format {
        StatesFormat::Mermaid => Format::Mermaid,
        StatesFormat::Dot => Format::Dot,
        StatesFormat::Table => Format::Table,
    };
    writeln!(io::stdout(), "{}", chart::render(format).trim_end())
}
