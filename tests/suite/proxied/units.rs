//! The units, read by systemd, which says what it does not understand.

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::Sample;
use super::front::installed;

const UNITS: [&str; 3] = ["kalends.service", "kalends-connect.service", "kalends-endpoint.service"];

fn verify(change: impl Fn(Sample) -> Sample) -> Output {
    let dir = TempDir::new().expect("a temporary directory can be made");
    let files = UNITS.map(|unit| dir.path().join(unit));
    for (unit, file) in UNITS.iter().zip(&files) {
        let program = env!("CARGO_BIN_EXE_kalends");
        let sample = Sample::read(unit).replace("/usr/local/bin/kalends", program);
        fs::write(file, change(sample).text()).expect("a file can be written");
    }
    installed("systemd-analyze", |name| {
        Command::new(name).args(["verify", "--man=no"]).args(&files).output()
    })
}

/// What it said of these files; it may have more to say of this machine's own.
fn complaints(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.contains("kalends")).map(str::to_owned).collect()
}

#[test]
fn systemd_understands_the_units() {
    let output = verify(|sample| sample);
    assert_eq!(complaints(&output), [""; 0], "{output:?}");
    assert!(output.status.success(), "{output:?}");
    let broken = verify(|sample| sample.replace("TimeoutStopSec=", "TimeoutStop="));
    assert_eq!(complaints(&broken).len(), UNITS.len(), "{broken:?}");
}
