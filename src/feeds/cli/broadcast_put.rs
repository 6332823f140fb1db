//! `kalends broadcast put`: sets the version of a broadcast, which is a key of the feed `broadcasts`.

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::feed::{FeedKey, FeedName, FeedValue};

use super::key_args::{Change, KeyArgs};
use crate::command::{Job, JobError, NoReport, StoreCommand};

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BroadcastPut {
    /// Id of the broadcast, such as remote-settings/monitor_changes
    #[arg(value_parser = FeedKey::parse)]
    pub id: FeedKey,
    /// Its new version: a text without meaning to Kalends
    #[arg(value_parser = FeedValue::parse, allow_negative_numbers = true)]
    pub version: FeedValue,
}

impl StoreCommand for BroadcastPut {
    const NAME: &'static str = "broadcast put";
    const ABOUT: &'static str = "Set the version of a broadcast, and send it to the connected user agents that subscribed to it";
    const HELP: &'static str = "\
Firefox subscribes to remote-settings/monitor_changes, whose versions are numbers in quotes. Agents
get a version within broadcast_fanout_ms.

Examples:
  kalends broadcast put remote-settings/monitor_changes '\"1796000000\"' --data-dir /var/lib/kalends
  kalends broadcast put news/front-page 17 --config /etc/kalends/kalends.toml";
    const SETTINGS: &'static [&'static str] = &["feed_keys_max", "feed_value_bytes_max"];
    type Report = NoReport;

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let of = KeyArgs { feed: FeedName::broadcasts(), key: self.id, url: None };
        Change::Put(self.version).on_store(&of, job).await
    }
}
