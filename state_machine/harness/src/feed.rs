//! Verification of feeds: the checker of their promises, and histories as text.

pub mod promises;
pub mod transcript;
