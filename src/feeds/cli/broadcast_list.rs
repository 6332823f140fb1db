//! `kalends broadcast list`: the broadcasts, by id.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use state_machine::broadcast::Broadcasts;
use state_machine::feed::{FeedKey, FeedName, FeedValue};

use crate::command::text::{on_one_line, to_json};
use crate::command::{Job, JobError, Report, StoreCommand};
use crate::feeds::store;

/// Broadcasts in one report. An id and a version have at most 1280 bytes.
const BROADCASTS_MAX: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BroadcastList {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// A batch of broadcasts: the id and the present version of each, by id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions(pub Vec<(FeedKey, FeedValue)>);

impl Report for Versions {
    fn text(&self, _is_first: bool) -> String {
        let line = |(id, version): &(FeedKey, FeedValue)| {
            format!("{} = {}\n", on_one_line(id.as_str()), on_one_line(version.as_str()))
        };
        self.0.iter().map(line).collect()
    }

    fn json(&self) -> String {
        let line = |(id, version)| to_json(&json!({ "id": id, "version": version }));
        self.0.iter().map(|(id, version)| line((id, version))).collect()
    }
}

impl StoreCommand for BroadcastList {
    const NAME: &'static str = "broadcast list";
    const ABOUT: &'static str = "List the broadcasts: id, version";
    const HELP: &'static str = "\
Examples:
  kalends broadcast list --data-dir /var/lib/kalends
  kalends broadcast list --json --config /etc/kalends/kalends.toml";
    const ONLY_READS: bool = true;
    type Report = Versions;

    fn is_json(&self) -> bool {
        self.json
    }

    async fn run(self, job: &Job<Versions>) -> Result<(), JobError> {
        let all = store::read(job, &FeedName::broadcasts(), Broadcasts::apply).await?;
        let rows: Vec<_> = all.iter().map(|(id, version)| (id.clone(), version.clone())).collect();
        for rows in rows.chunks(BROADCASTS_MAX) {
            job.report(Versions(rows.to_vec())).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_are_printed_with_their_versions() {
        let (id, version) = (FeedKey::parse("a/b").unwrap(), FeedValue::parse("\"1\"").unwrap());
        let all = Versions(vec![(id, version)]);
        assert_eq!(all.text(true), "a/b = \"1\"\n");
        assert_eq!(all.json(), "{\"id\":\"a/b\",\"version\":\"\\\"1\\\"\"}\n");
    }
}
