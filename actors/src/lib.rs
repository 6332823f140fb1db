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

pub mod broadcasts;
pub mod client;
pub mod clock;
mod detached_registration;
mod drain_schedule;
pub mod endpoint;
pub mod feeds;
mod frame_limiter;
pub mod handle;
pub mod nodes;
pub mod registry;
pub mod socket;
mod store_executor;

pub use client::{Client, ClientShared, Transport};
pub use clock::Clock;
pub use endpoint::{DeliverPush, Endpoint, EndpointLimits, EndpointShared};
pub use feeds::{FeedLimits, FeedSubscription, Feeds, SubscriptionError, TooManyFollowers};
pub use nodes::{LocalNode, NodeDirectory};
pub use registry::RegistryActor;
