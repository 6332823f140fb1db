//! `kalends inspect`: what the server knows of one user agent, and why a push to it may not arrive.
//!
//! An endpoint, a message URL or a uaid enters as a [`target`], decoded with the keys of the data directory. The
//! [`command`] collects the [`facts`]; [`findings`] are the sentences that follow from them, and [`text`] is both for
//! people.

pub mod command;
pub mod facts;
pub mod findings;
pub mod target;
pub mod text;
