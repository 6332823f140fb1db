//! The command line: what can be said, and what is called then.
//!
//! Exit codes: 0 when it went well, 1 when it failed, 2 when it was not said rightly (an unknown
//! flag, a bad setting).

mod help;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::admin::commands::{NoArgs, OnStore, Request, with_short_help};
use crate::admin::{self, TablesAction, UsersAction};
use crate::dev::listen::{self, ListenArgs};
use crate::dev::push::{self, PushArgs};
use crate::dev::vapid_key::VapidKey;
use crate::dev::{ToolError, to_base64url};
use crate::dev::{replay, states};
use crate::feeds::cli::remote::TOKEN_VARIABLE;
use crate::feeds::cli::{self as feed_cli, BroadcastAction, FeedAction};
use crate::server::DevArgs;
use crate::settings::sources::{flag_name, is_near};
use crate::settings::table::Setting;
use crate::settings::value::TomlKind;
use crate::settings::{Flags, Role, Settings, SettingsError};
use crate::{keys, server};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "kalends", version, about, after_help = help::EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; without it, serve.
    #[command(subcommand)]
    pub action: Option<Action>,

    /// Settings of `kalends` without a command.
    #[command(flatten)]
    pub flags: Flags,
}

/// What `kalends serve`, `connect` and `endpoint` are told.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Settings.
    #[command(flatten)]
    pub flags: Flags,
    /// What only developers ask for.
    #[command(flatten)]
    pub dev: DevArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run the server; `kalends` alone does the same
    #[command(after_help = help::SERVE)]
    Serve(ServeArgs),
    /// Run a connection node, one of several: user agents connect to it
    #[command(after_help = help::CONNECT)]
    Connect(ServeArgs),
    /// Run an endpoint node, one of several: application servers send to it
    #[command(after_help = help::ENDPOINT)]
    Endpoint(ServeArgs),
    /// Be a user agent: subscribe, and print what is sent
    #[command(after_help = help::LISTEN)]
    Listen(ListenArgs),
    /// Be an application server: send one message
    #[command(after_help = help::PUSH)]
    Push(PushArgs),
    /// Make keys
    #[command(subcommand)]
    Keys(KeysAction),
    /// Try out whether a server could use its store
    #[command(after_help = admin::help::PREFLIGHT)]
    Preflight(OnStore<NoArgs>),
    /// Look after the message tables of the months
    #[command(subcommand, after_help = admin::help::TABLES)]
    Tables(TablesAction),
    /// Look after the users
    #[command(subcommand, after_help = admin::help::USERS)]
    Users(UsersAction),
    /// Write and follow feeds
    #[command(subcommand, after_help = feed_cli::help::FEED)]
    Feed(FeedAction),
    /// Tell user agents of broadcasts
    #[command(subcommand, after_help = feed_cli::help::BROADCAST)]
    Broadcast(BroadcastAction),
    /// Run a session transcript or a feed history through the state machines
    #[command(after_help = help::REPLAY)]
    Replay {
        /// A `.session` file as in fixtures/sessions, or a `.feed` file as in fixtures/feeds
        file: PathBuf,
        /// Print each event, phase and effect
        #[arg(long)]
        trace: bool,
    },
    /// Print the states of a connection and what leads from one to the next
    States {
        /// How to print them
        #[arg(long, value_enum, default_value_t = StatesFormat::Table)]
        format: StatesFormat,
    },
}

/// Which keys to make.
#[derive(Debug, Subcommand)]
pub enum KeysAction {
    /// Print a fresh key for `crypto_keys` in keys.toml
    ///
    /// The server makes its first key by itself. To change keys, put a new one in front of the list and keep the
    /// old ones: endpoints that were handed out are sealed with them. Where there are several nodes, append it
    /// first, and put it in front when every node has it: an endpoint sealed with a key that an endpoint
    /// node does not have is answered 404, and is lost (docs/operations.md).
    Generate,
    /// Put a fresh key in front of `cluster_keys` in keys.toml
    ///
    /// The nodes of a cluster sign with them what they say to each other.
    #[command(after_help = help::CLUSTER_KEYS)]
    Cluster {
        /// Settings: where keys.toml is.
        #[command(flatten)]
        flags: Flags,
    },
    /// Make a VAPID key in FILE, or read the one there, and print its public key
    ///
    /// An application server signs its pushes with it (`kalends push --vapid-key FILE`), and a
    /// subscription can be restricted to its public key.
    Vapid {
        /// A PEM file; made with mode 0600
        file: PathBuf,
        /// Print the private key too, on a second line, as `web-push` for Node.js wants it
        #[arg(long)]
        private: bool,
    },
}

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

/// Reads the command line, does what it says, and gives the exit code.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    match parse(&words) {
        Ok(cli) => run(cli),
        Err(error) => error.exit(),
    }
}

fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let cli = command().try_get_matches_from(words);
    let cli = cli.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.map_err(|error| with_switch_tip(without_guess(error), words))
}

/// Takes away a suggestion of clap's that is too far from what was written, with the usage line
/// that clap builds from it.
fn without_guess(mut error: clap::Error) -> clap::Error {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let written = context(ContextKind::InvalidArg).zip(context(ContextKind::SuggestedArg));
    if written.is_some_and(|(written, guess)| !is_near(written, guess)) {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Usage);
    }
    error
}

/// `--rotation false` is refused for its `false`, of which clap cannot know where it belongs.
fn with_switch_tip(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let tip = words.windows(2).find_map(|pair| switch_tip(pair[0].to_str()?, pair[1].to_str()?));
    if let Some(tip) = tip.filter(|_| error.use_stderr()) {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

fn switch_tip(flag: &str, value: &str) -> Option<String> {
    let is_switch = |setting: &Setting| setting.toml_kind == TomlKind::Switch;
    let known = Setting::all().any(|setting| is_switch(setting) && flag_name(setting.name) == flag);
    let is_value = matches!(value, "true" | "false");
    (known && is_value).then(|| format!("write `{flag}={value}`"))
}

/// The definition. The help of `kalends` alone shows the settings one begins with, that of `kalends
/// serve` all of them.
fn command() -> Command {
    const FIRST: [&str; 6] = ["config", "data_dir", "listen", "public_url", "help", "version"];
    let command = Cli::command().mut_args(|arg| {
        let is_first = FIRST.contains(&arg.get_id().as_str());
        arg.hide(!is_first)
    });
    let command = command.mut_subcommand("preflight", with_short_help);
    ["tables", "users", "feed", "broadcast", "keys"].into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |actions| actions.mut_subcommands(with_short_help))
    })
}

fn run(cli: Cli) -> ExitCode {
    let serve = ServeArgs { flags: cli.flags, ..ServeArgs::default() };
    match cli.action.unwrap_or(Action::Serve(serve)) {
        Action::Serve(args) => run_server(Role::Serve, &args),
        Action::Connect(args) => run_server(Role::Connect, &args),
        Action::Endpoint(args) => run_server(Role::Endpoint, &args),
        Action::Listen(args) => exit_code(listen::run(&args)),
        Action::Push(args) => exit_code(push::run(&args)),
        Action::Preflight(preflight) => run_admin((Request::Preflight, preflight.flags)),
        Action::Tables(action) => run_admin(action.into_request()),
        Action::Users(action) => run_admin(action.into_request()),
        Action::Feed(action) => run_feed(action),
        Action::Broadcast(action) => run_broadcast(action),
        Action::Keys(KeysAction::Generate) => exit_code(print(&keys::generate())),
        Action::Keys(KeysAction::Cluster { flags }) => with_settings(&flags, keys::cluster::run),
        Action::Keys(KeysAction::Vapid { file, private }) => {
            exit_code(print_vapid_key(&file, private))
        }
        Action::Replay { file, trace } => exit_code(replay::run(&file, trace)),
        Action::States { format } => exit_code(states::run(format)),
    }
}

/// Reads the settings and does something with them.
fn with_settings<E: Display>(
    flags: &Flags,
    run: impl FnOnce(&Settings) -> Result<(), E>,
) -> ExitCode {
    match load(flags) {
        Ok(settings) => exit_code(run(&settings)),
        Err(error) => wrong(&error),
    }
}

fn load(flags: &Flags) -> Result<Settings, SettingsError> {
    // What is no setting and is meant for `kalends feed --url` may be in anybody's environment.
    let variables = std::env::vars_os().filter(|(name, _)| name != TOKEN_VARIABLE);
    Settings::load(flags, variables)
}

fn run_server(role: Role, ServeArgs { flags, dev }: &ServeArgs) -> ExitCode {
    let settings = match load(flags) {
        Ok(settings) => settings,
        Err(error) => return wrong(&error),
    };
    match settings.check(role) {
        Ok(()) => match server::run(role, &settings, *dev) {
            Err(error) if error.is_of_configuration() => wrong(&error),
            served => exit_code(served),
        },
        Err(problem) => wrong(&problem),
    }
}

fn run_admin((request, flags): (Request, Flags)) -> ExitCode {
    with_settings(&flags, |settings| admin::command::run(request, settings))
}

fn run_feed(action: FeedAction) -> ExitCode {
    let flags = action.flags().clone();
    with_settings(&flags, |settings| feed_cli::run(action, settings))
}

fn run_broadcast(action: BroadcastAction) -> ExitCode {
    let flags = action.flags().clone();
    with_settings(&flags, |settings| feed_cli::run_broadcast(action, settings))
}

fn print_vapid_key(file: &Path, with_private: bool) -> Result<(), ToolError> {
    print(&vapid_key(file, with_private)?)
}

/// The public key in base64url; the private one on a second line where it is asked for.
fn vapid_key(file: &Path, with_private: bool) -> Result<String, ToolError> {
    let VapidKey { pair, .. } = VapidKey::load_or_make(file)?;
    let public = to_base64url(pair.public());
    Ok(match with_private {
        true => format!("{public}\n{}", to_base64url(&pair.private_bytes())),
        false => public,
    })
}

fn print(text: &str) -> Result<(), ToolError> {
    Ok(writeln!(stdout(), "{text}")?)
}

fn exit_code<E: Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint(&error);
            ExitCode::FAILURE
        }
    }
}

/// It was not said rightly.
fn wrong(error: &dyn Display) -> ExitCode {
    eprint(error);
    ExitCode::from(2)
}

/// Where standard error is closed there is nobody to tell; the exit code still does.
fn eprint(error: &dyn Display) {
    let _nobody_there = writeln!(stderr(), "kalends: {error}");
}
