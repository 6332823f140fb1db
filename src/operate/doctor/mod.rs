//! `kalends doctor`: checks an installation, its files and its public URL.
//!
//! - [`command`]: the command. [`findings`]: its results.
//! - [`local`]: settings, data directory and limits of this machine.
//! - [`reach`]: DNS, the clock and the certificate of the public URL.
//! - [`public`]: a user agent and an application server that use the public URL.
//! - [`trouble`]: why one of their steps fails, and what to do.

pub mod command;
pub mod findings;
mod local;
mod public;
mod reach;
mod trouble;
