//! What an import brings over, and what it leaves behind.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tokio::process::Command;
use uuid::Uuid;

use super::autopush::{Autopush, Waiting};
use super::redis_server::RedisServer;
use crate::harness::{
    Agent, ExitOutput, Launch, Program, Sender, Server, WireServer, dynamo, put_keys, unix_now_s,
};

/// A Kalends that takes over from autopush-rs.
struct Installation {
    server: Server,
    launch: Launch,
    _wire_server: Option<WireServer>,
}

impl Installation {
    /// Of both engines, stopped, with the crypto key of autopush-rs.
    fn both(crypto_key: &str) -> [Self; 2] {
        let wire_server = WireServer::start();
        let launches = [Launch::default(), dynamo::launch(&wire_server.url)];
        let mut wire_servers = [None, Some(wire_server)].into_iter();
        launches.map(|launch| {
            let crypto_keys = crypto_keys(crypto_key);
            let keys = format!("{crypto_keys}\nauth_keys = [\"an-auth-key-of-autopush\"]");
            let launch = Launch { keys: Some(keys), ..launch };
            let mut server = Server::launch(launch.clone());
            assert!(server.terminate().success());
            Self { server, launch, _wire_server: wire_servers.next().expect("there are two") }
        })
    }

    async fn import(&self, redis: &RedisServer, more: &[&str]) -> String {
        let mut command = import_with(&self.launch, &redis.url(), &self.server.data_dir());
        command.arg("--channels-max=3").args(more);
        Program::run(command).await.succeeded()
    }
}

pub(crate) fn import(url: &str, data_dir: &Path) -> Command {
    import_with(&Launch::default(), url, data_dir)
}

fn import_with(launch: &Launch, url: &str, data_dir: &Path) -> Command {
    let mut command = launch.command(&["import", "autopush-redis", url]);
    command.arg("--data-dir").arg(data_dir);
    command
}

pub(crate) fn crypto_keys(key: &str) -> String {
    format!("crypto_keys = [\"{key}\"]")
}

const STOPPED: &[&str] = &["--server-stopped"];

#[actix_web::test]
async fn users_of_autopush_keep_their_endpoints_their_channels_and_what_waits() {
    let redis = RedisServer::start().await;
    let mut autopush = Autopush::on(&redis);
    let (now, channel, other) = (unix_now_s(), Uuid::new_v4(), Uuid::new_v4());
    let uaid = autopush.user(&[channel, other]);
    autopush.message(uaid, &Waiting::new(channel, "acked", now - 30));
    autopush.message(uaid, &Waiting::new(channel, "waits", now - 10));
    let topic = Waiting { topic: Some("news"), ..Waiting::new(other, "of a topic", now - 5) };
    autopush.message(uaid, &topic);
    autopush.message(uaid, &Waiting { ttl_s: 1, ..Waiting::new(other, "expired", now - 5) });
    autopush.message(uaid, &Waiting::new(Uuid::new_v4(), "unregistered", now - 5));
    autopush.acked(uaid, now - 30);
    let stranger = autopush.user_of("gcm", r#"{"token":"t"}"#, &[]);
    let bridged = autopush.user_of("fcm", r#"{"token":"t","app_id":"app"}"#, &[channel]);
    autopush.user_of("apns", r#"{"rel_channel":"app"}"#, &[]);
    autopush.set(&format!("autopush/user/{}", Uuid::new_v4()), "no record");
    autopush.set("autopush/user/no-uaid", "{}");
    for (kind, value) in [("timestamp", "abc"), ("co", "-5"), ("channels", "no list")] {
        let odd = autopush.user(&[]);
        autopush.set(&format!("autopush/{kind}/{odd}"), value);
    }
    let crowded: Vec<_> = (0..4).map(|_| Uuid::new_v4()).collect();
    autopush.user(&crowded);
    autopush.message(uaid, &Waiting::new(channel, &"x".repeat(9000), now - 3));
    autopush.message(uaid, &Waiting::new(channel, "ahead", now + 7200));
    let before = autopush.keys();

    for mut installation in Installation::both(&autopush.crypto_key) {
        let endpoints = [channel, other].map(|channel| autopush.endpoint(uaid, channel));
        let dry = installation.import(&redis, &["--dry-run"]).await;
        assert!(is_in_the_guide(&dry), "docs/migrate.md has another output than:\n{dry}");
        let all =
            "2 users (1 behind a bridge), 3 channels and 2 messages\nbehind a bridge: fcm/app 1";
        assert_eq!(dry, report(&format!("would import {all}")));
        let done = installation.import(&redis, STOPPED).await;
        assert_eq!(done, report(&format!("imported {all}")));
        let again = installation.import(&redis, STOPPED).await;
        let skipped = ["skipped 2 users already in the store", OTHER_USERS].join("\n");
        assert_eq!(
            again,
            format!("imported 0 users (0 behind a bridge), 0 channels and 0 messages\n{skipped}\n")
        );

        installation.server.restart();
        let server = &installation.server;
        let mut agent = Agent::reconnect(server, &uaid.simple().to_string()).await;
        let mut taken = agent.take(2).await;
        taken.sort_by_key(|notification| notification.body.clone());
        assert_eq!([taken[0].body(), taken[1].body()], ["of a topic", "waits"]);
        assert_eq!(taken[0].headers["encoding"], "aes128gcm");
        for endpoint in endpoints {
            let endpoint = format!("{}{endpoint}", server.origin());
            let sender = Sender::new();
            let push = sender.post(&endpoint).ttl(60).body("now").send();
            let (answer, pushed) = tokio::join!(push, agent.take(1));
            assert_eq!((answer.status, pushed[0].body()), (201, "now"));
        }
        // No bridge is configured: that a bridge is asked shows that the record is one.
        let endpoint = format!("{}{}", server.origin(), autopush.endpoint(bridged, channel));
        let answer = Sender::new().post(&endpoint).ttl(60).body("x").send().await;
        assert!(answer.status >= 500, "{answer}");
        let stranger = stranger.simple().to_string();
        assert_ne!(Agent::uaid_for(server, &stranger).await, stranger);
    }
    assert_eq!(autopush.keys(), before, "the source is unchanged");
}

/// The import reads 20 messages of a user at once.
#[actix_web::test]
async fn all_messages_of_a_user_are_imported_in_pages() {
    let redis = RedisServer::start().await;
    let mut autopush = Autopush::on(&redis);
    let (now, channel) = (unix_now_s(), Uuid::new_v4());
    let uaid = autopush.user(&[channel]);
    // The length of a body is in the id of its message.
    let bodies: Vec<_> = (1..=45).map(|length| "x".repeat(length)).collect();
    for body in &bodies {
        autopush.message(uaid, &Waiting::new(channel, body, now - 10));
    }
    for mut installation in Installation::both(&autopush.crypto_key) {
        let done = installation.import(&redis, STOPPED).await;
        assert_eq!(done, "imported 1 users (0 behind a bridge), 1 channels and 45 messages\n");
        installation.server.restart();
        let mut agent = Agent::reconnect(&installation.server, &uaid.simple().to_string()).await;
        let mut taken = agent.take(bodies.len()).await;
        taken.sort_by_key(|notification| notification.body.clone());
        assert_eq!(taken.iter().map(|taken| taken.body()).collect::<Vec<_>>(), bodies);
    }
}

/// Whether `docs/migrate.md` has these lines, indented, as its sample.
fn is_in_the_guide(output: &str) -> bool {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/migrate.md");
    let guide = fs::read_to_string(guide).expect("the guide is there");
    let indented: String = output.lines().map(|line| format!("   {line}\n")).collect();
    guide.contains(&format!("```text\n{indented}   ```"))
}

/// What is skipped in the test above, besides users that are in the store.
const OTHER_USERS: &str = "skipped 1 users of router type apns without its data\n\
     skipped 1 users of router type gcm\n\
     skipped 1 users with an expired or unreadable record\n\
     skipped 1 users with an unreadable key\n\
     skipped 1 users with more channels than channels_max\n\
     skipped 3 users with unreadable values";

fn report(first: &str) -> String {
    format!(
        "{first}\n{OTHER_USERS}\nskipped 1 messages above payload_bytes_max\nskipped 1 messages acked\nskipped 1 messages expired\n\
         skipped 1 messages of a channel that is not registered\nskipped 1 messages of the future\n"
    )
}

#[actix_web::test]
async fn another_import_undoes_nothing_that_an_agent_did_since() {
    let redis = RedisServer::start().await;
    let mut autopush = Autopush::on(&redis);
    let (now, kept, given_up) = (unix_now_s(), Uuid::new_v4(), Uuid::new_v4());
    let uaid = autopush.user(&[kept, given_up]);
    autopush.message(uaid, &Waiting::new(kept, "waits", now - 10));
    for mut installation in Installation::both(&autopush.crypto_key) {
        installation.import(&redis, STOPPED).await;
        installation.server.restart();
        let mut agent =
            Agent::returned_to(&installation.server, &uaid.simple().to_string(), "waits").await;
        let unregister =
            serde_json::json!({"messageType": "unregister", "channelID": given_up.to_string()});
        assert_eq!(agent.request(&unregister).await.unwrap()["status"], 200);
        agent.leave().await;
        assert!(installation.server.terminate().success());

        installation.import(&redis, STOPPED).await;
        installation.server.restart();
        let mut agent = Agent::reconnect(&installation.server, &uaid.simple().to_string()).await;
        assert_eq!(agent.pending_notifications().await, []);
        let origin = installation.server.origin();
        let endpoint = format!("{origin}{}", autopush.endpoint(uaid, given_up));
        let gone = Sender::new().post(&endpoint).ttl(60).body("x").send().await;
        gone.assert_error(410, 106);
    }
}

#[actix_web::test]
async fn an_import_creates_the_store_beside_the_keys_and_reports_keys_that_open_nothing() {
    let redis = RedisServer::start().await;
    let mut autopush = Autopush::on(&redis);
    let channel = Uuid::new_v4();
    let uaid = autopush.user(&[channel]);
    autopush.message(uaid, &Waiting::new(channel, "waits", unix_now_s()));
    autopush.user_of("fcm", r#"{"token":"t","app_id":"fenix"}"#, &[]);
    let dir = TempDir::new().unwrap();
    let run = async || Program::run(import(&redis.url(), dir.path())).await;
    fails(&run().await, "there is no keys.toml in");

    put_key(dir.path(), &fernet::Fernet::generate_key());
    // Nothing is written, so that another attempt fails too.
    for _ in 0..2 {
        fails(&run().await, "keys.toml has no crypto key of that server");
    }
    put_key(dir.path(), &autopush.crypto_key);
    let ended = run().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let imported = "imported 2 users (1 behind a bridge), 1 channels and 1 messages\n";
    assert!(ended.stdout.starts_with(imported), "{ended:?}");
    for expected in [
        "\nbehind a bridge: fcm/fenix 1\n",
        "\n1 users are behind a bridge and keys.toml has no auth_keys: add the auth_keys of",
    ] {
        assert!(ended.stdout.contains(expected), "{ended:?}");
    }
}

#[actix_web::test]
async fn a_database_without_users_is_a_fault_and_without_messages_the_key_is_not_checked() {
    let redis = RedisServer::start().await;
    let dir = TempDir::new().unwrap();
    put_key(dir.path(), &fernet::Fernet::generate_key());
    let ended = Program::run(import(&redis.url(), dir.path())).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("\nthis database has no users of autopush-rs: "), "{ended:?}");

    Autopush::on(&redis).user(&[]);
    let printed = Program::run(import(&redis.url(), dir.path())).await.succeeded();
    assert!(printed.contains("\nthe crypto key could not be checked: "), "{printed}");
}

fn put_key(dir: &Path, key: &str) {
    put_keys(dir, &crypto_keys(key));
}

#[actix_web::test]
async fn an_import_is_refused_beside_a_server_and_never_prints_the_url() {
    let server = Server::start();
    let url = "redis://:s3cret@127.0.0.1:1/0";
    let dir = TempDir::new().unwrap();
    put_key(dir.path(), &fernet::Fernet::generate_key());
    for (url, dir, reason) in [
        (url, &*server.data_dir(), "a server is running on this store: stop it first"),
        (url, dir.path(), "cannot connect to Redis"),
        ("http://:s3cret@x", dir.path(), "write redis://HOST:PORT/DATABASE"),
    ] {
        fails(&Program::run(import(url, dir)).await, reason);
    }

    let wire_server = WireServer::start();
    let launch = dynamo::launch(&wire_server.url);
    let shared = Server::launch(launch.clone());
    let beside = import_with(&launch, url, &shared.data_dir());
    fails(&Program::run(beside).await, "stop all of them, then add --server-stopped");
}

#[actix_web::test]
async fn an_import_says_what_a_redis_wants_that_refuses_it() {
    let dir = TempDir::new().unwrap();
    put_key(dir.path(), &fernet::Fernet::generate_key());
    let redis = RedisServer::start().await;
    let mut connection = redis.connection();
    let mut set = |command: &str, arguments: &[&str]| {
        let () = redis::cmd(command).arg(arguments).query(&mut connection).expect("Redis obeys");
    };
    set("ACL", &["SETUSER", "reader", "on", ">s3cret", "+auth", "+ping", "+client", "~*"]);
    set("CONFIG", &["SET", "requirepass", "s3cret"]);
    let (other, url) = (Server::start(), redis.url());
    for (url, reason) in [
        (&url, "it wants a password: set REDISCLI_AUTH"),
        (&format!("{url}?user=reader&pass=s3cret"), "its user may not read the keys: allow +@read"),
        (&format!("redis://{}", other.address()), "the answer is not one of Redis: check the port"),
    ] {
        fails(&Program::run(import(url, dir.path())).await, reason);
    }
}

/// Checks that the command failed with this reason, and printed no password.
#[track_caller]
fn fails(ended: &ExitOutput, reason: &str) {
    ended.failed(1, reason);
    assert!(!format!("{ended:?}").contains("s3cret"), "{ended:?}");
}
