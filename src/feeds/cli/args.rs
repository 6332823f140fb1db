//! The command line of `kalends feed` and `kalends broadcast`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use state_machine::feed::{FeedKey, FeedName, FeedTextError, FeedValue};
use url::Url;

use super::help;
use crate::settings::Flags;
use crate::settings::value::{PublicUrl, Value as _};

/// `kalends feed`
#[derive(Debug, Subcommand)]
pub enum FeedAction {
    /// Set a key, and have that published
    #[command(after_help = help::PUT)]
    Put(Put),
    /// Delete a key, and have that published
    #[command(after_help = help::DELETE)]
    Delete(Keyed),
    /// Have a key published again as it is
    #[command(after_help = help::REPUBLISH)]
    Republish(Keyed),
    /// Say which feeds there are: name, greatest number, keys
    #[command(after_help = help::LIST)]
    List(ReadOnlyArgs),
    /// Print a feed's updates as they come
    #[command(after_help = help::TAIL)]
    Tail(Tail),
    /// Make a token with which other programs can use one feed over HTTP
    #[command(after_help = help::TOKEN)]
    Token(Token),
}

/// `kalends broadcast`
#[derive(Debug, Subcommand)]
pub enum BroadcastAction {
    /// Set the version of a broadcast: connected user agents that subscribed to it are told
    #[command(after_help = help::BROADCAST_PUT)]
    Put(BroadcastPut),
    /// Say which broadcasts there are: id, version
    #[command(after_help = help::BROADCAST_LIST)]
    List(ReadOnlyArgs),
}

/// `kalends feed put`
#[derive(Debug, Args)]
pub struct Put {
    /// Which key.
    #[command(flatten)]
    pub keyed: Keyed,
    /// Text it is to hold; without it, or with -, what standard input holds
    #[arg(allow_negative_numbers = true)]
    pub value: Option<String>,
}

/// One key, and where it is.
#[derive(Debug, Args)]
pub struct Keyed {
    /// Name of the feed: 1 to 64 of a-z 0-9 - _
    #[arg(value_parser = feed)]
    pub feed: FeedName,
    /// The key: 1 to 256 bytes of text
    #[arg(value_parser = key)]
    pub key: FeedKey,
    /// Ask the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow it to write
    #[arg(long, value_name = "URL", value_parser = server)]
    pub url: Option<Url>,
    /// The settings that name the store.
    #[command(flatten)]
    pub flags: Flags,
}

/// `kalends feed list`, `kalends broadcast list`
#[derive(Debug, Args)]
pub struct ReadOnlyArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// The settings that name the store.
    #[command(flatten)]
    pub flags: Flags,
}

/// `kalends feed tail`
#[derive(Debug, Args)]
pub struct Tail {
    /// What to print.
    #[command(flatten)]
    pub what: TailWhat,
    /// Ask the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow it to read
    #[arg(long, value_name = "URL", value_parser = server)]
    pub url: Option<Url>,
    /// The settings that name the store.
    #[command(flatten)]
    pub flags: Flags,
}

/// What `kalends feed tail` prints.
#[derive(Debug, Args)]
pub struct TailWhat {
    /// Name of the feed
    #[arg(value_parser = feed)]
    pub feed: FeedName,
    /// Keep the number of the last update that was printed in FILE, and begin behind the one in it. Each
    /// update is printed at least once, whatever is killed: the last ones may be printed again
    #[arg(long, value_name = "FILE")]
    pub cursor_file: Option<PathBuf>,
    /// Begin behind number N; with --cursor-file, only where FILE is not there yet
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// End after N updates
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End when all that is there was printed
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `kalends feed token`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("scopes").args(["read", "write"]).multiple(true).required(true))]
pub struct Token {
    /// Name of the feed, which need not be there yet
    #[arg(value_parser = feed)]
    pub feed: FeedName,
    /// Allow to read the feed
    #[arg(long)]
    pub read: bool,
    /// Allow to set, delete and republish keys
    #[arg(long)]
    pub write: bool,
    /// Let it expire after so many days; without this it is good until feed_tokens_epoch is raised
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX))]
    pub days: Option<u64>,
    /// The settings that name the keys.
    #[command(flatten)]
    pub flags: Flags,
}

/// `kalends broadcast put`
#[derive(Debug, Args)]
pub struct BroadcastPut {
    /// Id of the broadcast, such as remote-settings/monitor_changes
    #[arg(value_parser = key)]
    pub id: FeedKey,
    /// Its version now: a text that says nothing to Kalends
    #[arg(value_parser = version, allow_negative_numbers = true)]
    pub version: FeedValue,
    /// The settings that name the store.
    #[command(flatten)]
    pub flags: Flags,
}

/// Days after which a token can expire: a hundred years.
const DAYS_MAX: u64 = 36_525;

impl FeedAction {
    /// Settings that were given.
    pub fn flags(&self) -> &Flags {
        match self {
            Self::Put(Put { keyed, .. }) | Self::Delete(keyed) | Self::Republish(keyed) => {
                &keyed.flags
            }
            Self::List(look) => &look.flags,
            Self::Tail(tail) => &tail.flags,
            Self::Token(token) => &token.flags,
        }
    }
}

impl BroadcastAction {
    /// Settings that were given.
    pub fn flags(&self) -> &Flags {
        match self {
            Self::Put(put) => &put.flags,
            Self::List(look) => &look.flags,
        }
    }
}

fn feed(text: &str) -> Result<FeedName, FeedTextError> {
    FeedName::parse(text)
}

fn key(text: &str) -> Result<FeedKey, FeedTextError> {
    FeedKey::parse(text)
}

fn version(text: &str) -> Result<FeedValue, FeedTextError> {
    FeedValue::parse(text)
}

/// Reads where a server is. A token in the URL would be in the list of processes.
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
    fn a_value_is_what_is_said_or_standard_input() {
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
    fn what_cannot_be_meant_is_refused() {
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
