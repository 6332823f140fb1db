//! `kalends dev states`: the states of a connection, drawn from the machine itself.

use clap::{Args, ValueEnum};
use harness::chart::{self, Format};

use super::files::print;
use crate::command::{Command, Commands, Failure};

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

#[derive(Debug, Args)]
pub struct States {
    /// Format of the output
    #[arg(long, value_enum, default_value_t = StatesFormat::Table)]
    format: StatesFormat,
}

impl Command for States {
    const NAME: &'static str = "dev states";
    const ABOUT: &'static str = "Print the states of a connection and the transitions between them";

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let format = match self.format {
            StatesFormat::Mermaid => Format::Mermaid,
            StatesFormat::Dot => Format::Dot,
            StatesFormat::Table => Format::Table,
        };
        Ok(print(&[chart::render(format).trim_end().to_owned()])?)
    }
}
