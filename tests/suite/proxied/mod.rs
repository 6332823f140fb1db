//! The samples of `docs/deploy`, run: nginx and Caddy in front of real servers, and the units as systemd reads them.

mod ahead;
mod cluster;
mod figures;
mod front;
mod idle;
mod sample;
mod script;
mod server;
mod units;

use ahead::Ahead;
use front::{Behind, Front, Kind};
use sample::Sample;
