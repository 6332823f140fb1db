//! Application servers: the Python library pywebpush, and `kalends push`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use actix_web::rt::System;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::{child, python, within};

/// Maximum time to send a few messages, on a busy machine.
const SENDING_WAIT: Duration = Duration::from_secs(60);

/// A message that pywebpush sends.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Push<'a> {
    /// The text; `None` for a push without payload.
    pub(super) text: Option<&'a str>,
    /// `aes128gcm`, or the older `aesgcm`.
    pub(super) encoding: &'a str,
    /// The scheme of the VAPID token: `vapid`, or the older `WebPush`.
    pub(super) scheme: &'a str,
}

/// The answer to a push.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The text of the answer.
    pub(super) body: String,
}

/// An application server with its own VAPID key.
pub(super) struct Sender {
    python: PathBuf,
    dir: TempDir,
    public_key: String,
    /// A certificate authority, of the test's push server.
    authority: Option<PathBuf>,
}

impl<'a> Push<'a> {
    /// A message with the encoding `aes128gcm`.
    pub(super) fn of(text: &'a str) -> Self {
        Self { text: Some(text), encoding: "aes128gcm", scheme: "vapid" }
    }
}

impl Sender {
    /// Generates a key with py-vapid.
    pub(super) fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let mut sender = Self { python: python(), dir, public_key: String::new(), authority: None };
        let key = sender.key_file();
        let made = output(sender.script().arg("key").arg(key));
        sender.public_key = made.trim().to_owned();
        sender
    }

    /// Trusts the certificates of this authority.
    pub(super) fn trust(&mut self, authority: PathBuf) {
        self.authority = Some(authority);
    }

    /// The public key, as a page passes it to the browser.
    pub(super) fn public_key(&self) -> &str {
        &self.public_key
    }

    /// Sends messages with pywebpush, one after the other.
    pub(super) fn pywebpush(&self, subscription: &Value, pushes: &[Push<'_>]) -> Vec<Answer> {
        #[derive(Serialize)]
        struct Order<'a> {
            subscription: &'a Value,
            key: &'a Path,
            #[serde(flatten)]
            push: Push<'a>,
        }
        let key = &*self.key_file();
        let orders = pushes.iter().map(|&push| Order { subscription, key, push });
        let orders = serde_json::to_string(&orders.collect::<Vec<_>>());
        let file = self.write("orders.json", &orders.expect("orders are JSON"));
        let answers = output(self.script().arg("push").arg(file));
        serde_json::from_str(&answers).expect("the script prints its answers")
    }

    /// Sends a message with `kalends push`, which must be accepted.
    pub(super) fn kalends(&self, subscription: &Value, text: &str) {
        let mut push = self.kalends_push(subscription, text);
        accepted(push.arg("--vapid-key").arg(self.key_file()));
    }

    /// Like [`kalends`](Self::kalends), without a signature, for a message that is older than a
    /// signature may be.
    pub(super) fn kalends_unsigned(&self, subscription: &Value, text: &str) {
        let mut push = self.kalends_push(subscription, text);
        accepted(push.args(["--no-vapid", "--ttl", "2592000"]));
    }

    fn kalends_push(&self, subscription: &Value, text: &str) -> Command {
        let subscription = self.write("subscription.json", &subscription.to_string());
        let mut push = Command::from(child(env!("CARGO_BIN_EXE_kalends")));
        push.arg("push").arg("--subscription").arg(subscription).args(["--message", text]);
        push.envs(self.authority.iter().map(|path| ("SSL_CERT_FILE", path)));
        push
    }

    fn key_file(&self) -> PathBuf {
        self.dir.path().join("vapid.pem")
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("a temporary file can be written");
        path
    }

    fn script(&self) -> Command {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/senders/python_sender.py");
        let mut command = Command::from(child(&self.python));
        // The server is on this machine, whatever proxy is configured.
        command.arg(script).env("NO_PROXY", "*");
        command.envs(self.authority.iter().map(|path| ("REQUESTS_CA_BUNDLE", path)));
        command
    }
}

/// Runs a `kalends push` that must be accepted.
fn accepted(push: &mut Command) {
    let answer = output(push);
    assert!(answer.starts_with("201 "), "{answer}");
}

/// The output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let command = command.stdin(Stdio::null()).kill_on_drop(true);
    let run = async { within(SENDING_WAIT, "messages are sent", command.output()).await };
    let output = System::new().block_on(run);
    let output = output.expect("it can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {errors}");
    String::from_utf8(output.stdout).expect("it prints text")
}
