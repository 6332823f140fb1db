//! `kalends completions`: the completions of a shell, from the grammar of the command line.

use std::io::{ErrorKind, Write, stdout};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::{Shell, generate};

use crate::command::{Command, Commands, Failure};

#[derive(Debug, Args)]
pub struct Completions {
    #[arg(value_parser = PossibleValuesParser::new(["bash", "fish", "zsh"]).try_map(|name| name.parse::<Shell>()))]
    shell: Shell,
}

impl Command for Completions {
    const NAME: &'static str = "completions";
    const ABOUT: &'static str = "Print the completions of a shell";
    const HELP: &'static str = "\
Examples:
  kalends completions bash > /etc/bash_completion.d/kalends
  kalends completions zsh > ~/.zfunc/_kalends
  kalends completions fish > ~/.config/fish/completions/kalends.fish";

    fn run(self, commands: Commands) -> Result<(), Failure> {
        let mut text = Vec::new();
        generate(self.shell, &mut (commands.grammar)(), "kalends", &mut text);
        match stdout().write_all(&text) {
            // Its reader, such as `head`, has what it needs.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }
}
