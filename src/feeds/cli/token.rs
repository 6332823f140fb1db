//! `kalends feed token`: makes the token with which another program uses one feed over HTTP.

use std::io::{Write, stderr, stdout};
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use state_machine::Span;
use state_machine::feed::FeedName;
use storage::data_dir::has_databases;

use crate::command::{Command, CommandError, Commands, Failure, Shown, load};
use crate::feeds::http::tokens::{FeedTokens, Grant, Scopes};
use crate::settings::keys::{Keys, KeysError};
use crate::settings::{Flags, Settings, StoreKind};
use crate::system::clock::unix_now;

/// The longest validity of a token with an end, in days: a hundred years.
const DAYS_MAX: u64 = 36_525;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("scopes").args(["read", "write"]).multiple(true).required(true))]
pub struct Token {
    /// Name of the feed, which need not exist yet
    #[arg(value_parser = FeedName::parse)]
    pub feed: FeedName,
    /// Allow reading the feed
    #[arg(long)]
    pub read: bool,
    /// Allow setting, deleting and republishing keys
    #[arg(long)]
    pub write: bool,
    /// Let it expire after this many days; without this it is valid until feed_tokens_epoch is raised
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX))]
    pub days: Option<u64>,
    #[command(flatten)]
    pub flags: Flags,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
enum TokenError {
    #[error(
        "{} does not exist: name the data directory of a server with --data-dir, or start one, which makes it; where \
         other servers run, copy the keys.toml of one of them",
        path.display()
    )]
    NoServer { path: PathBuf },
    #[error(transparent)]
    NoStore(CommandError),
    #[error(transparent)]
    Keys(KeysError),
}

const DAY: Span = Span::from_secs(24 * 60 * 60);

impl Command for Token {
    const NAME: &'static str = "feed token";
    const ABOUT: &'static str = "Make a token with which other programs can use one feed over HTTP";
    const HELP: &'static str = "\
Prints the token, which is made from the keys in the data directory and stored nowhere. Its holder can
use that one feed. Raising the setting feed_tokens_epoch revokes all tokens; give this command the
value of the servers, by their --config or by --feed-tokens-epoch.

Examples:
  kalends feed token prices --read --data-dir /var/lib/kalends
  kalends feed token prices --read --write --days 30 --config /etc/kalends/kalends.toml
  curl -H \"Authorization: Bearer $(kalends feed token prices --read --config /etc/kalends/kalends.toml)\" \\
      https://push.example.net/v1/feeds/prices";
    const SETTINGS: Shown = Shown::Only(&["config", "data_dir", "feed_tokens_epoch"]);

    /// Prints a token, and its use on standard error.
    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let (settings, scopes) = (load(&self.flags)?, scopes(&self));
        let expires = self.days.map(|days| unix_now() + Span(DAY.0 * days));
        let keys = Keys::load(&settings.data_dir).map_err(|error| explained(error, &settings))?;
        let tokens = FeedTokens::derive(&keys, settings.feed_tokens_epoch);
        let token = tokens.mint(&Grant { feed: self.feed.clone(), scopes, expires });
        writeln!(stdout(), "{token}")?;
        // Standard error may be closed.
        let _ = writeln!(stderr(), "{}", use_of(&self, scopes));
        Ok(())
    }
}

/// Missing keys are lost only if there is a store that they belong to.
fn explained(error: KeysError, settings: &Settings) -> TokenError {
    match (error, settings.store) {
        (KeysError::Missing { path }, store) if store.is_shared() => TokenError::NoServer { path },
        (KeysError::Missing { .. }, StoreKind::Embedded) if !has_databases(&settings.data_dir) => {
            TokenError::NoStore(CommandError::NoStore { dir: settings.data_dir.clone() })
        }
        (error, _) => TokenError::Keys(error),
    }
}

/// clap makes sure of at least one of the two.
fn scopes(args: &Token) -> Scopes {
    match (args.read, args.write) {
        (true, true) => Scopes::Both,
        (true, false) => Scopes::Read,
        (false, _) => Scopes::Write,
    }
}

fn use_of(args: &Token, scopes: Scopes) -> String {
    let may = match scopes {
        Scopes::Read => "reads",
        Scopes::Write => "writes",
        Scopes::Both => "reads and writes",
    };
    let until = match args.days {
        None => "until feed_tokens_epoch is raised".to_owned(),
        Some(1) => "for a day".to_owned(),
        Some(days) => format!("for {days} days"),
    };
    format!("its holder {may} the feed {}, {until}", args.feed)
}
