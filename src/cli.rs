//! The command line: what can be said, and what is called then.
//!
//! Exit codes: 0 when it went well, 1 when it failed, 2 when it was not said rightly (an unknown
//! flag, a bad setting).

mod help;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::admin::args::{Asked, with_short_help};
use crate::admin::{self, Preflight, TablesAction, UsersAction};
use crate::feed_cli::remote::TOKEN_VARIABLE;
use crate::feed_cli::{self, BroadcastAction, FeedAction};
use crate::serve::DevArgs;
use crate::settings::sources::{flag_name, is_near};
use crate::settings::table::Setting;
use crate::settings::value::Shape;
use crate::settings::{Flags, Settings};
use crate::tools::listen::{self, ListenArgs};
use crate::tools::push::{self, PushArgs};
use crate::tools::vapid_key::VapidKey;
use crate::tools::{ToolError, to_base64url};
use crate::{keys, replay, serve, states};

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

/// What `kalends serve` is told.
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
    Preflight(Preflight),
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
    let is_switch = |setting: &Setting| setting.shape == Shape::Switch;
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
    ["tables", "users", "feed", "broadcast"].into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |actions| actions.mut_subcommands(with_short_help))
    })
}

fn run(cli: Cli) -> ExitCode {
    let serve = ServeArgs { flags: cli.flags, ..ServeArgs::default() };
    match cli.action.unwrap_or(Action::Serve(serve)) {
        Action::Serve(args) => run_server(&args),
        Action::Listen(args) => exit_code(listen::run(&args)),
        Action::Push(args) => exit_code(push::run(&args)),
        Action::Preflight(preflight) => run_admin(preflight.asked()),
        Action::Tables(action) => run_admin(action.asked()),
        Action::Users(action) => run_admin(action.asked()),
        Action::Feed(action) => run_feed(action),
        Action::Broadcast(action) => run_broadcast(action),
        Action::Keys(KeysAction::Generate) => exit_code(print(&keys::generate())),
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
    // What is no setting and is meant for `kalends feed --url` may be in anybody's environment.
    let variables = std::env::vars_os().filter(|(name, _)| name != TOKEN_VARIABLE);
    match Settings::load(flags, variables) {
        Ok(settings) => exit_code(run(&settings)),
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn run_server(ServeArgs { flags, dev }: &ServeArgs) -> ExitCode {
    with_settings(flags, |settings| serve::run(settings, *dev))
}

fn run_admin(Asked { request, flags, is_json }: Asked) -> ExitCode {
    with_settings(&flags, |settings| admin::command::run(request, settings, is_json))
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
        let words: Vec<_> = ["kalends"].iter().chain(args).map(OsString::from).collect();
        super::parse(&words)
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
        let Some(Action::Serve(args)) = parse(&["serve", "--listen", "[::1]:1"]).unwrap().action
        else {
            panic!("expected serve");
        };
        assert_eq!(args.flags, cli.flags);
        assert_eq!(parse(&[]).unwrap().flags, Flags::default());
    }

    #[test]
    fn flags_before_a_command_are_refused() {
        assert!(parse(&["--listen", "[::1]:1", "serve"]).is_err());
    }

    #[test]
    fn a_shifted_clock_is_for_developers_who_say_so() {
        let dev = |args: &[&str]| match parse(args).map(|cli| cli.action) {
            Ok(Some(Action::Serve(args))) => Some(args.dev),
            _ => None,
        };
        let shifted = DevArgs { dev: true, clock_offset_s: -86_400 };
        assert_eq!(dev(&["serve", "--dev", "--clock-offset-s", "-86400"]), Some(shifted));
        assert_eq!(dev(&["serve"]), Some(DevArgs::default()));
        let error = parse(&["serve", "--clock-offset-s", "5"]).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("--dev"), "{error}");
        assert!(parse(&["--dev", "--clock-offset-s", "5"]).is_err());
        assert!(!help(&["serve", "--help"]).contains("--clock-offset-s"));
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
        for setting in Setting::all() {
            let flag = flag_name(setting.name);
            assert!(serve.contains(&flag), "{flag}");
        }
        assert!(help(&["serve", "--help"]).contains("Default: 5000 ms, from 1 to 600000"));
    }

    #[test]
    fn the_help_of_a_command_shows_the_settings_that_it_has_to_do_with() {
        let flags = |line: &str| {
            let help = help(&line.split(' ').collect::<Vec<_>>());
            let settings = Setting::all().map(|setting| flag_name(setting.name));
            settings.filter(|flag| help.contains(&format!("{flag} "))).collect::<Vec<_>>()
        };
        for ask in ["-h", "--help"] {
            let token = flags(&format!("feed token {ask}"));
            assert_eq!(token, ["--data-dir", "--feed-tokens-epoch"]);
            for put in ["feed put", "broadcast put"] {
                let shown = flags(&format!("{put} {ask}"));
                for flag in ["--data-dir", "--store", "--feed-keys-max", "--feed-value-bytes-max"] {
                    assert!(shown.iter().any(|shown| shown == flag), "{put} {ask}: {flag}");
                }
            }
            assert!(!flags(&format!("feed list {ask}")).iter().any(|flag| flag.contains("-feed-")));
        }
        let token = parse(&["feed", "token", "f", "--read", "--dynamodb-region", "x"]);
        assert!(token.is_ok(), "what is hidden is taken");
    }

    /// The help of every command, short and long.
    fn helps(mut command: Command) -> String {
        let own = format!("{}\n{}\n", command.render_help(), command.render_long_help());
        command.get_subcommands().cloned().fold(own, |text, command| text + &helps(command))
    }

    #[test]
    fn every_file_of_the_repository_that_a_help_names_is_there() {
        let helps = helps(command());
        let files: Vec<_> = helps
            .split_whitespace()
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
            .filter(|word| word.starts_with("fixtures/") || word.starts_with("docs/"))
            .collect();
        for expected in ["fixtures/sessions/hello_of_a_new_agent.session", "docs/kalends.toml"] {
            assert!(files.contains(&expected), "{files:?}");
        }
        for file in files {
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{file}");
        }
    }

    #[test]
    fn an_example_that_listens_to_the_world_says_where_the_world_finds_it() {
        let examples = help::SERVE.split("Examples:").nth(1).unwrap().replace("\\\n", "");
        let open: Vec<_> = examples.lines().filter(|line| line.contains("0.0.0.0")).collect();
        assert!(!open.is_empty() && open.iter().all(|line| line.contains("--public-url https://")));
    }

    #[test]
    fn an_unknown_flag_is_answered_with_a_known_one_only_where_they_are_near() {
        assert!(help(&["serve", "--public-uri", "x"]).contains("'--public-url'"));
        let error = help(&["serve", "--tls-cert", "x"]);
        assert!(error.contains("'--tls-cert'") && error.contains("try '--help'"), "{error}");
        assert!(!error.contains("similar") && !error.contains("--tcp"), "{error}");
    }

    #[test]
    fn a_switch_with_its_value_behind_a_space_is_refused_with_how_to_write_it() {
        for args in [["serve", "--rotation", "false"].as_slice(), &["--rotation", "false"]] {
            let error = parse(args).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("tip: write `--rotation=false`"), "{error}");
        }
        assert!(!help(&["serve", "--rotation", "x"]).contains("write `"));
    }

    #[test]
    fn a_private_vapid_key_is_printed_only_where_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vapid.pem");
        let public = vapid_key(&path, false).unwrap();
        let both = vapid_key(&path, true).unwrap();
        let private = both.strip_prefix(&format!("{public}\n")).unwrap();
        let bare = dir.path().join("bare");
        std::fs::write(&bare, private).unwrap();
        assert_eq!(vapid_key(&bare, false).unwrap(), public);

        let args = ["keys", "vapid", "vapid.pem", "--private"];
        assert!(matches!(
            parse(&args).unwrap().action,
            Some(Action::Keys(KeysAction::Vapid { private: true, .. }))
        ));
    }

    #[test]
    fn wrong_usage_is_told_apart_from_help_by_its_exit_code() {
        assert_eq!(parse(&["--nonsense"]).unwrap_err().exit_code(), 2);
        assert_eq!(parse(&["--help"]).unwrap_err().exit_code(), 0);
        assert_eq!(parse(&["--version"]).unwrap_err().exit_code(), 0);
    }
}
