//! `kalends import`: users, channels and messages of another server.
//!
//! - [`autopush_redis`]: the command, whose job writes to the store. The source stays as it is.
//! - [`redis_source`]: reads the Redis of autopush-rs.
//! - [`records`]: the formats of its values (docs/sources.md#autopush-rs-in-redis).

pub mod autopush_redis;
pub mod records;
pub mod redis_source;

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
