//! `kalends feed` and `kalends broadcast`.
//!
//! With the store of this machine, or through the server that has it, they are [`admin`] requests like any other; with
//! `--url` they are requests over HTTP to a server anywhere.
//!
//! - [`args`], [`help`]: the command line.
//! - [`value`]: what a key is set to.
//! - [`tail`]: a feed's updates through a store or its server; [`tail_url`]: the same over HTTP.
//! - [`stdout_closed`]: whether anybody reads them.
//! - [`remote`]: a server's feeds over HTTP.
//! - [`token`]: tokens for that.

pub mod args;
pub mod help;
pub mod remote;
pub mod stdout_closed;
pub mod tail;
pub mod tail_url;
pub mod token;
pub mod value;

use std::fmt;
use std::io::{self, Write, stdout};

pub use args::{BroadcastAction, FeedAction};
use args::{Keyed, Put, Tail};
use remote::Remote;

use crate::admin;
use crate::admin::command::AdminError;
use crate::admin::cursor_file::CursorError;
use crate::admin::feed::{FeedPut, Key, KeyArgs, Name, Value};
use crate::admin::request::Request;
use crate::dev::ToolError;
use crate::keys::KeysError;
use crate::settings::Settings;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum FeedCliError {
    /// The store or its server did not do it.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A server at a URL did not do it.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// There are no keys to make a token with.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A cursor is not known or not kept.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// Standard input could not be read or standard output not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It was not said rightly. Says what to do.
    #[error("{0}")]
    Unusable(String),
}

/// Does `kalends feed`.
pub fn run(action: FeedAction, settings: &Settings) -> Result<(), FeedCliError> {
    match action {
        FeedAction::Put(Put { keyed, value, .. }) => put(keyed, value.as_deref(), settings),
        FeedAction::Delete(Keyed { url: Some(url), feed, key, .. }) => {
            let version = Remote::at(&url)?.delete(&feed, &key)?;
            say(format_args!("deleted {key} of {feed}, its version is {version}"))
        }
        FeedAction::Delete(Keyed { feed, key, .. }) => {
            ask(Request::FeedDelete(of(feed, key)), settings, false)
        }
        FeedAction::Republish(Keyed { url: Some(url), feed, key, .. }) => {
            let version = Remote::at(&url)?.republish(&feed, &key)?;
            say(format_args!("{key} of {feed} gets a new number, its version is {version}"))
        }
        FeedAction::Republish(Keyed { feed, key, .. }) => {
            ask(Request::FeedRepublish(of(feed, key)), settings, false)
        }
        FeedAction::List(look) => ask(Request::FeedList, settings, look.json),
        FeedAction::Tail(Tail { url: Some(url), what, .. }) => tail_url::run(&what, &url),
        FeedAction::Tail(Tail { what, .. }) => tail::run(&what, settings),
        FeedAction::Token(asked) => token::run(&asked, settings),
    }
}

/// Does `kalends broadcast`.
pub fn run_broadcast(action: BroadcastAction, settings: &Settings) -> Result<(), FeedCliError> {
    match action {
        BroadcastAction::Put(put) => {
            let feed = Name(state_machine::feed::FeedName::broadcasts());
            let put = FeedPut { feed, key: Key(put.id), value: Value(put.version) };
            ask(Request::FeedPut(put), settings, false)
        }
        BroadcastAction::List(look) => ask(Request::BroadcastList, settings, look.json),
    }
}

fn put(keyed: Keyed, value: Option<&str>, settings: &Settings) -> Result<(), FeedCliError> {
    let value = value::read(value)?;
    let Keyed { feed, key, url, .. } = keyed;
    if let Some(url) = url {
        let version = Remote::at(&url)?.put(&feed, &key, &value)?;
        return say(format_args!("wrote {key} of {feed}, its version is {version}"));
    }
    let put = FeedPut { feed: Name(feed), key: Key(key), value: Value(value) };
    ask(Request::FeedPut(put), settings, false)
}

fn of(feed: state_machine::feed::FeedName, key: state_machine::feed::FeedKey) -> KeyArgs {
    KeyArgs { feed: Name(feed), key: Key(key) }
}

fn ask(request: Request, settings: &Settings, is_json: bool) -> Result<(), FeedCliError> {
    Ok(admin::command::run(request, settings, is_json)?)
}

fn say(text: fmt::Arguments<'_>) -> Result<(), FeedCliError> {
    Ok(writeln!(stdout(), "{text}")?)
}
