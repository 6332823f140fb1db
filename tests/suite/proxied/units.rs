//! The systemd units, checked by `systemd-analyze verify`.

use std::fs;
use std::process::Output;

use tempfile::TempDir;

use super::Sample;
use super::manual::{read, root};
use super::proxy_process::installed;
use crate::harness::child;

const UNITS: [&str; 3] = ["kalends.service", "kalends-connect.service", "kalends-endpoint.service"];
const SOCKET: &str = "kalends.socket";

/// The path of the program in the samples.
const PROGRAM: &str = "/usr/local/bin/kalends";

fn verify(change: impl Fn(Sample) -> Sample) -> Output {
    let units = UNITS.map(|unit| {
        let sample = Sample::read(unit).replace(PROGRAM, env!("CARGO_BIN_EXE_kalends"));
        (unit, change(sample).text().to_owned())
    });
    let socket = (SOCKET, Sample::read(SOCKET).text().to_owned());
    verify_all(&[&units[..], &[socket]].concat())
}

/// Verifies units, each with its name.
fn verify_all(units: &[(&str, String)]) -> Output {
    let dir = TempDir::new().expect("a temporary directory can be made");
    let files: Vec<_> = units.iter().map(|(name, _)| dir.path().join(name)).collect();
    for ((_, text), file) in units.iter().zip(&files) {
        fs::write(file, text).expect("a file can be written");
    }
    installed("systemd-analyze", |name| {
        child(name).args(["verify", "--man=no"]).args(&files).output()
    })
}

/// The output of the manual's command for a sample.
fn template() -> String {
    let manual = read("docs/operations/cluster.md");
    let command = manual.lines().find(|line| line.starts_with("sed -e "));
    let command = command.and_then(|line| line.split_once(" > ")).expect("the manual has it").0;
    let output = child("sh").args(["-c", command]).current_dir(root()).output();
    let output = output.expect("sh can be run");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a unit is text")
}

/// The complaints about these files; systemd may report others about this machine's own units.
fn diagnostics(output: &Output) -> Vec<String> {
    let output = String::from_utf8_lossy(&output.stderr);
    output.lines().filter(|line| line.contains("kalends")).map(str::to_owned).collect()
}

#[test]
fn the_units_expose_the_machine_to_little() {
    for unit in UNITS {
        let output = installed("systemd-analyze", |name| {
            let mut command = child(name);
            command.args(["security", "--offline=true", "--no-pager", "--threshold=15"]);
            command.arg(root().join("docs/deploy").join(unit)).output()
        });
        assert!(output.status.success(), "{unit}: {output:?}");
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(table.contains("Overall exposure level"), "{table}");
    }
}

#[test]
fn systemd_understands_the_units() {
    let output = verify(|sample| sample);
    assert_eq!(diagnostics(&output), [""; 0], "{output:?}");
    assert!(output.status.success(), "{output:?}");
    let broken = verify(|sample| sample.replace("TimeoutStopSec=", "TimeoutStop="));
    assert_eq!(diagnostics(&broken).len(), UNITS.len(), "{broken:?}");
}

#[test]
fn the_template_unit_has_separate_settings_and_data_for_each_node() {
    let text = template();
    for line in [
        "ExecStart=/usr/local/bin/kalends serve --role connection --config /etc/kalends/kalends-%i.toml",
        "StateDirectory=kalends-%i",
        "StateDirectoryMode=0700",
        "WorkingDirectory=/var/lib/kalends-%i",
        "Environment=KALENDS_DATA_DIR=/var/lib/kalends-%i",
        "EnvironmentFile=-/etc/kalends/aws.env",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}\n{text}");
    }
    let text = text.replace(PROGRAM, env!("CARGO_BIN_EXE_kalends"));
    let output = verify_all(&[("kalends-connect@1.service", text)]);
    assert_eq!(diagnostics(&output), [""; 0], "{output:?}");
    assert!(output.status.success(), "{output:?}");
}
