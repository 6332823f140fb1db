//! Operator commands: `kalends preflight`, `kalends tables`, `kalends users`, `kalends feed` and
//! `kalends broadcast`, with and without a running server.

pub(crate) mod access;
mod commands;
mod feed_tails;
mod feeds;
mod fixture;
mod inspect;
mod lifecycles;
mod nodes;
mod operator_actions;
pub(crate) mod operator_page;
mod refusals;
mod socket;
mod tail_process;
mod users;

use fixture::{AdminFixture, months_ago};
