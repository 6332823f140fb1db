//! The bench, small, and against a debug build: what it measures, and when it fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{AT_ONCE, ExitOutput, child, until, within};

/// Maximum time of a small bench, and of a build of it.
const BENCH_WAIT: Duration = Duration::from_secs(300);

/// Sizes of a bench that ends soon.
const SMALL: [&str; 9] = [
    "--clients=20",
    "--messages=100",
    "--stored-each=2",
    "--idle-first=300",
    "--connections=800",
    "--followers=10",
    "--updates=5",
    "--idle-followers=600",
    "--idle-s=0",
];

/// Settings of the server's allocator. Few idle peers hold less than a huge page, and less than what a server frees after
/// its start.
const EXACT_MEMORY: [(&str, &str); 2] =
    [("MIMALLOC_ALLOW_THP", "0"), ("MIMALLOC_PURGE_DELAY", "-1")];

/// Each operation, and whether the floor has it, too.
const OPERATIONS: [(&str, bool); 10] = [
    ("direct_vapid", false),
    ("direct", true),
    ("stored", false),
    ("stored_p99", false),
    ("drain", false),
    ("connect", true),
    ("connect_register", false),
    ("idle", true),
    ("feed_update", false),
    ("idle_follower", false),
];

/// More µs, ms or KiB than any of them costs.
const FIGURE_MAX: f64 = 1e5;

/// An example of these sources. Only `cargo test --workspace` builds examples, and this builds nothing after it.
pub(crate) fn example(name: &str) -> Command {
    let kalends = Path::new(env!("CARGO_BIN_EXE_kalends"));
    let profile = kalends.parent().expect("it is in the folder of its profile");
    let target = profile.parent().expect("that is in the target directory");
    let mut cargo = child(env!("CARGO"));
    cargo.args(["build", "--workspace", "--locked", "--offline", "--example", name]);
    cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args((!cfg!(debug_assertions)).then_some("--release"));
    let built = cargo.output().expect("cargo can be run");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = child(profile.join("examples").join(name));
    command.stdin(Stdio::null());
    command
}

fn bench() -> Command {
    let mut command = example("bench");
    command.args(SMALL).envs(EXACT_MEMORY);
    command
}

async fn output(command: Command) -> ExitOutput {
    let mut command = tokio::process::Command::from(command);
    let ended = command.kill_on_drop(true).output();
    let output = within(BENCH_WAIT, "the bench ends", ended).await;
    output.expect("it can be started").into()
}

fn measure(baseline: &Path) -> Command {
    let mut command = bench();
    command.args([
        "--kalends",
        env!("CARGO_BIN_EXE_kalends"),
        "--rounds=1",
        "--json",
        "--baseline",
    ]);
    command.arg(baseline);
    command
}

#[tokio::test]
async fn the_bench_measures_every_operation_and_fails_above_its_baseline() {
    let dir = TempDir::new().expect("a folder can be made");
    let path = dir.path().join("bench.json");
    let mut command = measure(&path);
    command.arg("--write-baseline").args(["--before", env!("CARGO_BIN_EXE_kalends")]);
    let measured = output(command).await.succeeded();
    let measured: BTreeMap<String, Value> = serde_json::from_str(&measured).expect("JSON");
    for (operation, is_of_floor) in OPERATIONS {
        let of = &measured[operation];
        assert_eq!(of["floor"].is_object(), is_of_floor, "{operation}: {of}");
        for program in ["before", "now"].into_iter().chain(is_of_floor.then_some("floor")) {
            let median = of[program]["median"].as_f64().unwrap_or_default();
            assert!(median > 0.0 && median < FIGURE_MAX, "{operation}: {of}");
            let has_ratio = of[program]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0);
            assert_eq!(has_ratio, operation != "stored_p99", "{operation}: {of}");
        }
    }
    assert_eq!(measured.len(), OPERATIONS.len());

    falsify(&path, Some("drain"));
    let ExitOutput { code, stderr: log, .. } = output(measure(&path)).await;
    assert_eq!(code, Some(1), "{log}");
    let named = |what: &str| -> Vec<String> {
        let lines = log.lines().filter_map(|line| line.strip_prefix(what));
        lines.map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
    };
    let drain = "drain of a stored message, acked and deleted, µs";
    assert_eq!(named("regressed: "), [drain], "{log}");
    assert_eq!(named("improved: ").len(), OPERATIONS.len() - 2, "{log}");
    let last = "1 regression: stop other programs and repeat with ROUNDS=9";
    assert_eq!(log.lines().last(), Some(last), "{log}");

    falsify(&path, None);
    let ExitOutput { code, stderr: log, .. } = output(measure(&path)).await;
    assert_eq!((code, log.lines().last()), (Some(0), Some("no regression")), "{log}");
}

/// Makes this operation appear to have cost almost nothing, and all others very much.
fn falsify(baseline: &Path, cheap: Option<&str>) {
    let text = fs::read_to_string(baseline).expect("the bench has stored it");
    let mut stored: Value = serde_json::from_str(&text).expect("it is JSON");
    let ratios = stored["ratios"].as_object_mut().expect("it has ratios");
    assert_eq!(ratios.len(), OPERATIONS.len() - 1, "{text}");
    for (operation, ratio) in ratios {
        *ratio = json!(if Some(&**operation) == cheap { 1e-6 } else { 1e6 });
    }
    fs::write(baseline, stored.to_string()).expect("it can be written");
}

#[tokio::test]
async fn the_bench_names_what_it_cannot_measure() {
    let missing = "/nowhere/kalends";
    let dir = TempDir::new().expect("a folder can be made");
    let baseline = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("it can be written");
        format!("--baseline={}", path.display())
    };
    let unknown = baseline("bench.json", r#"{"tolerance":1.25,"ratios":{"nothing":1.0}}"#);
    let broken = baseline("broken", "{");
    for (program, more, error) in [
        (missing, None, "/nowhere/kalends cannot be started: No such file or directory"),
        ("/bin/false", None, "/bin/false printed \"\" in place of its address"),
        (missing, Some("--baseline=/nowhere/bench.json"), "no baseline in /nowhere/bench.json"),
        (missing, Some(&*unknown), "bench.json is not valid: unknown variant `nothing`"),
        (missing, Some(&*broken), "broken is not valid: EOF while parsing"),
    ] {
        let mut command = bench();
        command.args(["--kalends", program]).args(more);
        let ended = output(command).await;
        ended.failed(2, error);
        assert!(ended.stdout.is_empty() && !ended.stderr.contains("round 1"), "{ended:?}");
    }
}

#[tokio::test]
async fn the_load_of_feeds_prints_its_usage() {
    for arguments in [&[][..], &["publish", "127.0.0.1:1", "token", "no number"]] {
        let mut command = example("feed_load");
        command.args(arguments);
        let ended = output(command).await;
        ended.failed(2, "usage: feed_load publish|lag|broadcast ADDRESS");
        assert_eq!(ended.stdout, "");
    }
}

#[tokio::test]
async fn an_interrupted_bench_leaves_no_process_behind() {
    for server in ["floor", "serve"] {
        let dir = TempDir::new().expect("a folder can be made");
        let mut command = bench();
        command.args(["--kalends", env!("CARGO_BIN_EXE_kalends"), "--rounds=1000"]);
        command.env("TMPDIR", dir.path()).stderr(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        let mut running = command.kill_on_drop(true).spawn().expect("it can be started");
        until(BENCH_WAIT, "the server runs", async || {
            arguments_of_servers(dir.path()).iter().any(|arguments| arguments.contains(server))
        })
        .await;
        let pid = running.id().and_then(|pid| Pid::from_raw(pid as i32)).expect("it runs");
        kill_process(pid, Signal::INT).expect("it runs");
        let ended = within(AT_ONCE, "the bench ends", running.wait()).await;
        let status = ended.expect("it can be waited for");
        assert_eq!(status.code(), Some(130), "{status}");
        let is_gone = async || arguments_of_servers(dir.path()).is_empty();
        until(AT_ONCE, "the servers end", is_gone).await;
    }
}

/// The arguments of each process whose log is in the folder.
pub(crate) fn arguments_of_servers(dir: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("Linux has it");
    let paths = processes.filter_map(|process| Some(process.ok()?.path()));
    let logs_here =
        |path: &PathBuf| fs::read_link(path.join("fd/2")).is_ok_and(|log| log.starts_with(dir));
    let arguments = |path: PathBuf| fs::read_to_string(path.join("cmdline")).ok();
    paths.filter(logs_here).filter_map(arguments).collect()
}
