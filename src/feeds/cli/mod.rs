//! `kalends feed` and `kalends broadcast`.
//!
//! On a store, or through the server that holds it, they are commands of [`admin`](crate::operate::admin); with `--url` they are HTTP
//! requests to a server anywhere.
//!
//! - [`args`], [`help`]: the command line.
//! - [`value`]: the value of `feed put`.
//! - [`tail`]: updates of a store or through its server; [`tail_url`]: updates over HTTP.
//! - [`stdout_closed`]: detects that the reader of the output is gone.
//! - [`remote`]: the HTTP requests.
//! - [`token`]: makes tokens for them.

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
use args::{Keyed, Put};
use remote::Remote;
use state_machine::feed::FeedName;

use crate::operate::admin::command;
use crate::operate::admin::command::AdminError;
use crate::operate::admin::commands::{FeedPut, KeyArgs, Request};
use crate::settings::Settings;
use crate::settings::keys::KeysError;
use crate::system::https_client::ClientError;

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum FeedCliError {
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// Standard input or output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An argument or variable is wrong: the reason, and what to do.
    #[error("{0}")]
    Unusable(String),
}

pub fn run(action: FeedAction, settings: &Settings) -> Result<(), FeedCliError> {
    match action {
        FeedAction::Put(Put { keyed, value }) => put(keyed, value.as_deref(), settings),
        FeedAction::Delete(Keyed { url: Some(url), of: KeyArgs { feed, key }, .. }) => {
            let version = Remote::at(&url)?.delete(&feed, &key)?;
            print(format_args!("deleted {key} of {feed}, its version is {version}"))
        }
        FeedAction::Delete(Keyed { of, .. }) => admin(Request::FeedDelete(of), settings),
        FeedAction::Republish(Keyed { url: Some(url), of: KeyArgs { feed, key }, .. }) => {
            let version = Remote::at(&url)?.republish(&feed, &key)?;
            print(format_args!("{key} of {feed} gets a new number, its version is {version}"))
        }
        FeedAction::Republish(Keyed { of, .. }) => admin(Request::FeedRepublish(of), settings),
        FeedAction::List(list) => admin(Request::FeedList(list.args), settings),
        FeedAction::Tail(tail) => tail::run(&tail, settings),
        FeedAction::Token(token) => token::run(&token, settings),
    }
}

pub fn run_broadcast(action: BroadcastAction, settings: &Settings) -> Result<(), FeedCliError> {
    let request = match action {
        BroadcastAction::Put(put) => {
            let of = KeyArgs { feed: FeedName::broadcasts(), key: put.id };
            Request::FeedPut(FeedPut { of, value: put.version })
        }
        BroadcastAction::List(list) => Request::BroadcastList(list.args),
    };
    admin(request, settings)
}

fn put(keyed: Keyed, value: Option<&str>, settings: &Settings) -> Result<(), FeedCliError> {
    let value = value::read(value)?;
    let Keyed { of, url, .. } = keyed;
    if let Some(url) = url {
        let KeyArgs { feed, key } = of;
        let version = Remote::at(&url)?.put(&feed, &key, &value)?;
        return print(format_args!("wrote {key} of {feed}, its version is {version}"));
    }
    admin(Request::FeedPut(FeedPut { of, value }), settings)
}

fn admin(request: Request, settings: &Settings) -> Result<(), FeedCliError> {
    Ok(command::run(request, settings)?)
}

fn print(text: fmt::Arguments<'_>) -> Result<(), FeedCliError> {
    Ok(writeln!(stdout(), "{text}")?)
}
