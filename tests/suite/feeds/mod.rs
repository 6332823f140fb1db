//! Feeds over HTTP: requests of other programs, and what they can rely on.

mod client;
mod events;
mod following;
mod forgetting;
mod killed;
mod nodes;
mod refusals;
mod replica;
mod slow;

pub(crate) use client::{FeedClient, token};
use client::{Page, Update};
use events::Events;
use replica::Replica;
