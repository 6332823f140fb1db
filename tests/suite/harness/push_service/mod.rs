//! A local server with the APIs of FCM, of Google's token server and of APNs, over TLS and HTTP/2.
//!
//! It accepts every message unless a test has scripted another reply, and verifies every signature.

mod credentials;
mod server;

use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hyper::HeaderMap;
use serde_json::Value;
use tempfile::TempDir;

use credentials::Credentials;

/// The name of the application at either bridge.
pub(crate) const APP: &str = "example";
/// The project of the service account.
pub(crate) const PROJECT: &str = "example-project";
pub(crate) const KEY_ID: &str = "ABCDE12345";
pub(crate) const TEAM_ID: &str = "TEAM567890";
pub(crate) const TOPIC: &str = "org.example.app";

/// A running server. Its thread ends with the process.
pub(crate) struct PushService {
    address: SocketAddr,
    shared: Arc<Shared>,
    dir: TempDir,
}

/// What the server's tasks share with the test.
struct Shared {
    credentials: Credentials,
    connections: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    messages: Vec<ReceivedMessage>,
    replies: VecDeque<Reply>,
    token_replies: VecDeque<Reply>,
    /// Each is unlike the others.
    tokens_issued: usize,
    token_requests: usize,
    token_life_s: u64,
    /// The reply to messages that no test has scripted.
    usual: Reply,
}

/// A message that the server received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedMessage {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    /// The claims of the token that it was sent with, if that was signed by the application itself.
    pub(crate) claims: Option<Value>,
    /// The number of its connection, from 1.
    pub(crate) connection: usize,
    /// Whether the connection has a client certificate.
    pub(crate) has_certificate: bool,
}

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
        after: Duration,
    },
    /// GOAWAY, and the end of the connection.
    GoAway,
    /// The connection ends without a word.
    Close,
    /// The stream is reset.
    Reset,
    Silence,
    /// The connection is not read any more.
    Deaf,
}

impl Default for Reply {
    fn default() -> Self {
        Self::json(200, r#"{"name":"projects/example-project/messages/0:1"}"#)
    }
}

impl Reply {
    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::Answer { status, headers: Vec::new(), body: body.to_owned(), after: Duration::ZERO }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }

    pub(crate) fn after(mut self, wait: Duration) -> Self {
        if let Self::Answer { after, .. } = &mut self {
            *after = wait;
        }
        self
    }
}

impl PushService {
    pub(crate) fn start() -> Self {
        let credentials = Credentials::new();
        let state = Mutex::new(State { token_life_s: 3600, ..State::default() });
        let shared = Arc::new(Shared { credentials, connections: AtomicUsize::new(0), state });
        let address = server::start(Arc::clone(&shared));
        let dir = TempDir::new().expect("a temporary directory can be made");
        let service = Self { address, shared, dir };
        service.shared.credentials.write(service.dir.path(), &service.origin());
        service.write_bridges(&service.bridges_toml());
        service
    }

    pub(crate) fn origin(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// The file of bridges: one application of each bridge, both with this server.
    pub(crate) fn bridges_file(&self) -> PathBuf {
        self.dir.path().join("bridges.toml")
    }

    /// A file beside the file of bridges.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces the file of bridges.
    pub(crate) fn write_bridges(&self, text: &str) {
        fs::write(self.bridges_file(), text).expect("a file can be written");
    }

    /// The usual text of the file of bridges.
    pub(crate) fn bridges_toml(&self) -> String {
        let origin = self.origin();
        format!(
            "ca_file = \"ca.pem\"\n\n\
             [fcm.{APP}]\nservice_account = \"service-account.json\"\nbase_url = \"{origin}\"\n\n\
             [apns.{APP}]\nkey = \"AuthKey.p8\"\nkey_id = \"{KEY_ID}\"\nteam_id = \"{TEAM_ID}\"\n\
             topic = \"{TOPIC}\"\nbase_url = \"{origin}\"\n\n\
             [apns.certified]\ncertificate = \"client.pem\"\nkey = \"client.key\"\n\
             topic = \"{TOPIC}\"\nbase_url = \"{origin}\"\n"
        )
    }

    /// The next message gets this reply, after those that were scripted before.
    pub(crate) fn reply(&self, reply: Reply) {
        self.shared.state().replies.push_back(reply);
    }

    /// The next request for a token gets this reply.
    pub(crate) fn reply_to_token_request(&self, reply: Reply) {
        self.shared.state().token_replies.push_back(reply);
    }

    /// All messages without a scripted reply get this one.
    pub(crate) fn reply_always(&self, reply: Reply) {
        self.shared.state().usual = reply;
    }

    /// The `expires_in` of further tokens.
    pub(crate) fn set_token_life_s(&self, seconds: u64) {
        self.shared.state().token_life_s = seconds;
    }

    /// The messages so far, also those that were refused.
    pub(crate) fn messages(&self) -> Vec<ReceivedMessage> {
        self.shared.state().messages.clone()
    }

    pub(crate) fn token_requests(&self) -> usize {
        self.shared.state().token_requests
    }

    /// The number of connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no task of the server panics")
    }
}
