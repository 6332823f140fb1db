//! `docs/operations.md` and the samples of `docs/deploy`: nginx and Caddy run in front of real servers, systemd reads the
//! units, and what is said of settings and log lines is held against the sources.

mod ahead;
mod cluster;
mod figures;
mod front;
mod idle;
mod log_lines;
mod manual;
mod sample;
mod script;
mod server;
mod units;

use ahead::Ahead;
use front::{Behind, Front, Kind};
use sample::Sample;
