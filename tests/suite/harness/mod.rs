//! Fixtures that the tests of this suite share.

mod acker;
mod agent;
mod answer;
mod bystander;
mod cluster;
pub(crate) mod dynamo;
mod http_client;
mod kill_countdown;
mod ports;
mod program;
mod proxy;
pub(crate) mod push_service;
mod raw;
mod run;
pub(crate) mod seen_metrics;
mod sender;
mod server;
mod signer;
mod socket;
mod tls;
mod usage;
mod wait;
#[path = "../../../storage/tests/wire_server/mod.rs"]
mod wire_server;

pub(crate) use crate::shared::group::Group;
pub(crate) use agent::{Agent, Channel, Disconnected, Notification, ack};
pub(crate) use answer::Answer;
pub(crate) use bystander::Bystander;
pub(crate) use cluster::{Clocks, Cluster, ClusterPlan, introduce, shared_keys};
pub(crate) use http_client::{HttpClient, SendError};
pub(crate) use kill_countdown::KillCountdown;
pub(crate) use ports::free_port;
pub(crate) use program::{ExitOutput, Program, child, kalends, node_modules, python, run, signal};
pub(crate) use proxy::{Fault, Proxy, Rule};
pub(crate) use push_service::{PushService, Reply};
pub(crate) use raw::{Raw, oversized_bodies};
pub(crate) use run::{number_from_env, raise_open_file_limit, timed};
pub(crate) use sender::{Post, Sender};
pub(crate) use server::{Launch, Role, Server, put_keys};
pub(crate) use signer::{Signer, unix_now_s};
pub(crate) use socket::{Closed, Socket};
pub(crate) use tls::{Authority, TlsAgent};
pub(crate) use usage::{CapacityUsage, Units};
pub(crate) use wait::{AT_ONCE, until, within};
pub(crate) use wire_server::{WireServer, shared as shared_wire_server};
