//! The commands that work on a store. One struct per command: clap reads it from the command line, serde carries
//! it to the server that holds the store, and the job in [`job`](super::job) takes it.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use clap::{Args, Command, Subcommand};
use serde::{Deserialize, Serialize};
use state_machine::feed::{FeedKey, FeedName, FeedValue};
use state_machine::{Month, Uaid};
use storage::maintenance::Throughput;

use super::access_command::{self, AccessAdd, AccessRevoke, AccessRotate};
use super::help;
use super::import_command::ImportRedis;
use super::inspect::target::{Subject, Target};
use super::store_command::{StoreCopy, StoreRepair};
use crate::settings::Flags;

/// Months before the present one that `tables drop-old` can keep.
const KEEP_MONTHS: RangeInclusive<i64> = 1..=600;

/// Months without a connection after which `users drop-inactive` may drop a user.
const INACTIVE_MONTHS_RANGE: RangeInclusive<i64> = INACTIVE_MONTHS_MIN as i64..=600;

/// The least of them. No connection lives this long, so a user whose last connect is that old is not connected now.
const INACTIVE_MONTHS_MIN: u32 = 2;

/// The default: a browser that is not opened for most of a year keeps its subscriptions.
pub const INACTIVE_MONTHS: u32 = 12;

/// Users that may be dropped a second.
const USERS_A_SECOND: RangeInclusive<i64> = 1..=100_000;

/// A command and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    Preflight,
    List(ReadOnlyArgs),
    Status(ReadOnlyArgs),
    Create(Create),
    DropOld(DropOld),
    Drop(Drop),
    Copy(Copy),
    DropInactive(DropInactive),
    DropUser(DropUser),
    RepairUsers(RepairUsers),
    Inspect(Inspect),
    Nodes(ReadOnlyArgs),
    /// Also `broadcast put`, which sets a key of the feed `broadcasts`.
    FeedPut(FeedPut),
    FeedDelete(KeyArgs),
    FeedRepublish(KeyArgs),
    FeedList(ReadOnlyArgs),
    FeedTail(FeedTail),
    BroadcastList(ReadOnlyArgs),
    AccessAdd(AccessAdd),
    AccessList(ReadOnlyArgs),
    AccessRotate(AccessRotate),
    AccessRevoke(AccessRevoke),
    /// Copies the files of the store to where `kalends backup` archives them.
    Snapshot,
    /// Never sent to a server: it needs the store for itself, and its URL may have a password.
    #[serde(skip)]
    ImportRedis(ImportRedis),
    /// Never sent to a server: it needs both stores for itself.
    #[serde(skip)]
    StoreCopy(StoreCopy),
    StoreRepair(StoreRepair),
}

/// A command's own arguments, and the settings that name the store.
#[derive(Debug, Args)]
pub struct OnStore<A: Args> {
    #[command(flatten)]
    pub args: A,
    #[command(flatten)]
    pub flags: Flags,
}

#[derive(Debug, Subcommand)]
pub enum TablesAction {
    /// List the tables: state, rows, bytes, throughput
    #[command(after_help = help::LIST)]
    List(OnStore<ReadOnlyArgs>),
    /// Count the agents on each month, and show what there is to do
    #[command(after_help = help::STATUS)]
    Status(OnStore<ReadOnlyArgs>),
    /// Create the tables of last, this and next month
    #[command(after_help = help::CREATE)]
    Create(OnStore<Create>),
    /// Drop the tables of past months that no agent is on
    #[command(after_help = help::DROP_OLD)]
    DropOld(OnStore<DropOld>),
    /// Copy a month's table to another month, while no server is running
    #[command(after_help = help::COPY)]
    Copy(OnStore<Copy>),
    /// Drop one month's table
    #[command(after_help = help::DROP)]
    Drop(OnStore<Drop>),
}

#[derive(Debug, Subcommand)]
pub enum UsersAction {
    /// Drop users that have not connected for months
    #[command(after_help = help::DROP_INACTIVE)]
    DropInactive(OnStore<DropInactive>),
    /// Drop one user with its channels and messages
    #[command(after_help = help::DROP_USER)]
    Drop(OnStore<DropUser>),
    /// Set records of connections in the future to now, while no server is running
    #[command(after_help = help::REPAIR_USERS)]
    Repair(OnStore<RepairUsers>),
}

/// The arguments of commands that change nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadOnlyArgs {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// Lower last month's table to this many reads and writes a second, from the fourth of a month on
    #[arg(long, value_name = "READ:WRITE", value_parser = throughput)]
    pub lower_prior: Option<Throughput>,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropOld {
    /// Months before this one whose tables are kept
    #[arg(long, value_name = "MONTHS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(KEEP_MONTHS))]
    pub keep: u32,
    /// Show what would be dropped, and drop nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Drop tables that agents are still on: these get a new id when they connect
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// The month to copy, such as 2026_09
    pub from: Month,
    /// The month to copy it to, such as 2026_11
    pub to: Month,
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drop {
    /// The month, such as 2026_09
    pub month: Month,
    /// Drop it; without this the command only shows what it would drop
    #[arg(long)]
    pub yes: bool,
    /// Drop it although agents are still on it: these get a new id when they connect
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropInactive {
    /// Drop users last seen this many months ago or earlier: with 2, in November, in September
    #[arg(long, value_name = "MONTHS", default_value_t = INACTIVE_MONTHS, value_parser = clap::value_parser!(u32).range(INACTIVE_MONTHS_RANGE))]
    pub months: u32,
    /// Maximum number of users dropped a second
    #[arg(long, value_name = "USERS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(USERS_A_SECOND))]
    pub rate: u32,
    /// Count them, and drop none
    #[arg(long)]
    pub dry_run: bool,
    /// First month to search; by default that of the oldest table, and three months at least
    #[arg(long, value_name = "MONTH")]
    pub since: Option<Month>,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropUser {
    /// The uaid of the user: 32 hex digits, with dashes or without
    pub uaid: Uaid,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairUsers {
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
    /// A setting of the servers, by which they write the records.
    #[arg(skip)]
    #[serde(skip)]
    pub last_connect_shards: usize,
}

/// What `kalends inspect` reads from the command line.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct InspectArgs {
    /// The endpoint, the URL of a message from the Location of its push, or the uaid
    #[arg(value_name = "ENDPOINT|UAID|MESSAGE-URL")]
    pub target: Target,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// The same, decoded by the process of the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspect {
    pub subject: Subject,
    pub json: bool,
}

/// A key of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyArgs {
    /// Name of the feed: 1 to 64 of a-z 0-9 - _
    #[arg(value_parser = FeedName::parse)]
    pub feed: FeedName,
    /// The key: 1 to 256 bytes of text
    #[arg(value_parser = FeedKey::parse)]
    pub key: FeedKey,
}

/// A key of a feed and its new value, from the command line or from standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedPut {
    pub of: KeyArgs,
    pub value: FeedValue,
}

/// The updates that `kalends feed tail` prints.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedTail {
    /// Name of the feed
    #[arg(value_parser = FeedName::parse)]
    pub feed: FeedName,
    /// Begin behind number N; with --cursor-file, only if FILE does not exist yet
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = update_number)]
    pub after: u64,
    /// End after N updates
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End when all updates that exist are printed
    #[arg(long)]
    pub once: bool,
}

impl Request {
    /// Whether its numbers are within the bounds that the command line enforces. Any process of the owner can write
    /// to the socket.
    pub fn is_within_bounds(&self) -> bool {
        match self {
            Self::DropOld(DropOld { keep, .. }) => KEEP_MONTHS.contains(&i64::from(*keep)),
            Self::DropInactive(DropInactive { months, rate, .. }) => {
                INACTIVE_MONTHS_RANGE.contains(&i64::from(*months))
                    && USERS_A_SECOND.contains(&i64::from(*rate))
            }
            Self::Create(Create { lower_prior }) => {
                lower_prior.is_none_or(|units| units.read > 0 && units.write > 0)
            }
            Self::AccessAdd(add) => add.is_within_bounds(),
            Self::AccessRotate(rotate) => rotate.is_within_bounds(),
            Self::AccessRevoke(revoke) => access_command::name(&revoke.name).is_ok(),
            _ => true,
        }
    }

    /// The command's name in the log. Its arguments are not logged: a value may be large or secret.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Preflight => "preflight",
            Self::List(_) => "tables list",
            Self::Status(_) => "tables status",
            Self::Create(_) => "tables create",
            Self::DropOld(_) => "tables drop-old",
            Self::Drop(_) => "tables drop",
            Self::Copy(_) => "tables copy",
            Self::DropInactive(_) => "users drop-inactive",
            Self::DropUser(_) => "users drop",
            Self::RepairUsers(_) => "users repair",
            Self::Inspect(_) => "inspect",
            Self::Nodes(_) => "nodes",
            Self::FeedPut(_) => "feed put",
            Self::FeedDelete(_) => "feed delete",
            Self::FeedRepublish(_) => "feed republish",
            Self::FeedList(_) => "feed list",
            Self::FeedTail(_) => "feed tail",
            Self::BroadcastList(_) => "broadcast list",
            Self::AccessAdd(_) => "access add",
            Self::AccessList(_) => "access list",
            Self::AccessRotate(_) => "access rotate",
            Self::AccessRevoke(_) => "access revoke",
            Self::Snapshot => "backup",
            Self::ImportRedis(_) => "import autopush-redis",
            Self::StoreCopy(_) => "store copy",
            Self::StoreRepair(_) => "store repair",
        }
    }

    /// Whether the result is printed as JSON.
    pub fn is_json(&self) -> bool {
        match self {
            Self::List(args) | Self::Status(args) | Self::Nodes(args) => args.json,
            Self::FeedList(args) | Self::BroadcastList(args) => args.json,
            Self::AccessAdd(add) => add.json,
            Self::AccessList(args) => args.json,
            Self::AccessRotate(rotate) => rotate.json,
            Self::Inspect(inspect) => inspect.json,
            Self::StoreCopy(copy) => copy.json,
            _ => false,
        }
    }
}

impl TablesAction {
    /// The request, and the settings that name the store.
    pub fn into_request(self) -> (Request, Flags) {
        match self {
            Self::List(OnStore { args, flags }) => (Request::List(args), flags),
            Self::Status(OnStore { args, flags }) => (Request::Status(args), flags),
            Self::Create(OnStore { args, flags }) => (Request::Create(args), flags),
            Self::DropOld(OnStore { args, flags }) => (Request::DropOld(args), flags),
            Self::Copy(OnStore { args, flags }) => (Request::Copy(args), flags),
            Self::Drop(OnStore { args, flags }) => (Request::Drop(args), flags),
        }
    }
}

impl UsersAction {
    /// The request, and the settings that name the store.
    pub fn into_request(self) -> (Request, Flags) {
        match self {
            Self::DropInactive(OnStore { args, flags }) => (Request::DropInactive(args), flags),
            Self::Drop(OnStore { args, flags }) => (Request::DropUser(args), flags),
            Self::Repair(OnStore { args, flags }) => (Request::RepairUsers(args), flags),
        }
    }
}

/// Shows in a command's help only the settings that concern it; all are accepted.
pub fn with_short_help(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|arg| match (name.as_str(), arg.get_id().as_str()) {
        ("init", "listen" | "public_url" | "trusted_proxies" | "access") => arg,
        ("init", "config") => arg.hide(true),
        ("init", "data_dir") => arg,
        ("init", id) if is_setting(id) => arg.hide(true),
        ("doctor", "public_url" | "listen" | "store") => arg,
        ("health", "listen") | ("token", "feed_tokens_epoch") | (_, "config") => arg,
        ("health", id) if is_setting(id) => arg.hide(true),
        (_, "data_dir") => arg,
        // They need the keys and no store.
        ("token" | "cluster", id) if is_setting(id) => arg.hide(true),
        ("put", "feed_keys_max" | "feed_value_bytes_max") | (_, "store") => arg,
        (_, "rotation" | "last_connect_shards") => arg.hide_short_help(true),
        (_, id) if id.starts_with("dynamodb_") => arg.hide_short_help(true),
        (_, id) if is_setting(id) => arg.hide(true),
        _ => arg,
    })
}

fn is_setting(id: &str) -> bool {
    crate::settings::setting::Setting::find(id).is_some()
}

fn update_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the number of an update, such as 42".to_owned())
}

fn throughput(text: &str) -> Result<Throughput, String> {
    let units = |text: &str| text.parse().ok().filter(|units: &u32| *units > 0);
    let parsed = text.split_once(':').and_then(|(read, write)| units(read).zip(units(write)));
    let (read, write) = parsed.ok_or("expected READ:WRITE, such as 5:5")?;
    Ok(Throughput { read, write })
}
