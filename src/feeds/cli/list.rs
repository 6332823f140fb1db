//! `kalends feed list`: the feeds, by name.

use clap::Args;
use serde::{Deserialize, Serialize};
use storage::feeds::FeedState;

use crate::command::text::{columns, to_json};
use crate::command::{Job, JobError, Report, StoreCommand};

/// Feeds in one report.
const FEEDS_MAX: usize = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedList {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// A batch of feeds, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedStates(pub Vec<FeedState>);

impl Report for FeedStates {
    fn text(&self, is_first: bool) -> String {
        let rows = self.0.iter().map(|FeedState { name, sequence }| {
            [name.to_string(), sequence.value.to_string(), sequence.keys.to_string()]
        });
        columns(is_first.then_some(["FEED", "HEAD", "KEYS"]), rows)
    }

    fn json(&self) -> String {
        self.0.iter().map(to_json).collect()
    }
}

impl StoreCommand for FeedList {
    const NAME: &'static str = "feed list";
    const ABOUT: &'static str = "List the feeds: name, greatest number, keys";
    const HELP: &'static str = "\
Deleted keys are counted too: their deletions stay in the feed.

Examples:
  kalends feed list --data-dir /var/lib/kalends
  kalends feed list --json --config /etc/kalends/kalends.toml";
    const ONLY_READS: bool = true;
    type Report = FeedStates;

    fn is_json(&self) -> bool {
        self.json
    }

    /// The head of the list is printed without feeds too.
    async fn run(self, job: &Job<FeedStates>) -> Result<(), JobError> {
        let mut after = None;
        loop {
            let feeds = job.step(|| job.context.store.feeds(after.clone(), FEEDS_MAX)).await?;
            let (is_first, is_last) = (after.is_none(), feeds.len() < FEEDS_MAX);
            after = feeds.last().map(|feed| feed.name.clone());
            let feeds: Vec<_> = feeds.into_iter().filter(|feed| !feed.name.is_reserved()).collect();
            if is_first || !feeds.is_empty() {
                job.report(FeedStates(feeds)).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use state_machine::feed::{FeedName, FeedSyncId, Sequence};

    use super::*;

    #[test]
    fn feeds_are_printed_in_columns_under_one_head() {
        let sequence = Sequence { value: FeedSyncId(12), keys: 3, ..Sequence::default() };
        let feeds = FeedStates(vec![FeedState { name: FeedName::broadcasts(), sequence }]);
        assert_eq!(feeds.text(true), "FEED        HEAD  KEYS\nbroadcasts  12    3\n");
        assert_eq!(feeds.text(false), "broadcasts  12  3\n");
        assert_eq!(feeds.json(), "{\"feed\":\"broadcasts\",\"head\":12,\"keys\":3}\n");
    }
}
