//! `kalends feed republish`: publishes a key again with its present value.

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
pub struct Republish {
    #[command(flatten)]
    pub of: KeyArgs,
    /// Use the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow writing
    #[arg(long, value_name = "URL", value_parser = server)]
    #[serde(skip)]
    pub url: Option<Url>,
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
        let Some(url) = &self.url else { return Ok(run_and_print(self, settings)?) };
        let KeyArgs { feed, key } = &self.of;
        let version = Remote::at(url)?.republish(feed, key)?;
        Ok(writeln!(stdout(), "{key} of {feed} gets a new number, its version is {version}")?)
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let KeyArgs { feed, key } = self.of;
        let Some(version) = store::republish(job, &feed, &key).await? else {
            let why = format!("{key} of {feed} was never written: nothing to publish again");
            return Err(JobError::Refused(why));
        };
        job.note(format!("{key} of {feed} gets a new number, its version is {version}")).await?;
        store::publish(&feed, job).await
    }
}
