//! `kalends feed token`: makes the token with which another program uses one feed over HTTP.

use std::io::{Write, stderr, stdout};

use state_machine::Span;
use storage::Embedded;

use super::FeedCliError;
use super::args::Token;
use crate::feeds::http::tokens::{FeedTokens, Grant, Scopes};
use crate::operate::admin::command::AdminError;
use crate::settings::keys::{Keys, KeysError};
use crate::settings::{Settings, StoreKind};
use crate::system::clock::unix_now;

const DAY: Span = Span::from_secs(24 * 60 * 60);

/// Prints a token, and its use on standard error.
pub fn run(args: &Token, settings: &Settings) -> Result<(), FeedCliError> {
    let Token { feed, days, .. } = args;
    let scopes = scopes(args);
    let expires = days.map(|days| unix_now() + Span(DAY.0 * days));
    let keys = Keys::load(&settings.data_dir).map_err(|error| explained(error, settings))?;
    let tokens = FeedTokens::derive(&keys, settings.feed_tokens_epoch);
    let token = tokens.mint(&Grant { feed: feed.clone(), scopes, expires });
    writeln!(stdout(), "{token}")?;
    // Standard error may be closed.
    let _ = writeln!(stderr(), "{}", use_of(args, scopes));
    Ok(())
}

/// Missing keys are lost only if there is a store that they belong to.
fn explained(error: KeysError, settings: &Settings) -> FeedCliError {
    match (error, settings.store) {
        (KeysError::Missing { path }, StoreKind::DynamoDb) => FeedCliError::Unusable(format!(
            "{} does not exist: name the data directory of a server with --data-dir, or start one, \
             which makes it; where other servers run, copy the keys.toml of one of them",
            path.display()
        )),
        (KeysError::Missing { .. }, StoreKind::Embedded)
            if !Embedded::exists(&settings.data_dir) =>
        {
            AdminError::NoStore { dir: settings.data_dir.clone() }.into()
        }
        (error, _) => error.into(),
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
