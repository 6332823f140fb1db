//! The command line: the list of commands, and what is done about wrong usage.
//!
//! Exit codes: 0 on success, 1 on failure, 2 on wrong usage (an unknown flag, a bad setting).

#[cfg(test)]
mod socket_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unkind_tests;

use std::borrow::Cow;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, Command as Grammar, FromArgMatches};

use crate::command::entry::Entry;
use crate::command::{Command, Commands};
use crate::dev;
use crate::dev::{man, push, replay, states, subscribe, view};
use crate::feeds::cli as feeds;
use crate::operate::{
    access, backup, check_config, completions, doctor, health, import, init, inspect, keys, nodes,
    preflight, refusals, status, store_copy, tables, users,
};
use crate::server::serve::Serve;
use crate::settings::setting::Setting;
use crate::settings::sources::{flag_name, is_near};
use crate::settings::value::TomlKind;
use crate::settings::{Flags, renamed};
use crate::system::build::Build;
use crate::system::parent;

/// All commands, in the order of the help.
const COMMANDS: Commands = Commands {
    grammar,
    entries: &[
        Entry::of::<Serve>(),
        Entry::of::<subscribe::SubscribeArgs>(),
        Entry::of::<push::PushArgs>(),
        Entry::of::<keys::Generate>(),
        Entry::of::<keys::Cluster>(),
        Entry::of::<keys::Auth>(),
        Entry::of::<keys::Vapid>(),
        Entry::of::<init::Init>(),
        Entry::of::<health::Health>(),
        Entry::of::<doctor::command::Doctor>(),
        Entry::of::<check_config::CheckConfig>(),
        Entry::on_store::<preflight::Preflight>(),
        Entry::on_store::<tables::list::List>(),
        Entry::on_store::<tables::status::GetStatus>(),
        Entry::on_store::<tables::create::Create>(),
        Entry::on_store::<tables::drop_old::DropOld>(),
        Entry::on_store::<tables::copy::Copy>(),
        Entry::on_store::<tables::drop::Drop>(),
        Entry::on_store::<users::drop_inactive::DropInactive>(),
        Entry::on_store::<users::drop::DropUser>(),
        Entry::on_store::<users::repair::Repair>(),
        Entry::on_store::<inspect::command::Inspect>(),
        Entry::on_store::<refusals::ListRefusals>(),
        Entry::on_store::<status::Status>(),
        Entry::on_store::<nodes::command::ListNodes>(),
        Entry::alone::<import::autopush_redis::ImportRedis>(),
        #[cfg(feature = "postgresql")]
        Entry::alone::<import::autopush_postgresql::ImportPostgres>(),
        Entry::alone::<store_copy::copy::StoreCopy>(),
        Entry::on_store::<store_copy::repair::StoreRepair>(),
        Entry::on_store::<access::add::AccessAdd>(),
        Entry::on_store::<access::list::AccessList>(),
        Entry::on_store::<access::rotate::AccessRotate>(),
        Entry::on_store::<access::revoke::AccessRevoke>(),
        Entry::of::<access::operator::Operator>(),
        Entry::on_store::<backup::create::Backup>(),
        Entry::of::<backup::restore::Restore>(),
        Entry::on_store::<feeds::put::Put>(),
        Entry::on_store::<feeds::delete::Delete>(),
        Entry::on_store::<feeds::republish::Republish>(),
        Entry::on_store::<feeds::list::FeedList>(),
        Entry::on_store::<feeds::tail::FeedTail>(),
        Entry::of::<feeds::token::Token>(),
        Entry::on_store::<feeds::broadcast_put::BroadcastPut>(),
        Entry::on_store::<feeds::broadcast_list::BroadcastList>(),
        Entry::of::<completions::Completions>(),
        Entry::of::<replay::Replay>(),
        Entry::of::<view::View>(),
        Entry::of::<man::Man>(),
        Entry::of::<states::States>(),
    ],
    groups: &[
        keys::GROUP,
        tables::GROUP,
        users::GROUP,
        import::GROUP,
        store_copy::GROUP,
        access::GROUP,
        feeds::FEED,
        feeds::BROADCAST,
        dev::GROUP,
    ],
};

const EXAMPLES: &str = "\
Examples:
  kalends                                        serve on 127.0.0.1:8080, data in ./kalends-data
  kalends subscribe --subscription sub.json      in a second terminal: act as a user agent
  kalends push --subscription sub.json -m hello  in a third: send it a message
  kalends serve --help                           all settings";

/// Runs the command of this process and returns its exit code.
pub fn main() -> ExitCode {
    parent::note();
    let words: Vec<_> = std::env::args_os().collect();
    let matches = parse(&words).unwrap_or_else(|error| error.exit());
    let done = COMMANDS.run(&matches).unwrap_or_else(|| {
        // Without a command, the server runs.
        let flags = Flags::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        Serve { flags, ..Serve::default() }.run(COMMANDS)
    });
    done.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

fn parse(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let matches = grammar().try_get_matches_from(words);
    matches.map_err(|error| with_tip(without_guess(error), words))
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
    let order = || (error.kind() == ErrorKind::ArgumentConflict).then(|| order_tip(&words))?;
    let tip =
        renamed::command(&words).or_else(|| words.iter().find_map(|word| renamed::flag(word)));
    let tip = tip.or_else(order);
    if let Some(tip) = tip.or_else(switch).filter(|_| error.use_stderr()) {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The tip for flags before a command.
fn order_tip(words: &[Cow<'_, str>]) -> Option<String> {
    let grammar = grammar();
    let at = words.iter().position(|word| grammar.find_subcommand(&**word).is_some());
    let (flags, command) = words.split_at(at.filter(|at| *at > 0)?);
    let command = command.join(" ");
    Some(format!("write flags after the command: `kalends {command} {}`", flags.join(" ")))
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
fn grammar() -> Grammar {
    const FIRST: [&str; 6] = ["config", "data_dir", "listen", "public_url", "help", "version"];
    let grammar = Grammar::new("kalends")
        .version(Build::TEXT)
        .after_help(EXAMPLES)
        .args_conflicts_with_subcommands(true);
    let grammar = Flags::augment_args(grammar).about(env!("CARGO_PKG_DESCRIPTION"));
    let grammar = grammar.mut_args(|arg| {
        let is_first = FIRST.contains(&arg.get_id().as_str());
        arg.hide(!is_first)
    });
    COMMANDS.add_to(grammar)
}
