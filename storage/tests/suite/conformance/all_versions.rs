//! The conformance tests on the oldest and the newest PostgreSQL that is supported. They are the longest tests: the name of
//! this module is the first in the order of the alphabet, in which tests begin.

use std::env;
use std::process::Command;

use postgres_server::PROGRAMS;

/// Runs the conformance tests again in a process of their own, whose server has this version.
fn conforms_on(version: u32) {
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/node/node_modules");
    let processor = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let programs = format!("{installed}/postgresql-{version}-{processor}/native/bin");
    let found = Command::new(format!("{programs}/postgres")).arg("--version").output();
    let found = String::from_utf8(found.expect("`make tools` installs it").stdout).unwrap();
    assert!(found.contains(&format!(" {version}.")), "{found}");
    let mut tests = Command::new(env::current_exe().unwrap());
    let tests = tests.args(["conformance::postgresql::", "postgresql::tables_made_by"]);
    let ended = tests.env(PROGRAMS, programs).output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && !printed.contains(" 0 passed"), "{printed}");
}

/// There is no package of it for another processor.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_oldest_supported_version_conforms() {
    conforms_on(13);
}

#[test]
fn the_newest_supported_version_conforms() {
    conforms_on(18);
}
