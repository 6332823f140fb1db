//! What a package installs beside the program: completions of shells, and manual pages, from the grammar of the command
//! line.

use std::io::{self, ErrorKind, Write, stdout};
use std::path::Path;

use clap::{Command, ValueEnum};
use clap_complete::{Shell, generate};
use storage::durable;

/// The shells whose completions are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompletedShell {
    Bash,
    Fish,
    Zsh,
}

/// Prints the completions of a shell.
pub fn print_completions(shell: CompletedShell, mut command: Command) -> io::Result<()> {
    let shell = match shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Fish => Shell::Fish,
        CompletedShell::Zsh => Shell::Zsh,
    };
    let mut text = Vec::new();
    generate(shell, &mut command, "kalends", &mut text);
    match stdout().write_all(&text) {
        // Its reader, such as `head`, has what it needs.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a page for each command into `dir`, which is made if it is missing.
pub fn write_pages(dir: &Path, command: Command) -> io::Result<()> {
    durable::create_dir_all(dir, 0o777)?;
    clap_mangen::generate_to(command, dir)
}
