//! What an operator does: `kalends preflight`, `kalends tables`, `kalends users`, beside a live server
//! and without one.

mod beside;
mod place;
mod socket;
mod stories;

use place::{Place, months_ago};
