//! `kalends feed delete`: deletes a key, and publishes that.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::key_args::{Change, KeyArgs};
use crate::command::{Failure, Job, JobError, NoReport, StoreCommand};
use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    #[command(flatten)]
    pub of: KeyArgs,
}

impl StoreCommand for Delete {
    const NAME: &'static str = "feed delete";
    const ABOUT: &'static str = "Delete a key, and publish that";
    const HELP: &'static str = "\
The deletion gets a number too, so that consumers see it.

Examples:
  kalends feed delete prices eur --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed delete prices eur --url https://push.example.net";
    type Report = NoReport;

    fn main(self, settings: &Settings) -> Result<(), Failure> {
        Change::Delete.make(&self.of.clone(), self, settings)
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        Change::Delete.on_store(&self.of, job).await
    }
}
