//! A feed in small worlds, searched to the last state. `docs/models.md` says how to read this.

mod action;
mod check;
mod fetch;
mod follower;
mod happenings;
mod model;
mod mutation;
mod node;
mod publish;
mod rest;
mod scenario;
mod scenarios;
mod store;
mod world;
