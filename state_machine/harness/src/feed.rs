//! What verifies feeds.

pub mod promises;
pub mod transcript;
