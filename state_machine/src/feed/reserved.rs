//! The limits of the feeds that the server keeps for itself.

/// The maximum number of access tokens, revoked ones included: every node has all of them in memory.
pub const ACCESS_TOKENS_MAX: u64 = 10_000;

/// The maximum size of a token's entry in the feed, in bytes.
pub const GRANT_BYTES_MAX: usize = 512;

/// The maximum number of tasks that servers do by themselves.
pub const TASKS_MAX: u64 = 16;

/// The maximum length of a version in bytes. A version is a date or a hash, and every node has all
/// of them in memory.
pub const VERSION_BYTES_MAX: usize = 1024;

/// The maximum number of broadcasts, including deleted ones.
pub const BROADCASTS_MAX: u64 = 10_000;

/// The id that no broadcast can have: the wire format uses it for refused subscriptions.
pub const RESERVED_ID: &str = "errors";
