//! A Redis on a socket of its own, without files.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use redis::{Client, Connection};
use tempfile::TempDir;

use crate::harness::{AT_ONCE, child, until};

/// A running Redis, which ends when this is dropped.
pub(crate) struct RedisServer {
    process: Child,
    dir: TempDir,
}

impl RedisServer {
    pub(crate) async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let started = child("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", "socket"])
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .spawn();
        let process = started.unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => {
                panic!("redis-server is missing: `make tools` installs it (Debian package redis-server)")
            }
            _ => panic!("redis-server cannot be started: {error}"),
        });
        let server = Self { process, dir };
        until(AT_ONCE, "Redis accepts connections", async || {
            UnixStream::connect(server.socket()).is_ok()
        })
        .await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket())
    }

    pub(crate) fn connection(&self) -> Connection {
        let client = Client::open(self.url()).expect("the URL is one");
        client.get_connection().expect("Redis accepts connections")
    }

    /// Every command that Redis executes from now on, one a line.
    pub(crate) fn commands(&self) -> impl Iterator<Item = String> + use<> {
        let mut monitor = UnixStream::connect(self.socket()).expect("Redis accepts connections");
        monitor.write_all(b"MONITOR\r\n").expect("Redis reads");
        let mut lines = BufReader::new(monitor).lines().map(|line| line.expect("Redis writes"));
        assert_eq!(lines.next().as_deref(), Some("+OK"));
        lines
    }

    fn socket(&self) -> String {
        self.dir.path().join("socket").to_str().expect("the path is text").to_owned()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
