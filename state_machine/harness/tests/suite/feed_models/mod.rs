//! Feeds in small worlds, every state of which is searched. `docs/models.md` explains how to read
//! the scenarios.

mod action;
mod check;
mod follower;
mod happenings;
mod mutation;
mod node;
mod promises;
mod rest;
mod rule;
mod scenario;
mod scenarios;
mod store;
mod world;
