//! A real DynamoDB wire server on a free loopback port, in memory, for tests of any crate of this
//! workspace: include this file with `#[path]`. `make tools` builds the server (`tests/dynamodb`).
//!
//! It asks for credentials and a region and believes any: give every client fixed ones, in its
//! options or in the environment of a child process. Nothing is set in this process's environment.
//! Tests that share a server use a table prefix of their own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A running server. It ends when this is dropped, and with this process, also by a signal.
pub(crate) struct WireServer {
    /// What a client takes as its endpoint.
    pub(crate) url: String,
    /// The server reads its stdin, which is a pipe to us: it ends when we do.
    process: Child,
}

impl WireServer {
    /// Starts a server of its own. Panics where it was not built.
    pub(crate) fn start() -> Self {
        let program = program();
        assert!(program.exists(), "{} is not there: run `make tools`", program.display());
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("what `make tools` built can be run");
        let stdout = process.stdout.take().expect("it was piped");
        let first = BufReader::new(stdout).lines().next();
        let url = first.expect("the server prints its address").expect("a line of text");
        Self { url, process }
    }
}

impl Drop for WireServer {
    fn drop(&mut self) {
        // It may have ended already, which is no error.
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// The server of this process, started by the first test that asks.
pub(crate) fn shared() -> &'static WireServer {
    static SHARED: OnceLock<WireServer> = OnceLock::new();
    SHARED.get_or_init(WireServer::start)
}

/// Where `make tools` puts the server: below the folder that has `tests/dynamodb`.
fn program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find(|folder| folder.join("tests/dynamodb").exists())
        .expect("the sources are where they were built");
    root.join("target/dynamodb/debug/dynamodb-server")
}
