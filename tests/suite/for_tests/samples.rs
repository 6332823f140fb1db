//! The samples of docs/for-tests.md, run as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use actix_web::rt::System;
use tempfile::TempDir;
use tokio::process::Command;

use crate::browser::Turn;
use crate::harness::{child, node_modules, python, within};

/// Maximum time for the tests of a sample, on a busy machine.
const SAMPLE_WAIT: Duration = Duration::from_secs(180);

pub(super) fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/for-tests.md");
    fs::read_to_string(page).expect("the page is there")
}

/// Writes the samples of the page under their names.
fn written(names: &[&str]) -> TempDir {
    let (dir, page) = (TempDir::new().expect("a directory can be made"), page());
    for name in names {
        let sample = page.split_once(&format!("\n`{name}`:\n\n```")).map(|(_, rest)| rest);
        let sample = sample.and_then(|rest| rest.split_once('\n')?.1.split("```\n").next());
        let sample = sample.unwrap_or_else(|| panic!("the page has no {name}"));
        fs::write(dir.path().join(name), sample).expect("a file can be written");
    }
    dir
}

/// Runs a program in the directory of its sample, with `kalends` on the path.
async fn passes(dir: &TempDir, program: impl AsRef<Path>, words: &[&str]) -> String {
    let kalends = Path::new(env!("CARGO_BIN_EXE_kalends")).parent().expect("it is in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::from(child(program.as_ref()));
    command.args(words).current_dir(dir.path()).kill_on_drop(true);
    command.env("PATH", format!("{}:{path}", kalends.display())).env("FIREFOX", firefox());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("TMPDIR", dir.path());
    let ended = within(SAMPLE_WAIT, "the sample ends", command.output()).await;
    let ended = ended.expect("the program can be started");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{stdout}\n{stderr}");
    stdout
}

/// The path of the packaged Firefox.
fn firefox() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("firefox-esr"));
    found.into_iter().find(|file| file.exists()).expect("Firefox is installed")
}

async fn node(dir: &TempDir, file: &str, passed: usize) {
    std::os::unix::fs::symlink(node_modules(), dir.path().join("node_modules"))
        .expect("a link can be made");
    let printed = passes(dir, "node", &["--test", "--test-reporter=tap", file]).await;
    assert!(printed.contains(&format!("\n# pass {passed}\n")), "{printed}");
}

#[actix_web::test]
async fn the_samples_for_pytest_pass() {
    let dir = written(&["conftest.py", "test_push.py"]);
    let words = ["-m", "pytest", "-q", "-p", "no:cacheprovider"];
    let printed = passes(&dir, python(), &words).await;
    assert!(printed.contains("4 passed"), "{printed}");
}

#[actix_web::test]
async fn the_samples_for_node_pass() {
    node(&written(&["kalends.mjs", "push.test.mjs"]), "push.test.mjs", 2).await;
}

#[test]
fn the_sample_with_firefox_passes() {
    let _turn = Turn::wait();
    let dir = written(&["kalends.mjs", "firefox.test.mjs"]);
    System::new().block_on(node(&dir, "firefox.test.mjs", 1));
}
