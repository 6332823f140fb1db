//! The RPM package, installed into a root of its own and removed from it.

use tempfile::TempDir;

use super::{Packed, lines, succeeded};
use crate::harness::child;

#[test]
fn the_rpm_package_installs_a_program_that_runs_and_removes_it() {
    let (packed, root) = (Packed::shared(), TempDir::new().unwrap());
    let rpm = |arguments: &[&str]| {
        let mut command = child("unshare");
        command.args(["--map-root-user", "rpm", "--noscripts", "--nodeps"]);
        succeeded(command.arg(format!("--root={}", root.path().display())).args(arguments));
    };
    let package = packed.file(".rpm").display().to_string();
    rpm(&["--install", &package]);
    let program = root.path().join("usr/bin/kalends");
    let version = lines(child(&program).arg("--version")).concat();
    assert!(version.starts_with(&format!("kalends {} ", env!("CARGO_PKG_VERSION"))), "{version}");
    assert!(root.path().join("usr/lib/sysusers.d/kalends.conf").exists());
    rpm(&["--erase", "kalends"]);
    assert!(!program.exists());
}

#[test]
fn the_rpm_package_makes_the_user_and_keeps_changed_settings() {
    let packed = Packed::shared();
    let asked =
        |question: &str| lines(child("rpm").args(["-qp", question]).arg(packed.file(".rpm")));
    let scripts = asked("--scripts").join("\n");
    let (installed, removed) = scripts.split_once("preuninstall").unwrap();
    assert!(installed.contains("systemd-sysusers kalends.conf"), "{scripts}");
    assert!(removed.contains("try-restart kalends.service"), "{scripts}");
    assert_eq!(asked("--configfiles"), ["/etc/kalends/kalends.toml"]);
    let flags = asked("--queryformat=[%{FILENAMES} %{FILEFLAGS:fflags}\n]");
    // `c` is a file of settings, `n` one that an upgrade does not replace.
    assert!(flags.contains(&"/etc/kalends/kalends.toml cn".to_owned()), "{flags:?}");
    assert!(asked("--requires").contains(&"systemd".to_owned()));
}
