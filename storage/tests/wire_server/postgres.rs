//! A real PostgreSQL server in a directory of its own, reached by a socket in it, for tests of any crate of this workspace:
//! include this file with `#[path]`. `make tools` installs the server.
//!
//! It does not run as root: then it is that of the user `postgres`, or of `nobody`.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A running server. It ends when this is dropped, and with this process, also by a signal, and takes its directory along.
pub(crate) struct PostgresServer {
    /// What a client takes as its URL.
    pub(crate) url: String,
    process: Child,
}

/// Its stdin is a pipe to us, and ends when we do.
const SCRIPT: &str = r#"
initdb -D "$1/data" -U kalends -A trust -E UTF8 --locale=C --no-sync >"$1/initdb" 2>&1 || { cat "$1/initdb" >&2; exit 1; }
postgres -D "$1/data" -k "$1" -c listen_addresses= -c max_connections=500 -c shared_buffers=64MB \
    -c max_wal_size=256MB >"$1/log" 2>&1 &
until pg_isready -q -h "$1"; do
    kill -0 $! 2>/dev/null || { cat "$1/log" >&2; exit 1; }
    sleep 0.02
done
echo ready
cat >/dev/null
kill -QUIT $! 2>/dev/null
wait
rm -rf "$1"
"#;

impl PostgresServer {
    /// Starts a server of its own. Panics where none is installed.
    pub(crate) fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("postgresql").tempdir_in(fast_dir());
        let dir = dir.expect("a temporary directory can be made").keep();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "postgresql"]).arg(&dir).env("PATH", path()).current_dir(&dir);
        if fs::metadata(&dir).expect("it was made").uid() == 0 {
            let (uid, gid) = user();
            chown(&dir, Some(uid), Some(gid)).expect("root may give it away");
            command.uid(uid).gid(gid);
        }
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.expect("there is a shell");
        let stdout = process.stdout.take().expect("it was piped");
        let first = BufReader::new(stdout).lines().next();
        assert!(matches!(first, Some(Ok(_))), "PostgreSQL does not start: run `make tools`");
        let socket = dir.to_str().expect("a temporary path is text").replace('/', "%2F");
        Self { url: format!("postgresql://kalends@{socket}/postgres"), process }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It may have ended already, which is no error.
        let _ended = self.process.wait();
    }
}

/// The server of this process, started by the first test that asks.
pub(crate) fn shared() -> &'static PostgresServer {
    static SHARED: OnceLock<PostgresServer> = OnceLock::new();
    SHARED.get_or_init(PostgresServer::start)
}

/// A directory in memory if there is one: many tests share a disk.
fn fast_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.exists() { memory.to_owned() } else { std::env::temp_dir() }
}

/// With the programs of the newest version that Debian has installed, which are on no path.
fn path() -> OsString {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(number);
    let mut path = OsString::new();
    if let Some(newest) = newest {
        path.push(newest.join("bin"));
        path.push(":");
    }
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

fn user() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(str::parse::<u32>);
        Some((ids.next()?.ok()?, ids.next()?.ok()?))
    };
    of("postgres").or_else(|| of("nobody")).expect("there is a user without rights")
}
