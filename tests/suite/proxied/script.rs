//! `make cluster ONCE=1`: the script that starts a cluster for a demonstration.

use std::fs;
use std::process::Stdio;

use crate::harness::child;
use tempfile::TempDir;

#[test]
fn make_cluster_pushes_through_each_pair_of_nodes_and_leaves_no_process() {
    let dir = TempDir::new().expect("a temporary directory can be made");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster");
    let mut command = child(script);
    command.env("ONCE", "1").env("KALENDS", env!("CARGO_BIN_EXE_kalends"));
    command.env("CLUSTER_DIR", dir.path()).stdin(Stdio::null());
    let output = command.output().expect("bash runs the script");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let expected = ["connect1", "connect2", "connect3"].map(|connect| {
        ["endpoint1", "endpoint2"].map(|endpoint| format!("{endpoint} -> {connect}: delivered\n"))
    });
    assert_eq!(printed, expected.concat().concat());
    for node in ["connect1", "connect2", "connect3", "endpoint1", "endpoint2"] {
        let log = fs::read_to_string(dir.path().join(node).join("log")).expect("a node has a log");
        assert!(log.contains("\"stopped\""), "{node} did not end by itself:\n{log}");
    }
}
