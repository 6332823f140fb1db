//! Feeds in small worlds, every state of which is searched. `docs/models.md` explains how to read
//! the scenarios.

mod action;
mod check;
mod fetch;
mod follower;
mod happenings;
mod mutation;
mod node;
mod promises;
mod publish;
mod rest;
mod scenario;
mod scenarios;
mod store;
mod world;
