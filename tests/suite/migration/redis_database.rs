//! A Redis on a socket of its own, without files, and what the `redis_client` of autopush-rs writes to it
//! (docs/sources.md#redis).

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use redis::{Client, Connection, cmd};
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

use super::autopush::{Database, StoredMessage, User};
use crate::harness::{AT_ONCE, child, until};

pub(crate) struct RedisDatabase {
    pub(crate) server: RedisServer,
    connection: Connection,
}

impl RedisDatabase {
    fn set(&mut self, key: &str, value: &str) {
        self.execute(&["SET", key, value, "EX", "5184000"]);
    }

    pub(super) fn add_unreadable_channel(&mut self, uaid: Uuid) {
        self.execute(&["RPUSH", &format!("autopush/channels/{uaid}"), "no channel"]);
    }

    pub(super) fn add_unreadable_message(&mut self, uaid: Uuid, id: &str, stored_s: u64) {
        self.set(&format!("autopush/msg/{uaid}/{id}"), "no message");
        self.execute(&["ZADD", &format!("autopush/msgs/{uaid}"), &stored_s.to_string(), id]);
    }

    fn execute(&mut self, words: &[&str]) {
        cmd(words[0]).arg(&words[1..]).exec(&mut self.connection).expect("Redis executes it");
    }
}

impl Database for RedisDatabase {
    async fn start() -> Self {
        let server = RedisServer::start().await;
        Self { connection: server.connection(), server }
    }

    fn import(&self) -> Vec<String> {
        vec!["autopush-redis".to_owned(), self.server.url()]
    }

    fn add_user(&mut self, user: &User<'_>) {
        let User { uaid, connected_ms, router_type, router_data, channels } = *user;
        let record = format!(
            r#"{{"uaid":"{}","connected_at":{connected_ms},"router_type":"{router_type}","router_data":{router_data},"node_id":"http://10.0.0.1:8081","record_version":1,"priv_channels":[]}}"#,
            uaid.simple()
        );
        self.set(&format!("autopush/co/{uaid}"), &connected_ms.to_string());
        self.set(&format!("autopush/user/{uaid}"), &record);
        for channel in channels {
            let key = format!("autopush/channels/{uaid}");
            self.execute(&["RPUSH", &key, &channel.to_string()]);
        }
    }

    fn save_message(&mut self, uaid: Uuid, message: &StoredMessage<'_>) {
        let StoredMessage { id, channel, version, stored_s, stored_ms, ttl_s, topic, data } =
            message;
        let mut value = json!({
            "channelID": channel.to_string(),
            "version": version,
            "timestamp": stored_s,
            "ttl": ttl_s,
            "data": data,
            "headers": {"encoding": "aes128gcm"},
        });
        match topic {
            Some(topic) => value["topic"] = (*topic).into(),
            None => value["sortkey_timestamp"] = (*stored_ms).into(),
        }
        let expiry = (stored_s + ttl_s).to_string();
        let key = format!("autopush/msg/{uaid}/{id}");
        self.execute(&["SET", &key, &value.to_string(), "EXAT", &expiry]);
        self.execute(&["ZADD", &format!("autopush/msgs_exp/{uaid}"), &expiry, id]);
        self.execute(&["ZADD", &format!("autopush/msgs/{uaid}"), &stored_s.to_string(), id]);
    }

    fn increment_storage(&mut self, uaid: Uuid, second: u64) {
        self.set(&format!("autopush/timestamp/{uaid}"), &second.to_string());
    }

    fn add_unreadable(&mut self, odd: [Uuid; 3]) {
        self.set(&format!("autopush/user/{}", Uuid::new_v4()), "no record");
        self.set("autopush/user/no-uaid", "{}");
        let values = [("timestamp", "abc"), ("co", "-5"), ("channels", "no list")];
        for (uaid, (kind, value)) in odd.into_iter().zip(values) {
            self.set(&format!("autopush/{kind}/{uaid}"), value);
        }
    }

    fn contents(&mut self) -> Vec<String> {
        let mut keys: Vec<String> =
            cmd("KEYS").arg("*").query(&mut self.connection).expect("Redis answers");
        keys.sort();
        keys
    }
}

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
