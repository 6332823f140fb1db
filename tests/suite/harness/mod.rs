//! What all tests here stand on.

mod acker;
mod agent;
mod answer;
mod bill;
mod cluster;
pub(crate) mod dynamo;
mod fuse;
mod neighbour;
mod program;
mod proxy;
mod raw;
mod sender;
mod server;
mod signer;
mod socket;
mod wait;
#[path = "../../../storage/tests/wire_server/mod.rs"]
mod wire_server;

pub(crate) use agent::{Agent, Channel, Gone, Notification, ack};
pub(crate) use answer::Answer;
pub(crate) use bill::{Bill, Units};
pub(crate) use cluster::{Cluster, Plan};
pub(crate) use fuse::Fuse;
pub(crate) use neighbour::Neighbour;
pub(crate) use program::{Ended, Program, kalends};
pub(crate) use proxy::{Fault, Proxy, Rule};
pub(crate) use raw::Raw;
pub(crate) use sender::Sender;
pub(crate) use server::{Launch, Role, Server};
pub(crate) use signer::{Signer, unix_now_s};
pub(crate) use socket::{Closed, Socket};
pub(crate) use wait::{AT_ONCE, until, within};
pub(crate) use wire_server::{WireServer, shared as shared_wire_server};
