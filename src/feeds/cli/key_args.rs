//! A key of a feed on the command line, and the server that has it.

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::feed::{FeedKey, FeedName, FeedValue};
use url::Url;

use crate::settings::value::{PublicUrl, Value as _};

/// A key of a feed, and where it is changed.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyArgs {
    /// Name of the feed: 1 to 64 of a-z 0-9 - _
    #[arg(value_parser = FeedName::parse)]
    pub feed: FeedName,
    /// The key: 1 to 256 bytes of text
    #[arg(value_parser = FeedKey::parse)]
    pub key: FeedKey,
    /// Use the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow writing
    #[arg(long, value_name = "URL", value_parser = server)]
    #[serde(skip)]
    pub url: Option<Url>,
}

/// What is done with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(FeedValue),
    Delete,
    /// The key gets a new number and keeps its value.
    Republish,
}

/// Parses an origin. A token in the URL would show in the list of processes.
pub fn server(text: &str) -> Result<Url, String> {
    let url = PublicUrl::parse(text)?;
    Ok(Url::parse(url.as_str()).expect("an origin is a URL"))
}
