//! `kalends feed delete`: deletes a key, and publishes that.

use std::io::{Write, stdout};

use clap::Args;
use serde::{Deserialize, Serialize};
use url::Url;

use super::key_args::{KeyArgs, server};
use super::remote::Remote;
use crate::command::{Failure, Job, JobError, NoReport, StoreCommand, run_and_print};
use crate::feeds::store;
use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    #[command(flatten)]
    pub of: KeyArgs,
    /// Use the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow writing
    #[arg(long, value_name = "URL", value_parser = server)]
    #[serde(skip)]
    pub url: Option<Url>,
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
        let Some(url) = &self.url else { return Ok(run_and_print(self, settings)?) };
        let KeyArgs { feed, key } = &self.of;
        let version = Remote::at(url)?.delete(feed, key)?;
        Ok(writeln!(stdout(), "deleted {key} of {feed}, its version is {version}")?)
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let KeyArgs { feed, key } = self.of;
        let Some(version) = store::delete(job, &feed, &key).await? else {
            let why = format!("there is no {key} in {feed}: nothing to delete");
            return Err(JobError::Refused(why));
        };
        job.note(format!("deleted {key} of {feed}, its version is {version}")).await?;
        store::publish(&feed, job).await
    }
}
