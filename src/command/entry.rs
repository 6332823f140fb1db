//! The list of commands: what each entry has, and the grammar that follows from all of them.

use clap::{Arg, ArgMatches, Args, Command as Grammar};

use super::failure::Failure;
use super::served::Served;
use super::store_command::StoreCommand;
use crate::settings::flags::ENV_CONFIG;
use crate::settings::setting::Setting;
use crate::settings::sources::config_file;
use crate::settings::{Flags, Settings};

/// Behind the help of each command.
const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed, refused, or a check failed; 2 a wrong argument or setting. Standard error has
the reason.";

/// A command of the command line.
pub trait Command: Args + 'static {
    /// Its words on the command line, such as `tables create`.
    const NAME: &'static str;
    /// A line for the list of commands. Paragraphs after the first are in its long help alone.
    const ABOUT: &'static str;
    /// The text behind the options in its help.
    const HELP: &'static str = "";
    /// The settings that its help shows; all of them are accepted.
    const SETTINGS: Shown = Shown::All;

    fn run(self, commands: Commands) -> Result<(), Failure>;
}

/// The settings in the help of a command.
#[derive(Debug, Clone, Copy)]
pub enum Shown {
    All,
    Only(&'static [&'static str]),
    /// Those that name the store, and these.
    OfStore(&'static [&'static str]),
}

/// All commands, and the grammar that they make.
#[derive(Debug, Clone, Copy)]
pub struct Commands {
    /// The whole command line.
    pub grammar: fn() -> Grammar,
    pub entries: &'static [Entry],
    pub groups: &'static [Group],
}

/// Words that several commands begin with.
#[derive(Debug)]
pub struct Group {
    pub name: &'static str,
    pub about: &'static str,
    pub help: &'static str,
}

/// A command of the list, without its type.
#[derive(Debug)]
pub struct Entry {
    name: &'static str,
    about: &'static str,
    grammar: fn(Grammar) -> Grammar,
    run: fn(&ArgMatches, Commands) -> Result<(), Failure>,
    served: Option<Served>,
}

/// A command's own arguments, and the settings that name the store.
#[derive(Debug, Args)]
struct OnStore<C: Args> {
    #[command(flatten)]
    command: C,
    #[command(flatten)]
    flags: Flags,
}

impl<C: StoreCommand> Command for OnStore<C> {
    const NAME: &'static str = C::NAME;
    const ABOUT: &'static str = C::ABOUT;
    const HELP: &'static str = C::HELP;
    const SETTINGS: Shown = Shown::OfStore(C::SETTINGS);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        self.command.main(&load(&self.flags)?)
    }
}

/// The variable with the token of `kalends feed --url`. It is no setting, and may be set in any environment.
pub const FEED_TOKEN_VARIABLE: &str = "KALENDS_FEED_TOKEN";

/// The settings of a command.
pub fn load(flags: &Flags) -> Result<Settings, Failure> {
    let others = [FEED_TOKEN_VARIABLE, ENV_CONFIG];
    let variables = std::env::vars_os().filter(|(name, _)| !others.iter().any(|it| name == it));
    let flags = Flags { config: config_file(flags), ..flags.clone() };
    Settings::load(&flags, variables).map_err(Failure::usage).map(tolerating)
}

/// The settings of flags alone, with these values in place of defaults.
pub fn load_flags(flags: &Flags, defaults: &[(&'static str, String)]) -> Result<Settings, Failure> {
    Settings::load_flags(flags, defaults).map_err(Failure::usage).map(tolerating)
}

fn tolerating(settings: Settings) -> Settings {
    if settings.allow_unsynced_data_dir {
        storage::durable::tolerate_unsynced();
    }
    settings
}

impl Entry {
    pub const fn of<C: Command>() -> Self {
        Self { name: C::NAME, about: C::ABOUT, grammar: grammar::<C>, run: run::<C>, served: None }
    }

    /// A command on a store, which its server can run too.
    pub const fn on_store<C: StoreCommand>() -> Self {
        Self { served: Some(Served::of::<C>()), ..Self::alone::<C>() }
    }

    /// A command that needs its stores for itself.
    pub const fn alone<C: StoreCommand>() -> Self {
        Self::of::<OnStore<C>>()
    }
}

fn run<C: Command>(matches: &ArgMatches, commands: Commands) -> Result<(), Failure> {
    C::from_arg_matches(matches).unwrap_or_else(|error| error.exit()).run(commands)
}

fn grammar<C: Command>(command: Grammar) -> Grammar {
    let command = C::augment_args(command).about(first_line(C::ABOUT));
    let long = C::ABOUT.contains("\n\n").then_some(C::ABOUT);
    let texts: Vec<_> = [C::HELP, EXIT_CODES].into_iter().filter(|text| !text.is_empty()).collect();
    let command = command.long_about(long).after_help(texts.join("\n\n"));
    command.mut_args(|arg| shown(arg, C::SETTINGS))
}

/// What the list of commands has of `ABOUT`.
fn first_line(about: &'static str) -> Option<&'static str> {
    about.split("\n\n").next()
}

/// Hides a setting that the command has nothing to do with.
fn shown(arg: Arg, settings: Shown) -> Arg {
    let id = arg.get_id().as_str();
    let is_setting = id == "config" || Setting::find(id).is_some();
    match settings {
        Shown::All => arg,
        _ if !is_setting => arg,
        Shown::Only(names) if names.contains(&id) => arg,
        Shown::Only(_) => arg.hide(true),
        Shown::OfStore(names) => match id {
            "config" | "data_dir" | "store" => arg,
            id if names.contains(&id) => arg,
            "rotation" | "last_connect_shards" => arg.hide_short_help(true),
            id if id.starts_with("dynamodb_") => arg.hide_short_help(true),
            _ => arg.hide(true),
        },
    }
}

impl Commands {
    /// Adds all commands to the grammar. Each has all settings, so its arguments are made when it is used.
    pub fn add_to(self, grammar: Grammar) -> Grammar {
        let leaf = |entry: &Entry, name: &'static str| {
            Grammar::new(name).about(first_line(entry.about)).defer(entry.grammar)
        };
        let mut grammar = grammar;
        for entry in self.entries {
            match entry.name.split_once(' ') {
                None => grammar = grammar.subcommand(leaf(entry, entry.name)),
                Some((group, name)) => {
                    if grammar.find_subcommand(group).is_none() {
                        grammar = grammar.subcommand(self.group(group));
                    }
                    let leaf = leaf(entry, name);
                    grammar = grammar.mut_subcommand(group, |group| group.subcommand(leaf));
                }
            }
        }
        grammar
    }

    fn group(self, name: &'static str) -> Grammar {
        let group = self.groups.iter().find(|group| group.name == name);
        let group = group.expect("each group is listed");
        let help = Some(group.help).filter(|help| !help.is_empty());
        let grammar = Grammar::new(name).about(group.about).after_help(help);
        grammar.subcommand_required(true).arg_required_else_help(true)
    }

    /// Runs the command that the grammar has found, if it has found one.
    pub fn run(self, matches: &ArgMatches) -> Option<Result<(), Failure>> {
        let (first, matches) = matches.subcommand()?;
        let (name, matches) = match matches.subcommand() {
            Some((second, matches)) => (format!("{first} {second}"), matches),
            None => (first.to_owned(), matches),
        };
        let entry = self.entries.iter().find(|entry| entry.name == name);
        Some((entry.expect("the grammar is made of the entries").run)(matches, self))
    }

    /// The commands that a server can run.
    pub fn served(self) -> impl Iterator<Item = Served> {
        self.entries.iter().filter_map(|entry| entry.served)
    }
}
