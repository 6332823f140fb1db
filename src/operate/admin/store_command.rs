//! The command line of `kalends store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::commands::{OnStore, Request};
use super::help;
use crate::settings::value::Value;
use crate::settings::{Flags, Settings, StoreKind};

#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Copy everything from SQLite to DynamoDB or back, and compare both, while no server is running
    #[command(after_help = help::STORE_COPY)]
    Copy(OnStore<StoreCopy>),
    /// Restore receipt subscriptions that a copy by an earlier build has lost, while no server is running
    #[command(after_help = help::STORE_REPAIR)]
    Repair(OnStore<StoreRepair>),
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StoreCopy {
    /// The store to copy to. The other one is the source, whatever the setting `store` names
    #[arg(long, value_name = "embedded|dynamodb", value_parser = StoreKind::parse)]
    pub to: StoreKind,
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
    /// Compare both stores, and copy nothing
    #[arg(long)]
    pub verify_only: bool,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
    #[arg(skip)]
    pub places: Places,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRepair {
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
}

/// Where both stores are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The directory of the SQLite files, and of keys.toml.
    pub data_dir: PathBuf,
    /// The tables of DynamoDB, for an operator.
    tables: String,
}

impl StoreAction {
    /// The request, and the settings that name the stores.
    pub fn into_request(self) -> (Request, Flags) {
        match self {
            Self::Copy(OnStore { args, flags }) => (Request::StoreCopy(args), flags),
            Self::Repair(OnStore { args, flags }) => (Request::StoreRepair(args), flags),
        }
    }
}

impl StoreCopy {
    pub fn from(&self) -> StoreKind {
        match self.to {
            StoreKind::Embedded => StoreKind::DynamoDb,
            StoreKind::DynamoDb => StoreKind::Embedded,
        }
    }

    /// The name of a store, which does not change between two runs.
    pub fn name_of(&self, kind: StoreKind) -> String {
        match kind {
            StoreKind::DynamoDb => self.places.tables.clone(),
            StoreKind::Embedded => {
                let dir = &self.places.data_dir;
                dir.canonicalize().unwrap_or_else(|_| dir.clone()).display().to_string()
            }
        }
    }
}

impl Places {
    pub(super) fn of(settings: &Settings) -> Self {
        let server = match (&settings.dynamodb_endpoint_url, &settings.dynamodb_region) {
            (Some(url), _) => url.as_str(),
            (None, Some(region)) => region.as_str(),
            (None, None) => "AWS",
        };
        let prefix = settings.dynamodb_table_prefix.as_str();
        let tables = format!("the tables {prefix}router, {prefix}storage and others at {server}");
        Self { data_dir: settings.data_dir.clone(), tables }
    }
}
