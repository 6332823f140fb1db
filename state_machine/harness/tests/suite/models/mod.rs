//! The whole protocol in small worlds, every state of which is searched. `docs/models.md` explains
//! how to read the scenarios.

mod action;
mod check;
mod endpoint;
mod happenings;
mod lives;
mod mutation;
mod node;
mod notifications;
mod rest;
mod scenario;
mod scenarios;
mod world;

pub(crate) use crate::world::store;
