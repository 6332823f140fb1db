//! The command line: what can be said, and what is called then.
//!
//! Exit codes: 0 when it went well, 1 when it failed, 2 when it was not said rightly (an unknown
//! flag, a bad setting).

use std::fmt::Display;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::settings::{Flags, Settings};
use crate::tools::listen::{self, ListenArgs};
use crate::tools::push::{self, PushArgs};
use crate::tools::vapid_key::VapidKey;
use crate::tools::{ToolError, to_base64url};
use crate::{keys, replay, serve, states};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "kalends", version, about, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; without it, serve.
    #[command(subcommand)]
    pub action: Option<Action>,

    /// Settings of `kalends` without a command.
    #[command(flatten)]
    pub flags: Flags,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run the server; `kalends` alone does the same
    #[command(after_help = SERVE_HELP)]
    Serve(Flags),
    /// Be a user agent: subscribe, and print what is sent
    #[command(after_help = LISTEN_HELP)]
    Listen(ListenArgs),
    /// Be an application server: send one message
    #[command(after_help = PUSH_HELP)]
    Push(PushArgs),
    /// Make keys
    #[command(subcommand)]
    Keys(KeysAction),
    /// Run a session transcript through the state machine
    #[command(after_help = REPLAY_HELP)]
    Replay {
        /// The transcript, a `.session` file as in fixtures/sessions
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
    /// The server makes its first key by itself. To change keys, put a new one in front of the
    /// list and keep the old ones: endpoints that were handed out are sealed with them.
    Generate,
    /// Make a VAPID key in FILE, or read the one there, and print its public key
    ///
    /// An application server signs its pushes with it (`kalends push --vapid-key FILE`), and a
    /// subscription can be restricted to its public key.
    Vapid {
        /// A PEM file; made with mode 0600
        file: PathBuf,
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

const EXAMPLES: &str = "\
Examples:
  kalends                                        serve on 127.0.0.1:8080, data in ./kalends-data
  kalends listen --subscription sub.json         in a second terminal: be a user agent
  kalends push --subscription sub.json -m hello  in a third: send to it
  kalends serve --help                           all settings";

const SERVE_HELP: &str = "\
Each setting can also be given as a line of the --config file (listen = \"0.0.0.0:8080\") or in the
environment (KALENDS_LISTEN=0.0.0.0:8080). A flag wins over the environment, that over the file.

Examples:
  kalends serve --data-dir /var/lib/kalends --listen 0.0.0.0:8080
  kalends serve --config /etc/kalends.toml --public-url https://push.example.net";

const LISTEN_HELP: &str = "\
Examples:
  kalends listen                                 a new agent on ws://127.0.0.1:8080/
  kalends listen wss://push.example.net/ --state agent.json
                                                 the same agent every time
  kalends listen --subscription sub.json --count 1
                                                 end after one message
  kalends listen --vapid-public-key \"$(kalends keys vapid vapid.pem)\"
                                                 take messages signed with that key only";

const PUSH_HELP: &str = "\
Examples:
  kalends push --subscription sub.json --message hello
  kalends push --subscription sub.json --vapid-key vapid.pem --sub mailto:me@example.net < file
  kalends push https://push.example.net/wpush/TOKEN --message ''
                                                 wake the agent, without a message";

const REPLAY_HELP: &str = "\
Example:
  kalends replay fixtures/sessions/hello.session --trace";

/// Reads the command line, does what it says, and gives the exit code.
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => run(cli),
        Err(error) => error.exit(),
    }
}

/// The definition. The help of `kalends` alone shows the settings one begins with, that of `kalends
/// serve` all of them.
fn command() -> Command {
    const FIRST: [&str; 6] = ["config", "data_dir", "listen", "public_url", "help", "version"];
    Cli::command().mut_args(|arg| {
        let is_first = FIRST.contains(&arg.get_id().as_str());
        arg.hide(!is_first)
    })
}

fn run(cli: Cli) -> ExitCode {
    match cli.action.unwrap_or(Action::Serve(cli.flags)) {
        Action::Serve(flags) => run_server(&flags),
        Action::Listen(args) => exit_code(listen::run(&args)),
        Action::Push(args) => exit_code(push::run(&args)),
        Action::Keys(KeysAction::Generate) => exit_code(print(&keys::generate())),
        Action::Keys(KeysAction::Vapid { file }) => exit_code(print_vapid_key(&file)),
        Action::Replay { file, trace } => exit_code(replay::run(&file, trace)),
        Action::States { format } => exit_code(states::run(format)),
    }
}

fn run_server(flags: &Flags) -> ExitCode {
    match Settings::load(flags, std::env::vars_os()) {
        Ok(settings) => exit_code(serve::run(&settings)),
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn print_vapid_key(file: &Path) -> Result<(), ToolError> {
    let key = VapidKey::load_or_make(file)?;
    print(&to_base64url(key.pair.public()))
}

fn print(text: &str) -> Result<(), ToolError> {
    Ok(writeln!(stdout(), "{text}")?)
}

fn exit_code<E: Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Where standard error is closed there is nobody to tell; the exit code still does.
fn complain(error: &dyn Display) {
    let _nobody_there = writeln!(stderr(), "kalends: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        let args = ["kalends"].iter().chain(args);
        Cli::from_arg_matches(&command().try_get_matches_from(args)?)
    }

    fn help(args: &[&str]) -> String {
        parse(args).unwrap_err().to_string()
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn without_a_command_it_serves_with_the_flags_of_serve() {
        let cli = parse(&["--listen", "[::1]:1"]).unwrap();
        assert!(cli.action.is_none());
        let Some(Action::Serve(flags)) = parse(&["serve", "--listen", "[::1]:1"]).unwrap().action
        else {
            panic!("expected serve");
        };
        assert_eq!(flags, cli.flags);
        assert_eq!(parse(&[]).unwrap().flags, Flags::default());
    }

    #[test]
    fn flags_before_a_command_are_refused() {
        assert!(parse(&["--listen", "[::1]:1", "serve"]).is_err());
    }

    #[test]
    fn each_command_is_understood() {
        assert!(matches!(
            parse(&["replay", "a.session", "--trace"]).unwrap().action,
            Some(Action::Replay { trace: true, .. })
        ));
        assert!(matches!(
            parse(&["states", "--format", "dot"]).unwrap().action,
            Some(Action::States { format: StatesFormat::Dot })
        ));
        assert!(matches!(
            parse(&["keys", "generate"]).unwrap().action,
            Some(Action::Keys(KeysAction::Generate))
        ));
        let Some(Action::Listen(args)) = parse(&["listen", "https://a", "--json"]).unwrap().action
        else {
            panic!("expected listen");
        };
        assert_eq!((args.url.as_str(), args.json), ("wss://a/", true));
    }

    #[test]
    fn a_push_needs_a_place_to_go_and_both_keys_or_none() {
        for wrong in [
            ["push", "--message", "x"].as_slice(),
            &["push", "http://a", "--subscription", "s"],
            &["push", "http://a", "--p256dh", "x"],
            &["push", "http://a", "--auth", "x"],
            &["push", "http://a", "--message", "x", "--file", "x"],
            &["push", "http://a", "--no-vapid", "--vapid-key", "x"],
            &["push", "http://a", "--urgency", "soon"],
            &["push", "nowhere"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["push", "http://a", "--p256dh=-x", "--auth", "-y", "-m", "-"]).is_ok());
        assert!(parse(&["push", "--subscription", "s", "--urgency", "very-low"]).is_ok());
    }

    #[test]
    fn a_listener_refuses_what_is_no_server_and_no_key() {
        for wrong in [
            ["listen", "ftp://a"].as_slice(),
            &["listen", "127.0.0.1:8080"],
            &["listen", "--vapid-public-key", "BCVx"],
            &["listen", "--count", "0"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_first_help_is_short_and_that_of_serve_has_every_setting() {
        let (first, serve) = (help(&["-h"]), help(&["serve", "-h"]));
        assert!(first.contains("--listen") && !first.contains("--ttl-max-s"), "{first}");
        assert!(first.contains("kalends push --subscription sub.json"));
        for setting in crate::settings::table::Setting::all() {
            let flag = crate::settings::sources::flag_name(setting.name);
            assert!(serve.contains(&flag), "{flag}");
        }
        assert!(help(&["serve", "--help"]).contains("Default: 5000 ms, from 1 to 600000"));
    }

    #[test]
    fn wrong_usage_is_told_apart_from_help_by_its_exit_code() {
        assert_eq!(parse(&["--nonsense"]).unwrap_err().exit_code(), 2);
        assert_eq!(parse(&["--help"]).unwrap_err().exit_code(), 0);
        assert_eq!(parse(&["--version"]).unwrap_err().exit_code(), 0);
    }
}
