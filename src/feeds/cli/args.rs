//! The command line of `kalends feed` and `kalends broadcast`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use state_machine::feed::{FeedKey, FeedName, FeedValue};
use url::Url;

use super::help;
use crate::operate::admin::commands::{FeedTail, KeyArgs, OnStore, ReadOnlyArgs};
use crate::settings::Flags;
use crate::settings::value::{PublicUrl, Value as _};

#[derive(Debug, Subcommand)]
pub enum FeedAction {
    /// Set a key, and publish it
    #[command(after_help = help::PUT)]
    Put(Put),
    /// Delete a key, and publish that
    #[command(after_help = help::DELETE)]
    Delete(Keyed),
    /// Publish a key again with its present value
    #[command(after_help = help::REPUBLISH)]
    Republish(Keyed),
    /// List the feeds: name, greatest number, keys
    #[command(after_help = help::LIST)]
    List(OnStore<ReadOnlyArgs>),
    /// Print a feed's updates as they are published
    #[command(after_help = help::TAIL)]
    Tail(Tail),
    /// Make a token with which other programs can use one feed over HTTP
    #[command(after_help = help::TOKEN)]
    Token(Token),
}

#[derive(Debug, Subcommand)]
pub enum BroadcastAction {
    /// Set the version of a broadcast, and send it to the connected user agents that subscribed to it
    #[command(after_help = help::BROADCAST_PUT)]
    Put(BroadcastPut),
    /// List the broadcasts: id, version
    #[command(after_help = help::BROADCAST_LIST)]
    List(OnStore<ReadOnlyArgs>),
}

#[derive(Debug, Args)]
pub struct Put {
    #[command(flatten)]
    pub keyed: Keyed,
    /// The text to set it to; without it, or with -, standard input is read
    #[arg(allow_negative_numbers = true)]
    pub value: Option<String>,
}

/// A key, and the server or store that holds it.
#[derive(Debug, Args)]
pub struct Keyed {
    #[command(flatten)]
    pub of: KeyArgs,
    /// Use the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow writing
    #[arg(long, value_name = "URL", value_parser = server)]
    pub url: Option<Url>,
    #[command(flatten)]
    pub flags: Flags,
}

#[derive(Debug, Args)]
pub struct Tail {
    #[command(flatten)]
    pub tail: FeedTail,
    /// Keep the number of the last printed update in FILE, and begin behind it. Each update is printed at
    /// least once, also after kill -9: the last ones may be printed again. FILE.lock keeps a second tail away
    #[arg(long, value_name = "FILE")]
    pub cursor_file: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Use the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow reading
    #[arg(long, value_name = "URL", value_parser = server)]
    pub url: Option<Url>,
    #[command(flatten)]
    pub flags: Flags,
}

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

#[derive(Debug, Args)]
pub struct BroadcastPut {
    /// Id of the broadcast, such as remote-settings/monitor_changes
    #[arg(value_parser = FeedKey::parse)]
    pub id: FeedKey,
    /// Its new version: a text without meaning to Kalends
    #[arg(value_parser = FeedValue::parse, allow_negative_numbers = true)]
    pub version: FeedValue,
    #[command(flatten)]
    pub flags: Flags,
}

/// The longest validity of a token with an end, in days: a hundred years.
const DAYS_MAX: u64 = 36_525;

impl FeedAction {
    pub fn flags(&self) -> &Flags {
        match self {
            Self::Put(Put { keyed, .. }) | Self::Delete(keyed) | Self::Republish(keyed) => {
                &keyed.flags
            }
            Self::List(list) => &list.flags,
            Self::Tail(tail) => &tail.flags,
            Self::Token(token) => &token.flags,
        }
    }
}

impl BroadcastAction {
    pub fn flags(&self) -> &Flags {
        match self {
            Self::Put(put) => &put.flags,
            Self::List(list) => &list.flags,
        }
    }
}

/// Parses an origin. A token in the URL would show in the list of processes.
fn server(text: &str) -> Result<Url, String> {
    let url = PublicUrl::parse(text)?;
    Ok(Url::parse(url.as_str()).expect("an origin is a URL"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Feed {
        #[command(subcommand)]
        action: FeedAction,
    }

    #[derive(Debug, Parser)]
    struct Broadcast {
        #[command(subcommand)]
        action: BroadcastAction,
    }

    fn parse(text: &str) -> Result<FeedAction, clap::Error> {
        Feed::try_parse_from(["feed"].into_iter().chain(text.split(' '))).map(|feed| feed.action)
    }

    #[test]
    fn a_value_is_an_argument_or_standard_input() {
        let value = |text: &str| match parse(text).unwrap() {
            FeedAction::Put(put) => put.value,
            other => panic!("{other:?}"),
        };
        assert_eq!(value("put f a/b v --data-dir x"), Some("v".into()));
        assert_eq!(value("put f k --data-dir x"), None);
        assert_eq!(value("put f k -"), Some("-".into()));
        assert_eq!(value("put f k -5"), Some("-5".into()));
        assert_eq!(value("put f k -- --data-dir"), Some("--data-dir".into()));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for wrong in [
            "put",
            "put f",
            "put F k v",
            "put f k v more",
            "put f k v --url ftp://a",
            "put f k v --url https://user:secret@a",
            "put f k v --url https://a/?token=x",
            "tail f --url https://a/v1/feeds",
            "put f k --vale x",
            "delete f",
            "republish f k v",
            "list f",
            "tail f --after -1",
            "tail f --after x",
            "tail f --count 0",
            "tail f --token x",
            "token f --days 0",
            "token f --days 36526",
            "token",
            "token f",
        ] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
        let long = format!("put f {} v", "k".repeat(257));
        assert!(parse(&long).unwrap_err().to_string().contains("a key is 1 to 256 bytes"));
        let broadcast = |words: &[&str]| Broadcast::try_parse_from(words);
        assert!(broadcast(&["broadcast", "put", "a/b"]).is_err());
        let put = broadcast(&["broadcast", "put", "a/b", "\"1\""]).unwrap();
        assert!(matches!(put.action, BroadcastAction::Put(put) if put.version.as_str() == "\"1\""));
    }
}
