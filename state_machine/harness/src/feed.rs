//! Feed histories as text.

pub mod transcript;
