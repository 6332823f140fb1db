//! `kalends dev man`: manual pages, from the grammar of the command line.

use std::path::PathBuf;

use clap::Args;
use storage::durable;

use crate::command::{Command, Commands, Failure};

#[derive(Debug, Args)]
pub struct Man {
    /// The directory of the pages, made if it is missing
    dir: PathBuf,
}

impl Command for Man {
    const NAME: &'static str = "dev man";
    const ABOUT: &'static str = "Write the manual pages of all commands, for a package";

    fn run(self, commands: Commands) -> Result<(), Failure> {
        durable::create_dir_all(&self.dir, 0o777)?;
        Ok(clap_mangen::generate_to((commands.grammar)(), &self.dir)?)
    }
}
