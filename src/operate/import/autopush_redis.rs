//! `kalends import autopush-redis`: the users of an autopush-rs whose database is Redis.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::importer::{self, Import};
use super::redis_source::RedisSource;
use super::source::SourceUrl;
use crate::command::{Backend, CommandError, Job, JobError, NoReport, StoreCommand};
use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct ImportRedis {
    /// The Redis, as redis://HOST:PORT/DATABASE or rediss:// with TLS; the password may be in REDISCLI_AUTH
    #[arg(required = true)]
    #[serde(skip)]
    pub url: Option<SourceUrl>,
    #[command(flatten)]
    pub import: Import,
}

impl StoreCommand for ImportRedis {
    const NAME: &'static str = "import autopush-redis";
    const ABOUT: &'static str =
        "Import users, channels and waiting messages from the Redis of autopush-rs";
    const HELP: &'static str = concat!(
        "\
Stop autopush-rs and this server first, and put the crypto keys of autopush-rs into keys.toml of the data
directory. Redis keeps running and is not changed. ",
        importer::help!(),
        "

Examples:
  kalends import autopush-redis redis://127.0.0.1:6379 --dry-run --data-dir /var/lib/kalends
  REDISCLI_AUTH=secret kalends import autopush-redis rediss://redis.example.net/2 --data-dir /var/lib/kalends
  kalends import autopush-redis redis://127.0.0.1 --store dynamodb --server-stopped --data-dir /var/lib/kalends"
    );
    type Report = NoReport;

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        importer::reach(settings).await
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let url = self.url.as_ref().expect("clap requires it");
        importer::run(RedisSource::connect(url), &self.import, job).await
    }
}
