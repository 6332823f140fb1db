//! Kalends, a Web Push server.
fn main() {}
