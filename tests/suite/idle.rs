//! A short run of the load of idle agents, with a restart of the server.

#[path = "../load/idle/run/mod.rs"]
mod run;

use run::{Plan, measure};

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
    assert!(report.accepting.cpu_s > 0.0 && report.each.server_kib > 0.0, "{shown}");
}

#[test]
fn a_server_that_does_not_start_is_an_error_with_its_log() {
    let arguments = vec!["--workers=many".to_owned()];
    let error = measure(&Plan { arguments, ..plan() }).err().unwrap();
    assert!(error.contains("the server does not start") && error.contains("--workers"), "{error}");
    let error = measure(&Plan { kalends: "/nowhere".into(), ..plan() }).err().unwrap();
    assert!(error.contains("/nowhere cannot be started"), "{error}");
}
