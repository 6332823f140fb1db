//! The Debian package: installed into a root of its own, started as its unit says, and removed.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use tempfile::TempDir;

use super::{Packed, answers, lines};
use crate::harness::{child, run};

/// A root file system in which nothing is installed.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(TempDir::new().expect("a temporary directory can be made"));
        for folder in ["info", "updates", "triggers"] {
            let path = root.path("/var/lib/dpkg").join(folder);
            fs::create_dir_all(path).expect("a directory can be made");
        }
        fs::write(root.path("/var/lib/dpkg/status"), "").expect("a file can be written");
        root
    }

    fn path(&self, absolute: &str) -> PathBuf {
        self.0.path().join(absolute.trim_start_matches('/'))
    }

    /// Runs dpkg on this root, as its root user.
    fn dpkg(&self, arguments: &[&str]) -> Output {
        let mut command = child("unshare");
        command.args(["--map-root-user", "dpkg", "--force-script-chrootless", "--force-depends"]);
        let root = format!("--root={}", self.0.path().display());
        let output = command.arg(root).args(arguments).output().expect("dpkg can be run");
        assert!(output.status.success(), "{output:?}");
        output
    }

    fn text(&self, absolute: &str) -> String {
        fs::read_to_string(self.path(absolute))
            .unwrap_or_else(|error| panic!("{absolute}: {error}"))
    }
}

#[actix_web::test]
async fn the_package_installs_a_server_that_starts_and_leaves_its_data_when_it_is_purged() {
    let (packed, root) = (Packed::shared(), Root::new());
    root.dpkg(&["--install", &packed.file(".deb").display().to_string()]);
    assert!(root.text("/etc/passwd").starts_with("kalends:"));
    let wanted = root.path("/etc/systemd/system/multi-user.target.wants/kalends.service");
    assert!(wanted.is_symlink(), "the unit is enabled");

    let unit = root.text("/usr/lib/systemd/system/kalends.service");
    let exec = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<_> = exec.split(' ').collect();
    assert_eq!(words, ["/usr/bin/kalends", "serve", "--config", "/etc/kalends/kalends.toml"]);
    let data = root.path("/var/lib/kalends");
    assert!(unit.contains("Environment=KALENDS_DATA_DIR=/var/lib/kalends\n"));
    let mut command = child(root.path(words[0]));
    command.args(&words[1..3]).arg(root.path(words[3])).args(["--listen", "127.0.0.1:0"]);
    command.env("KALENDS_DATA_DIR", &data).env("KALENDS_METRICS_LISTEN", "off");
    answers(command, None).await;
    let settings = root.text(words[3]);
    assert!(settings.ends_with("\ndata_dir = \"/var/lib/kalends\"\n"), "{settings}");
    let here = root.path("/etc/kalends/here.toml");
    fs::write(&here, settings.replace("/var/lib/kalends", &data.display().to_string())).unwrap();
    run(&["tables", "list", "--config", &here.display().to_string()]).await.succeeded();
    fs::remove_file(here).unwrap();

    let output = root.dpkg(&["--purge", "kalends"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("/var/lib/kalends is left"), "{told}");
    for gone in [words[0], words[3], "/usr/share/man/man1/kalends.1.gz"] {
        assert!(!root.path(gone).exists(), "{gone}");
    }
    assert!(!wanted.is_symlink() && data.join("keys.toml").exists());
}

#[test]
fn the_packaged_program_is_stripped_and_names_its_symbols() {
    let (packed, root) = (Packed::shared(), Root::new());
    root.dpkg(&["--unpack", &packed.file(".deb").display().to_string()]);
    let program = root.path("/usr/bin/kalends");
    let sections =
        lines(child("readelf").args(["--section-headers", "--wide"]).arg(&program)).concat();
    assert!(sections.contains(".gnu_debuglink") && !sections.contains(".symtab"), "{sections}");
    let symbols = packed.file(".debug");
    let link = lines(child("readelf").arg("--string-dump=.gnu_debuglink").arg(&program)).concat();
    assert!(link.contains(&*symbols.file_name().unwrap().to_string_lossy()), "{link}");
    let sections =
        lines(child("readelf").args(["--section-headers", "--wide"]).arg(symbols)).concat();
    assert!(sections.contains(".symtab"), "{sections}");
}
