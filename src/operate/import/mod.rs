//! `kalends import`: users, channels and messages of another server.
//!
//! - [`autopush_redis`], [`autopush_postgresql`]: the commands.
//! - [`importer`]: their job, which writes to the store. The source stays as it is. [`tally`] is its report.
//! - [`source`]: what the job reads. [`redis_source`] and [`postgresql_source`] read the databases of autopush-rs.
//! - [`records`]: the formats of the values (docs/sources.md#databases-of-autopush-rs).

#[cfg(feature = "postgresql")]
pub mod autopush_postgresql;
pub mod autopush_redis;
pub mod importer;
#[cfg(feature = "postgresql")]
pub mod postgresql_source;
pub mod records;
pub mod redis_source;
pub mod source;
pub mod tally;

use crate::command::Group;

pub const GROUP: Group = Group {
    name: "import",
    about: "Move over from another push server",
    help: "\
docs/migrate.md describes the whole move from autopush, step by step.

Examples:
  kalends import autopush-redis redis://127.0.0.1:6379 --dry-run --data-dir /var/lib/kalends
  kalends import autopush-redis redis://127.0.0.1:6379 --data-dir /var/lib/kalends",
};
