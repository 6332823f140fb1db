//! What all tests here stand on.

mod acker;
mod agent;
mod answer;
mod fuse;
mod neighbour;
mod program;
mod raw;
mod sender;
mod server;
mod signer;
mod socket;
mod wait;

pub(crate) use agent::{Agent, Channel, Gone, Notification};
pub(crate) use fuse::Fuse;
pub(crate) use neighbour::Neighbour;
pub(crate) use program::{Ended, Program, kalends};
pub(crate) use raw::Raw;
pub(crate) use sender::Sender;
pub(crate) use server::Server;
pub(crate) use signer::{Signer, unix_now_s};
pub(crate) use socket::Socket;
pub(crate) use wait::{AT_ONCE, until, within};
