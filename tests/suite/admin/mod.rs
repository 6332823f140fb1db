//! What an operator does: `kalends preflight`, `kalends tables`, `kalends users`, `kalends feed` and
//! `kalends broadcast`, beside a live server and without one.

mod beside;
mod feed_tails;
mod feeds;
mod place;
mod socket;
mod stories;
mod tailing;

use place::{Place, months_ago};
