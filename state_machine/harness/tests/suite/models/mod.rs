//! The whole protocol in small worlds, searched to the last state. `docs/models.md` says how to read this.

mod action;
mod check;
mod diary;
mod endpoint;
mod happenings;
mod letters;
mod lives;
mod model;
mod mutation;
mod node;
mod rest;
mod scenario;
mod scenarios;
mod world;

pub(crate) use crate::world::store;
