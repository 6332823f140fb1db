//! What `packaging/pack` makes of the program under test: installed, unpacked and started, and made a second time.

mod debian;
mod image;
mod published;
mod rpm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, Weak};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::harness::{AT_ONCE, child, run, within};

/// What packaging/publisher has once its owner has filled it in.
const PUBLISHER: [(&str, &str); 2] = [
    ("MAINTAINER", "Ada Example <ada@push.example>"),
    ("DOWNLOADS", "https://push.example/kalends/"),
];

/// All artefacts, not compressed, signed with a key of their own.
struct Packed {
    folder: TempDir,
    key: TempDir,
}

impl Packed {
    fn new() -> Self {
        let key = TempDir::new().expect("a temporary directory can be made");
        let mut command = child("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key.path().join("key"));
        succeeded(&mut command);
        Self::with_key(key, &[])
    }

    /// The same with other variables.
    fn with_key(key: TempDir, variables: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().expect("a temporary directory can be made");
        let mut command = child(repository().join("packaging/pack"));
        command.arg(folder.path()).arg(env!("CARGO_BIN_EXE_kalends"));
        // The scripts run Cargo, which is no part of what is compiled.
        command.env_remove("RUSTC_WORKSPACE_WRAPPER").env("COMPRESSION", "none");
        command.env("RELEASE_KEY", key.path().join("key")).envs(PUBLISHER);
        command.envs(variables.iter().copied());
        let output = succeeded(&mut command);
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!complaints.contains("NOT"), "{complaints}");
        Self { folder, key }
    }

    /// The artefacts of all tests that run now. The last of them removes them.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Packed>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|panicked| panicked.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let packed = Arc::new(Self::new());
            *shared = Arc::downgrade(&packed);
            packed
        })
    }

    /// The artefact whose name ends so.
    fn file(&self, end: &str) -> PathBuf {
        let mut names = self.names().into_iter().filter(|name| name.ends_with(end));
        let name = names.next().unwrap_or_else(|| panic!("{end} is made: {:?}", self.names()));
        self.folder.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("it can be read");
        let names = entries.map(|entry| entry.expect("it can be read").file_name());
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// The lines that a command prints.
fn lines(command: &mut Command) -> Vec<String> {
    let output = succeeded(command).stdout;
    String::from_utf8_lossy(&output).lines().map(str::to_owned).collect()
}

/// Unpacks a tar into a folder. The files belong to the user of the tests.
fn unpack(archive: &Path, folder: &Path) {
    let mut command = child("tar");
    command.args(["--no-same-owner", "-xf"]).arg(archive).arg("-C").arg(folder);
    succeeded(&mut command);
}

/// Starts a server with this command, until its port answers that it is healthy. `health` asks it: by the program under
/// test, or by this command.
async fn answers(server: Command, health: Option<Command>) {
    let mut server = tokio::process::Command::from(server);
    server.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut server = server.spawn().expect("it can be started");
    let output = server.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines();
    let greeting = within(AT_ONCE, "the server starts", lines.next_line()).await;
    let greeting = greeting.expect("it can be read").expect("it greets");
    let url = greeting.strip_prefix("Kalends is listening on ").expect("it has an address");
    if let Some(mut command) = health {
        succeeded(command.args(["health", "--url", url]));
    } else {
        run(&["health", "--url", url]).await.succeeded();
    }
    server.kill().await.expect("it can be ended");
}
