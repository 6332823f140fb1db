//! The command line: its grammar, and the function that each command calls.
//!
//! Exit codes: 0 on success, 1 on failure, 2 on wrong usage (an unknown flag, a bad setting).

mod help;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use storage::durable::tolerate_unsynced;

use crate::dev::push::{self, PushArgs};
use crate::dev::replay::Output;
use crate::dev::states::StatesFormat;
use crate::dev::subscribe::{self, SubscribeArgs};
use crate::dev::vapid_key::VapidKey;
use crate::dev::{ToolError, to_base64url};
use crate::dev::{replay, states, view};
use crate::feeds::cli::remote::TOKEN_VARIABLE;
use crate::feeds::cli::{self as feed_cli, BroadcastAction, FeedAction};
use crate::operate::admin;
use crate::operate::admin::commands::{
    Inspect, InspectArgs, OnStore, ReadOnlyArgs, Request, with_short_help,
};
use crate::operate::admin::{AccessAction, ImportAction, StoreAction, TablesAction, UsersAction};
use crate::operate::backup;
use crate::operate::backup::create::BackupArgs;
use crate::operate::backup::restore::RestoreArgs;
use crate::operate::doctor;
use crate::operate::doctor::DoctorArgs;
use crate::operate::health;
use crate::operate::health::HealthArgs;
use crate::operate::init;
use crate::operate::init::{InitArgs, InitError};
use crate::operate::shell;
use crate::operate::shell::CompletedShell;
use crate::server;
use crate::settings::keys::fingerprint::KeyList;
use crate::settings::setting::Setting;
use crate::settings::sources::{flag_name, is_near};
use crate::settings::value::TomlKind;
use crate::settings::{Flags, Role, Settings};
use crate::settings::{keys, renamed};

#[derive(Debug, Parser)]
#[command(name = "kalends", version, about, after_help = help::EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Without a command, the server runs.
    #[command(subcommand)]
    pub action: Option<Action>,

    /// The settings of `kalends` without a command.
    #[command(flatten)]
    pub flags: Flags,
}

#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// What this process serves
    #[arg(long, value_enum, default_value_t)]
    pub role: Role,
    #[command(flatten)]
    pub flags: Flags,
    #[command(flatten)]
    pub dev: DevArgs,
}

/// Hidden flags for developers. They are no settings: neither a file nor the environment can set them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct DevArgs {
    /// Allow the flags for developers
    #[arg(long, hide = true)]
    pub dev: bool,
    /// Run with a clock that is SECONDS ahead of the system's; a negative number is behind it
    #[arg(long, hide = true, requires = "dev", default_value_t = 0, value_name = "SECONDS")]
    #[arg(allow_negative_numbers = true)]
    pub clock_offset_s: i64,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run the server; `kalends` alone does the same
    #[command(after_help = help::SERVE)]
    Serve(ServeArgs),
    /// Act as a user agent: subscribe, and print each message
    #[command(after_help = help::SUBSCRIBE)]
    Subscribe(SubscribeArgs),
    /// Act as an application server: send one message
    #[command(after_help = help::PUSH)]
    Push(PushArgs),
    /// Generate keys of the server, of a cluster or of an application server
    #[command(subcommand)]
    Keys(KeysAction),
    /// Write a file of settings after four questions
    #[command(after_help = init::HELP)]
    Init(InitArgs),
    /// Ask the server of this machine whether it is healthy
    #[command(after_help = health::HELP)]
    Health(HealthArgs),
    /// Check an installation from end to end: files, proxy, pushes
    #[command(after_help = doctor::HELP)]
    Doctor(DoctorArgs),
    /// Check whether a server can use its store
    #[command(after_help = admin::help::PREFLIGHT)]
    Preflight {
        #[command(flatten)]
        flags: Flags,
    },
    /// Manage the message tables of the months
    #[command(subcommand, after_help = admin::help::TABLES)]
    Tables(TablesAction),
    /// Drop user agents, one by its uaid or those that stay away, or repair their records
    #[command(subcommand, after_help = admin::help::USERS)]
    Users(UsersAction),
    /// Show what is known of one user agent, and why a push to it may not arrive
    #[command(after_help = admin::help::INSPECT)]
    Inspect(OnStore<InspectArgs>),
    /// List the nodes that hold user agents, and whether they answer
    #[command(after_help = admin::help::NODES)]
    Nodes(OnStore<ReadOnlyArgs>),
    /// Move over from another push server
    #[command(subcommand, after_help = admin::help::IMPORT)]
    Import(ImportAction),
    /// Move everything between SQLite and DynamoDB
    #[command(subcommand, after_help = admin::help::STORE)]
    Store(StoreAction),
    /// Manage access tokens of user agents, and sign in to the operator's page
    #[command(subcommand, after_help = admin::help::ACCESS)]
    Access(AccessAction),
    /// Write an archive of the store and its keys, also while the server runs
    #[command(after_help = backup::help::BACKUP)]
    Backup(BackupArgs),
    /// Restore an archive into an empty data directory, or verify it
    #[command(after_help = backup::help::RESTORE)]
    Restore(RestoreArgs),
    /// Write, list and follow feeds
    #[command(subcommand, after_help = feed_cli::help::FEED)]
    Feed(FeedAction),
    /// Publish broadcasts to user agents
    #[command(subcommand, after_help = feed_cli::help::BROADCAST)]
    Broadcast(BroadcastAction),
    /// Print the completions of a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions { shell: CompletedShell },
    /// Inspect the state machines (for developers of Kalends)
    #[command(subcommand)]
    Dev(DevAction),
}

/// Commands for developers of Kalends.
#[derive(Debug, Subcommand)]
pub enum DevAction {
    /// Run scripts of a session, a feed, a push or an agent on two nodes through the state machines
    #[command(after_help = help::REPLAY)]
    Replay {
        /// `.session`, `.feed`, `.delivery` or `.agent` files as in fixtures/
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print each event, phase and effect
        #[arg(long)]
        trace: bool,
        /// Print the same as lines of JSON, with the unacked messages and all deadlines
        #[arg(long, conflicts_with = "trace")]
        json: bool,
        /// Write the effects of the machines into the scripts, where they are missing or differ
        #[arg(long, conflicts_with_all = ["trace", "json"])]
        write: bool,
    },
    /// Write a page that plays scripts step by step, with the diagram of their machines
    #[command(after_help = help::VIEW)]
    View {
        /// Scripts as for `replay`; the page lets the reader choose among several
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The page [default: a new file in the directory for temporary files]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write the manual pages of all commands, for a package
    Man {
        /// The directory of the pages, made if it is missing
        dir: PathBuf,
    },
    /// Print the states of a connection and the transitions between them
    States {
        /// Format of the output
        #[arg(long, value_enum, default_value_t = StatesFormat::Table)]
        format: StatesFormat,
    },
}

#[derive(Debug, Subcommand)]
pub enum KeysAction {
    /// Print a fresh key for `crypto_keys` in keys.toml
    ///
    /// The server generates its first key by itself. To change keys, put the new one in front of the list and
    /// keep the old ones, because the endpoint URLs issued so far are encrypted with them. In a cluster, append
    /// the new key first, and put it in front when every node has it. Otherwise an endpoint node without the key
    /// answers 404, and the subscription is lost (docs/operations.md).
    Generate,
    /// Put a fresh key in front of `cluster_keys` in keys.toml
    ///
    /// The nodes of a cluster sign their requests to each other with these keys.
    #[command(after_help = help::CLUSTER_KEYS)]
    Cluster {
        /// The setting `data_dir`, in which keys.toml is.
        #[command(flatten)]
        flags: Flags,
    },
    /// Put a fresh key in front of `auth_keys` in keys.toml
    ///
    /// The secrets of user agents behind bridges are made with these keys.
    #[command(after_help = help::AUTH_KEYS)]
    Auth {
        /// The setting `data_dir`, in which keys.toml is.
        #[command(flatten)]
        flags: Flags,
    },
    /// Print the public key of the VAPID key in FILE; generate it if FILE is missing
    ///
    /// An application server signs its pushes with the key (`kalends push --vapid-key FILE`). A subscription
    /// can be restricted to the public key.
    Vapid {
        /// A PEM file, created with mode 0600
        file: PathBuf,
        /// Print the private key too, on a second line, in the format of `web-push` for Node.js
        #[arg(long)]
        private: bool,
    },
}

/// Runs the command of this process and returns its exit code.
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
    cli.map_err(|error| with_tip(without_guess(error), words))
}

/// Removes a suggestion of clap that is too different from the argument, and the usage line built
/// from it.
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

/// Adds what to write instead of a former name, and of `--rotation false` or `--rotation x`: clap
/// refuses the value and cannot know which flag it belongs to.
fn with_tip(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let mut words: Vec<_> = words.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    let is_help = words.first().is_some_and(|word| word == "help");
    words.drain(..usize::from(is_help));
    let refused = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let switch = || words.windows(2).find_map(|pair| switch_tip(&pair[0], &pair[1], refused));
    let tip =
        renamed::command(&words).or_else(|| words.iter().find_map(|word| renamed::flag(word)));
    if let Some(tip) = tip.or_else(switch).filter(|_| error.use_stderr()) {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The tip for the value behind a switch; `refused` is the argument that clap refuses.
fn switch_tip(flag: &str, value: &str, refused: &str) -> Option<String> {
    let is_switch = |setting: &Setting| setting.toml_kind == TomlKind::Switch;
    let known = Setting::all().any(|setting| is_switch(setting) && flag_name(setting.name) == flag);
    match value {
        "true" | "false" if known => Some(format!("write `{flag}={value}`")),
        _ if known && value == refused && !value.starts_with('-') => {
            Some(format!("`{flag}` is true or false: `{flag}=true`, `{flag}=false`"))
        }
        _ => None,
    }
}

/// The grammar for clap. The help of `kalends` shows the first settings that a user needs, that of
/// `kalends serve` all of them.
fn command() -> Command {
    const FIRST: [&str; 6] = ["config", "data_dir", "listen", "public_url", "help", "version"];
    let command = Cli::command().mut_args(|arg| {
        let is_first = FIRST.contains(&arg.get_id().as_str());
        arg.hide(!is_first)
    });
    let command =
        ["preflight", "inspect", "nodes", "backup", "restore", "health", "init", "doctor"]
            .into_iter()
            .fold(command, |command, name| command.mut_subcommand(name, with_short_help));
    let command = ["tables", "users", "store", "access", "import", "feed", "broadcast", "keys"]
        .into_iter()
        .fold(command, |command, name| {
            command.mut_subcommand(name, |actions| actions.mut_subcommands(with_short_help))
        });
    with_exit_codes(command)
}

/// Adds the exit codes to the help of each command that does something.
fn with_exit_codes(command: Command) -> Command {
    let is_leaf = !command.has_subcommands();
    let command = command.mut_subcommands(with_exit_codes);
    let text = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
    if is_leaf { command.after_help(text + help::EXIT_CODES) } else { command }
}

fn run(cli: Cli) -> ExitCode {
    let serve = ServeArgs { flags: cli.flags, ..ServeArgs::default() };
    match cli.action.unwrap_or(Action::Serve(serve)) {
        Action::Serve(args) => with_settings(&args.flags, |settings| run_server(&args, settings)),
        Action::Subscribe(args) => exit_code(subscribe::run(&args)),
        Action::Push(args) => exit_code(push::run(&args)),
        Action::Init(args) => match init::run(&args) {
            Err(error @ (InitError::Settings(_) | InitError::NoAnswer | InitError::Config)) => {
                wrong(&error)
            }
            written => exit_code(written),
        },
        Action::Health(args) => {
            with_settings(&args.flags, |settings| exit_code(health::run(&args, settings)))
        }
        Action::Doctor(args) => {
            with_settings(&args.flags, |settings| exit_code(doctor::run(&args, settings)))
        }
        Action::Preflight { flags } => run_admin((Request::Preflight, flags)),
        Action::Tables(action) => run_admin(action.into_request()),
        Action::Users(action) => run_admin(action.into_request()),
        Action::Access(AccessAction::Token(action)) => run_admin(action.into_request()),
        Action::Access(AccessAction::Operator { flags }) => {
            with_settings(&flags, |settings| exit_code(admin::operator_link::run(settings)))
        }
        Action::Nodes(OnStore { args, flags }) => run_admin((Request::Nodes(args), flags)),
        Action::Inspect(of) => with_settings(&of.flags, |settings| inspect(&of.args, settings)),
        Action::Import(action) => run_admin(action.into_request()),
        Action::Store(action) => run_admin(action.into_request()),
        Action::Backup(args) => {
            with_settings(&args.flags, |settings| exit_code(backup::create::run(&args, settings)))
        }
        Action::Restore(args) => {
            with_settings(&args.flags, |settings| exit_code(backup::restore::run(&args, settings)))
        }
        Action::Feed(action) => {
            let flags = action.flags().clone();
            with_settings(&flags, |settings| exit_code(feed_cli::run(action, settings)))
        }
        Action::Broadcast(action) => {
            let flags = action.flags().clone();
            with_settings(&flags, |settings| exit_code(feed_cli::run_broadcast(action, settings)))
        }
        Action::Keys(KeysAction::Generate) => exit_code(print(&keys::generate())),
        Action::Keys(KeysAction::Cluster { flags }) => {
            with_settings(&flags, |settings| exit_code(keys::add::run(settings, KeyList::Cluster)))
        }
        Action::Keys(KeysAction::Auth { flags }) => {
            with_settings(&flags, |settings| exit_code(keys::add::run(settings, KeyList::Auth)))
        }
        Action::Keys(KeysAction::Vapid { file, private }) => {
            exit_code(vapid_key(&file, private).and_then(|text| print(&text)))
        }
        Action::Completions { shell } => exit_code(shell::print_completions(shell, command())),
        Action::Dev(action) => run_dev(action),
    }
}

fn run_dev(action: DevAction) -> ExitCode {
    match action {
        DevAction::Replay { files, write: true, .. } => exit_code(replay::write(&files)),
        DevAction::Replay { files, trace, json, .. } => {
            let output = match (trace, json) {
                (true, _) => Output::Trace,
                (_, true) => Output::Json,
                (false, false) => Output::Result,
            };
            exit_code(replay::run_all(&files, output))
        }
        DevAction::View { files, output } => exit_code(view::run(&files, output.as_deref())),
        DevAction::Man { dir } => exit_code(shell::write_pages(&dir, command())),
        DevAction::States { format } => exit_code(states::run(format)),
    }
}

/// Calls `run` with the settings.
fn with_settings(flags: &Flags, run: impl FnOnce(&Settings) -> ExitCode) -> ExitCode {
    // The token of `kalends feed --url` is no setting, and may be set in any environment.
    let variables = std::env::vars_os().filter(|(name, _)| name != TOKEN_VARIABLE);
    match Settings::load(flags, variables) {
        Ok(settings) => {
            if settings.allow_unsynced_data_dir {
                tolerate_unsynced();
            }
            run(&settings)
        }
        Err(error) => wrong(&error),
    }
}

fn run_server(args: &ServeArgs, settings: &Settings) -> ExitCode {
    if let Err(problem) = settings.check(args.role) {
        return wrong(&problem);
    }
    match server::run(args.role, settings, args.dev.clock_offset_s) {
        Err(error) if error.is_of_configuration() => wrong(&error),
        served => exit_code(served),
    }
}

fn run_admin((request, flags): (Request, Flags)) -> ExitCode {
    with_settings(&flags, |settings| exit_code(admin::command::run(request, settings)))
}

/// The token is decoded here, so that a server learns no endpoint that is not its own.
fn inspect(args: &InspectArgs, settings: &Settings) -> ExitCode {
    match args.target.decode(|| keys::Keys::load(&settings.data_dir)) {
        Ok(subject) => {
            let request = Request::Inspect(Inspect { subject, json: args.json });
            exit_code(admin::command::run(request, settings))
        }
        Err(error) => exit_code(Err(error)),
    }
}

/// The public key in base64url, and on a second line the private key if requested.
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

/// Prints an error of usage; the exit code is 2.
fn wrong(error: &dyn Display) -> ExitCode {
    eprint(error);
    ExitCode::from(2)
}

/// If standard error is closed, the exit code alone reports the failure.
fn eprint(error: &dyn Display) {
    let _ = writeln!(stderr(), "kalends: {error}");
}
