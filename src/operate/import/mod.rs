//! Users, channels and messages of another server, for `kalends import`.
//!
//! - [`redis_source`]: reads the Redis of autopush-rs.
//! - [`records`]: the formats of its values (docs/sources.md#autopush-rs-in-redis).
//!
//! Architecture Invariant: nothing here writes. The job in `admin` writes to the store, and the source stays as it is.

pub mod records;
pub mod redis_source;
