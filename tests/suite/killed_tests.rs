//! What a test starts ends with it, also if its process is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs};

use futures_util::future::join_all;
use tokio::process::Command;
use tokio::time::sleep;

use crate::harness::{child, until};

/// Tests with programs besides `kalends`, and the last program that each of them starts.
const TESTS: [(&str, &str); 8] = [
    ("browser::firefox_receives_missed_and_live_broadcast_versions", "Web Content"),
    (
        "matrix::synapse::synapse_notifies_an_app_repeats_what_is_refused_and_removes_a_rejected_pusher",
        "python",
    ),
    (
        "proxied::cluster::agents_are_on_all_nodes_and_get_their_pushes_through_nginx_and_caddy",
        "nginx",
    ),
    (
        "proxied::cluster::agents_are_on_all_nodes_and_get_their_pushes_through_nginx_and_caddy",
        "caddy",
    ),
    (
        "migration::imports::redis::another_import_undoes_nothing_that_an_agent_did_since",
        "redis-server",
    ),
    (
        "metrics::prometheus_scrapes_a_server_and_knows_each_metric_of_the_board_and_the_rules",
        "prometheus",
    ),
    ("acme::a_certificate_is_ordered_by_tls_alpn_01_without_a_port_of_http", "pebble"),
    ("idle::all_idle_agents_get_their_pushes_and_return_after_a_restart", "kalends"),
];

/// Until a browser or Synapse has started beside other tests.
const START_WAIT: Duration = Duration::from_secs(120);

/// The files of all processes are read each time.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A process by its id and the time of its start, as an id may be used again.
type Process = (u32, String);

#[tokio::test]
async fn no_program_outlives_the_killed_process_of_a_test() {
    join_all(TESTS.map(async |(test, last)| {
        let run = || {
            let mut command = Command::from(child(env::current_exe().expect("it runs")));
            command.args(["--exact", test]).stdout(Stdio::null()).stderr(Stdio::null());
            command.kill_on_drop(true).spawn().expect("it can be run once more")
        };
        let (mut process, mut started) = (run(), BTreeMap::new());
        until(START_WAIT, &format!("{last} of {test}"), async || {
            sleep(POLL_INTERVAL).await;
            // On a busy machine the test may have ended between two looks.
            if process.try_wait().expect("it can be asked").is_some() {
                process = run();
            }
            started = descendants(process.id().expect("it was not waited for"));
            started.values().any(|name| name.starts_with(last))
        })
        .await;
        process.kill().await.expect("it can be killed");
        let mut left = Vec::new();
        until(START_WAIT, test, async || {
            sleep(POLL_INTERVAL).await;
            let running: BTreeSet<Process> = processes().map(|(process, ..)| process).collect();
            left = started.iter().filter(|(process, _)| running.contains(process)).collect();
            left.is_empty()
        })
        .await;
    }))
    .await;
}

/// The names of the children of a process, of their children, and so on.
fn descendants(pid: u32) -> BTreeMap<Process, String> {
    let mut found = BTreeMap::new();
    let mut parents = BTreeSet::from([pid]);
    // Children are most often younger, and have a greater id.
    let mut all: Vec<_> = processes().collect();
    while let Some(at) = all.iter().position(|(.., parent)| parents.contains(parent)) {
        let (process, name, _) = all.swap_remove(at);
        parents.insert(process.0);
        found.insert(process, name);
    }
    found
}

/// Each running process with its name and its parent.
fn processes() -> impl Iterator<Item = (Process, String, u32)> {
    let entries = fs::read_dir("/proc").expect("Linux has it").filter_map(Result::ok);
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        let is_running = fields[0] != "Z";
        is_running.then_some((
            (pid, fields[19].to_owned()),
            name.to_owned(),
            fields[1].parse().ok()?,
        ))
    })
}
