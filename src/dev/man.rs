//! `kalends dev man`: manual pages, from the grammar of the command line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command as Grammar};
use storage::durable::{self, NewFile};

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
        let mut grammar = (commands.grammar)().disable_help_subcommand(true);
        grammar.build();
        Ok(write_pages(&grammar, &self.dir)?)
    }
}

/// Writes the page of a command, and those of the commands below it.
fn write_pages(grammar: &Grammar, dir: &Path) -> io::Result<()> {
    for below in grammar.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, dir)?;
    }
    let page = clap_mangen::Man::new(grammar.clone());
    let page = page.source(concat!("kalends ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8(text).expect("helps are text");
    let mut file = NewFile::with_mode(&dir.join(page.get_filename()), 0o644)?;
    file.write_all(with_lines_of_examples(&text).as_bytes())?;
    file.replace()
}

/// Keeps the line breaks of examples, which are indented: man(1) fills other lines.
fn with_lines_of_examples(page: &str) -> String {
    let (mut lines, mut is_example) = (Vec::new(), false);
    for line in page.lines() {
        if line.starts_with("  ") != is_example {
            is_example = !is_example;
            lines.push(if is_example { ".nf" } else { ".fi" });
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}
