//! The tests of the contract on each engine, and of each engine beyond it, in one binary: each
//! binary links the AWS SDK.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests write files that no power loss meets, and statements whose ends they do not read"
)]

mod conformance;
mod dynamo;
mod embedded;
#[path = "../wire_server/engines.rs"]
mod engines;
mod every_engine;
mod maintenance;
mod names;
mod postgresql;
mod postgresql_lanes;
mod postgresql_tls;
mod raw_rows;
mod reference;
mod store_calls;
#[path = "../wire_server/engine.rs"]
mod wire_engine;
