//! `kalends import`: the database of an autopush-rs, filled as that writes it, and its endpoints afterwards.

mod autopush;
mod imports;
mod interruptions;
mod postgresql_database;
mod postgresql_imports;
mod redis_database;
mod redis_imports;
mod refusals;

pub(crate) use autopush::{Autopush, Database, User, Waiting};
pub(crate) use imports::crypto_keys;
pub(crate) use postgresql_database::PostgresDatabase;
pub(crate) use redis_database::RedisDatabase;
