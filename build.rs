//! Tells the program its commit and the date of that: from `KALENDS_COMMIT="COMMIT DATE"`, or from git. It runs again
//! only if the commit changes.

use std::env;
use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "KALENDS_COMMIT";

// `cargo test` and `cargo run` pass what is set here on to programs, and Kalends refuses a variable of its own that it does
// not know. So the names below begin with another word.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let given = env::var(VARIABLE).ok().filter(|given| !given.is_empty());
    let text = given.or_else(of_git).unwrap_or_default();
    let mut words = text.split_whitespace();
    let mut word = || words.next().unwrap_or("unknown");
    println!("cargo:rustc-env=BUILD_COMMIT={}", word());
    println!("cargo:rustc-env=BUILD_DATE={}", word());
}

/// The commit of the work tree that begins here, with its day in UTC.
fn of_git() -> Option<String> {
    // Sources inside of another project's work tree have no commit.
    if !Path::new(".git").exists() {
        return None;
    }
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let files = ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref());
    let paths = files.filter_map(|file| git(&["rev-parse", "--git-path", file]));
    // Cargo would run this each time for a file that is not there.
    for path in paths.filter(|path| Path::new(path).exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
    git(&["log", "-1", "--abbrev=8", "--date=format-local:%Y-%m-%d", "--format=%h %cd"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).env("TZ", "UTC").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
