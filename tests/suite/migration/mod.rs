//! `kalends import`: the Redis of an autopush-rs, filled as that writes it, and its endpoints afterwards.

mod autopush;
mod imports;
mod interruptions;
mod redis_server;
