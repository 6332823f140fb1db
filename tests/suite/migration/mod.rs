//! `kalends import`: the Redis of an autopush-rs, filled as that writes it, and its endpoints afterwards.

mod autopush;
mod imports;
mod interruptions;
mod redis_server;

pub(crate) use autopush::Autopush;
pub(crate) use imports::crypto_keys;
pub(crate) use redis_server::RedisServer;
