//! The pages of `docs/operations` and the samples of `docs/deploy`. nginx and Caddy run in front of real
//! servers, systemd parses the units, and the texts about settings and log lines are compared with
//! the sources.

mod cluster;
mod doctor;
mod figures;
mod idle;
mod log_lines;
mod manual;
mod proxied_server;
mod proxy_process;
mod sample;
mod script;
mod server;
mod units;
mod unix_socket;

use proxied_server::ProxiedServer;
use proxy_process::{Backends, Kind, ProxyProcess};
use sample::Sample;
