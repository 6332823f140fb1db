//! The actors of Kalends: the only place that knows actix's actors.
//!
//! - [`client`]: one user agent's connection; drives `state_machine::connection`.
//! - [`registry`]: the connections of this node; drives `state_machine::registry`. [`Directory`] is the lookup of all
//!   nodes.
//! - [`endpoint`]: the delivery of pushes; drives `state_machine::delivery`.
//! - [`bridge`]: the contract of a bridge to the push service of a platform.
//! - [`bridged_agents`]: the operations on user agents behind a bridge; drives `state_machine::bridged_call`.
//! - [`feeds`]: the publisher and the followers of feeds; drives `state_machine::feed`.
//! - [`broadcasts`]: the broadcasts of a node, and the connections to wake when they change.
//! - [`socket`]: a connection from its first request to its last frame. One file in it names actix-web-actors.
//! - [`access`]: the access tokens of a closed server, and the connections to close when one ends.
//! - [`admission`]: the limits of a connection by who asks.
//! - [`shared_log_limiter`]: how often threads log an event.
//! - [`counters`]: counters and histograms for metrics.
//! - [`mailbox`], [`observe`]: the bound and the length of every mailbox, and the state that each
//!   actor reports.
//!
//! Architecture Invariant: every mailbox has a bound, and a refused send is a case. Nothing here
//! uses `do_send`.

pub mod access;
mod access_follower;
mod ack_waiters;
pub mod admission;
mod alarm;
pub mod bridge;
pub mod bridged_agents;
pub mod broadcasts;
pub mod client;
pub mod clock;
pub mod counters;
mod directory;
mod drain_schedule;
pub mod endpoint;
pub mod feeds;
mod frame_limits;
#[cfg(test)]
#[path = "../../state_machine/tests/support/fuzz.rs"]
mod fuzz;
pub mod handle;
pub mod mailbox;
pub mod nodes;
pub mod observe;
pub mod registry;
pub mod rivals;
pub mod shared_log_limiter;
pub mod socket;
mod store_executor;
mod wake_ups;

pub use access::Access;
pub use admission::Admission;
pub use bridge::{Bridge, NoBridges};
pub use bridged_agents::{BridgedAgents, BridgedLimits};
pub use client::{Client, ClientShared, StepObserver, Transport};
pub use clock::Clock;
pub use directory::Directory;
pub use endpoint::{DeliverPush, Endpoint, EndpointLimits, EndpointShared, PushEnd};
pub use feeds::{
    FeedLimits, FeedSubscription, Feeds, SharedPage, SubscriptionError, TooManyFollowers,
};
pub use frame_limits::FrameLimits;
pub use mailbox::BoundedAddr;
pub use nodes::{NoPeers, NodeDirectory};
pub use observe::Observe;
pub use registry::RegistryActor;
pub use shared_log_limiter::SharedLogLimiter;
