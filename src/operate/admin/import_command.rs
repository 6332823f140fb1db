//! The command line of `kalends import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::commands::{OnStore, Request};
use super::help;
use super::store_command::Places;
use crate::operate::import::redis_source::RedisUrl;
use crate::settings::{Flags, Settings};

#[derive(Debug, Subcommand)]
pub enum ImportAction {
    /// Import users, channels and waiting messages from the Redis of autopush-rs
    #[command(after_help = help::IMPORT_REDIS)]
    AutopushRedis(OnStore<ImportRedis>),
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ImportRedis {
    /// The Redis, as redis://HOST:PORT/DATABASE or rediss:// with TLS; the password may be in REDISCLI_AUTH
    pub url: RedisUrl,
    /// Read and count everything, and import nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
    #[arg(skip)]
    pub installation: Installation,
}

/// The settings that an import needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// The directory of keys.toml.
    pub data_dir: PathBuf,
    pub last_connect_shards: usize,
    pub channels_max: usize,
    pub payload_bytes_max: usize,
}

impl ImportAction {
    /// The request, and the settings that name the store.
    pub fn into_request(self) -> (Request, Flags) {
        let Self::AutopushRedis(OnStore { args, flags }) = self;
        (Request::ImportRedis(args), flags)
    }
}

impl Request {
    /// Adds the settings that its job needs.
    pub fn with_settings(mut self, settings: &Settings) -> Self {
        match &mut self {
            Self::ImportRedis(import) => {
                import.installation = Installation {
                    data_dir: settings.data_dir.clone(),
                    last_connect_shards: settings.last_connect_shards,
                    channels_max: settings.channels_max,
                    payload_bytes_max: settings.aesgcm_bytes_max(),
                };
            }
            Self::RepairUsers(repair) => {
                repair.last_connect_shards = settings.last_connect_shards;
            }
            Self::StoreCopy(copy) => copy.places = Places::of(settings),
            _ => {}
        }
        self
    }
}
