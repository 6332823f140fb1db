//! What the load tools share. Each of them uses a part.

pub(crate) mod agent;
pub(crate) mod dynamodb;
pub(crate) mod feed;
pub(crate) mod group;
pub(crate) mod http;
pub(crate) mod limits;
pub(crate) mod percentile;
pub(crate) mod process;
pub(crate) mod sender;
pub(crate) mod usage;
pub(crate) mod vapid;
