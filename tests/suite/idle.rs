//! A short run of the load of idle agents, with a restart of the server.

#[path = "../load/idle/run/mod.rs"]
mod run;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{AT_ONCE, child, until, within};
use run::{Plan, measure};

/// Maximum time until the tool is built and its server runs.
const START_WAIT: Duration = Duration::from_secs(300);

fn plan() -> Plan {
    Plan {
        kalends: env!("CARGO_BIN_EXE_kalends").into(),
        // A machine that is busy for seconds refuses no agent.
        arguments: ["--hello-timeout-ms=60000", "--request-headers-timeout-ms=60000"]
            .map(str::to_owned)
            .into(),
        data_dir: None,
        agents: 200,
        connecting_max: 32,
        ping_s: 1,
        pushes_per_second: 100,
        seconds: 1,
        interrupted: Arc::default(),
    }
}

#[test]
fn all_idle_agents_get_their_pushes_and_return_after_a_restart() {
    let report = measure(&plan()).unwrap();
    let shown = report.to_string();
    let (pushes, restart) = (&report.pushes, &report.restart);
    let counts = [pushes.sent, pushes.accepted, pushes.arrived, pushes.missing];
    assert_eq!(counts, [100, 100, 100, 0], "{shown}");
    let lost = [report.closed, report.accepting.refused, restart.refused, restart.forgotten];
    assert_eq!(lost, [0; 4], "{shown}");
    assert!(report.idle.pings > 0 && report.idle_after_restart.pings == 0, "{shown}");
    for durations in [&pushes.to_201_ms, &pushes.to_frame_ms] {
        let sorted = [0.0, durations.p50, durations.p99, durations.p999, durations.max];
        assert!(sorted[0] < sorted[1] && sorted.is_sorted(), "{shown}");
    }
    let durations = [report.accepting.seconds, restart.stop_s, restart.start_s, restart.back_s];
    assert!(durations.iter().all(|seconds| *seconds > 0.0), "{shown}");
    assert!(report.accepting.cpu_s > 0.0 && report.each.push_cpu_us > 0.0, "{shown}");
    let first = &report.accepting;
    assert!(first.first_agents == 100 && first.first_memory.server_kib > 0, "{shown}");
    let slopes = [&report.each.server_kib, &report.each.kernel_kib, &report.each.cpu_us_per_ping];
    assert!(slopes.iter().all(|each| each.is_none_or(|each| each > 0.0)), "{shown}");
}

#[test]
fn a_server_that_does_not_start_is_an_error_with_its_log() {
    let arguments = vec!["--workers=many".to_owned()];
    let error = measure(&Plan { arguments, ..plan() }).err().unwrap();
    assert!(error.contains("the server does not start") && error.contains("--workers"), "{error}");
    let error = measure(&Plan { kalends: "/nowhere".into(), ..plan() }).err().unwrap();
    assert!(error.contains("/nowhere cannot be started"), "{error}");
}

#[test]
fn a_program_that_is_no_server_is_an_error_with_what_it_printed() {
    let error = measure(&Plan { kalends: "/bin/echo".into(), ..plan() }).err().unwrap();
    assert!(error.contains("the server printed \"serve --listen"), "{error}");
}

#[test]
fn a_run_that_is_interrupted_names_its_phase() {
    let interrupted = Arc::new(AtomicBool::new(true));
    let error = measure(&Plan { interrupted, ..plan() }).err().unwrap();
    assert_eq!(error, "interrupted in phase 1, nothing was written");
}

#[tokio::test]
async fn sigterm_to_the_tool_ends_the_server_and_removes_its_folder() {
    let dir = TempDir::new().unwrap();
    let (temporary, json) = (dir.path().join("temporary"), dir.path().join("run.json"));
    fs::create_dir(&temporary).unwrap();
    let mut command = tokio::process::Command::from(tool());
    command.args([
        "--kalends",
        env!("CARGO_BIN_EXE_kalends"),
        "--agents=20",
        "--seconds=3600",
        "--json",
    ]);
    command.arg(&json).env("TMPDIR", &temporary).stdin(Stdio::null()).stderr(Stdio::piped());
    let running = command.kill_on_drop(true).spawn().unwrap();
    until(START_WAIT, "the server runs", async || servers(&temporary) == 1).await;
    let pid = running.id().and_then(|pid| Pid::from_raw(pid as i32)).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = within(AT_ONCE, "the tool ends", running.wait_with_output()).await.unwrap();
    let shown = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{shown}");
    assert!(shown.ends_with("interrupted in phase 1, nothing was written\n"), "{shown}");
    assert_eq!(servers(&temporary), 0, "{shown}");
    let left = [&temporary, dir.path()].map(|dir| fs::read_dir(dir).unwrap().count());
    assert_eq!(left, [0, 1], "only the folder itself is left");
}

/// The tool of these sources. Only `cargo test --workspace` builds examples, and this builds nothing after it.
fn tool() -> Command {
    let kalends = Path::new(env!("CARGO_BIN_EXE_kalends"));
    let profile = kalends.parent().expect("it is in the folder of its profile");
    let mut cargo = child(env!("CARGO"));
    cargo.args(["build", "--workspace", "--locked", "--offline", "--example=idle", "--target-dir"]);
    cargo.arg(profile.parent().expect("that is in the target directory"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args((!cfg!(debug_assertions)).then_some("--release"));
    let built = cargo.output().expect("cargo can be run");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    child(profile.join("examples/idle"))
}

/// The number of processes whose log is in this folder.
fn servers(dir: &Path) -> usize {
    let processes = fs::read_dir("/proc").expect("Linux has it").filter_map(Result::ok);
    let logs = processes.filter_map(|process| fs::read_link(process.path().join("fd/2")).ok());
    logs.filter(|log| log.starts_with(dir)).count()
}
