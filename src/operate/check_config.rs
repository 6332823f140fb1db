//! `kalends check-config`: whether a server would take its settings.

use std::io::{Write, stdout};

use clap::Args;

use crate::command::{Command, Commands, Failure, Shown, load};
use crate::settings::sources::config_file;
use crate::settings::{Flags, Role};

#[derive(Debug, Args)]
pub struct CheckConfig {
    /// The role of the server that would have these settings
    #[arg(long, value_enum, default_value_t)]
    pub role: Role,
    #[command(flatten)]
    pub flags: Flags,
}

impl Command for CheckConfig {
    const NAME: &'static str = "check-config";
    const ABOUT: &'static str = "Check the file of settings, the environment and flags";
    const HELP: &'static str = "\
Reads the settings as `kalends serve` does, and touches nothing else. The exit code is 2 if one is wrong.
`kalends preflight` checks the store, the keys and the file of bridges too.

Examples:
  kalends check-config --config /etc/kalends/kalends.toml
  kalends check-config --config /etc/kalends/kalends-1.toml --role endpoint";
    const SETTINGS: Shown = Shown::Only(&["config"]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let settings = load(&self.flags)?;
        settings.check(self.role).map_err(Failure::usage)?;
        let of = match config_file(&self.flags) {
            Some(path) => path.display().to_string(),
            None => "no file, environment and flags only".to_owned(),
        };
        Ok(writeln!(stdout(), "the settings are valid: {of}")?)
    }
}
