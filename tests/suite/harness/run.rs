//! Helpers of long tests with many connections: chaos and rollover.

use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files, which servers inherit: the default is often 1024, and each
/// connection is a file.
pub(crate) fn raise_open_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be raised to the hard one");
}

/// The number in an environment variable, if it is set.
pub(crate) fn number_from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value}")))
}

/// Awaits the future and prints how long it took.
pub(crate) async fn timed<F: Future>(what: &str, future: F) -> F::Output {
    let began = Instant::now();
    let output = future.await;
    println!("{what}: {:.1} s", began.elapsed().as_secs_f32());
    output
}
