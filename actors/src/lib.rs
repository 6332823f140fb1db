//! The actors of Kalends: the only place that knows actix's actors.
//!
//! - [`client`]: one user agent's connection; drives `state_machine::connection`.
//! - [`registry`]: who is connected here; drives `state_machine::registry`.
//! - [`endpoint`]: one push after the other; drives `state_machine::delivery`.
//! - [`feeds`]: who publishes and who follows feeds; drives `state_machine::feed`.
//! - [`broadcasts`]: the broadcasts of a node, and whom to wake when they change.
//! - [`socket`]: the one file that names actix-web-actors.
//!
//! Every mailbox has a bound, and a send that is refused is a case: nothing here uses `do_send`.

mod bequest;
pub mod broadcasts;
pub mod client;
pub mod clock;
pub mod endpoint;
mod farewells;
pub mod feeds;
mod metered;
pub mod nodes;
pub mod reach;
pub mod registry;
pub mod socket;
mod store_orders;

pub use client::{Client, ClientShared, Transport};
pub use clock::Clock;
pub use endpoint::{Endpoint, EndpointLimits, EndpointShared, Send};
pub use feeds::{FeedLimits, Feeds, FollowError, Follower, TooManyFollowers};
pub use nodes::{LocalNode, NodeDirectory};
pub use registry::RegistryActor;
