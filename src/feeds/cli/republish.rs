//! `kalends feed republish`: publishes a key again with its present value.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::key_args::{Change, KeyArgs};
use crate::command::{Failure, Job, JobError, NoReport, StoreCommand};
use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Republish {
    #[command(flatten)]
    pub of: KeyArgs,
}

impl StoreCommand for Republish {
    const NAME: &'static str = "feed republish";
    const ABOUT: &'static str = "Publish a key again with its present value";
    const HELP: &'static str = "\
The key gets a new number and keeps its value, so that every consumer gets it again.

Examples:
  kalends feed republish prices eur --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed republish prices eur --url https://push.example.net";
    type Report = NoReport;

    fn main(self, settings: &Settings) -> Result<(), Failure> {
        Change::Republish.make(&self.of.clone(), self, settings)
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        Change::Republish.on_store(&self.of, job).await
    }
}
