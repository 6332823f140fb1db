//! A disk for tests, in memory: it keeps apart what programs see and what a power loss leaves, and any operation on it
//! fails when a test says so.
//!
//! [`Disk`] is the model, without FUSE. [`Mount`] puts it into the file system of a test, for code in the process and
//! for programs that the test starts.
//!
//! Absent: hard and symbolic links, several users, and modes and owners that a power loss takes back.

mod adapter;
mod disk;
mod faults;
mod mount;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

pub use disk::{Attributes, Disk, Ino, Kind, Loss, ROOT};
pub use faults::{Fault, Op, Operation};
pub use mount::Mount;
pub use nix::errno::Errno;

/// Notes in `target/not-run`, which `make test` prints last, that a test did not run. Fails if `TESTS_REQUIRE`
/// contains `fuse`.
pub fn not_run(reason: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/not-run");
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| writeln!(file, "NOT RUN: {reason}"));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let required = std::env::var("TESTS_REQUIRE").is_ok_and(|required| required.contains("fuse"));
    assert!(!required, "TESTS_REQUIRE contains fuse: {reason}");
}
