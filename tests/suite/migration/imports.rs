//! What an import brings over, and what it leaves behind.

use std::fs;
use std::path::Path;

use postgres_server::shared;
use tempfile::TempDir;
use tokio::process::Command;
use uuid::Uuid;

use super::autopush::{Autopush, Database, Waiting};
use super::postgresql_database::PostgresDatabase;
use super::redis_database::RedisDatabase;
use crate::harness::{
    Agent, ExitOutput, Launch, Program, Sender, Server, WireServer, dynamo, put_keys, unix_now_s,
};
use crate::postgresql::on;

/// A Kalends that takes over from autopush-rs.
pub(super) struct Installation {
    pub(super) server: Server,
    pub(super) launch: Launch,
    _wire_server: Option<WireServer>,
}

impl Installation {
    /// Of each engine, stopped, with the crypto key of autopush-rs.
    pub(super) fn each(crypto_key: &str) -> [Self; 3] {
        let wire_server = WireServer::start();
        let launches = [Launch::default(), on(shared()), dynamo::launch(&wire_server.url)];
        let mut wire_servers = [None, None, Some(wire_server)].into_iter();
        launches.map(|launch| {
            let crypto_keys = crypto_keys(crypto_key);
            let keys = format!("{crypto_keys}\nauth_keys = [\"an-auth-key-of-autopush\"]");
            let launch = Launch { keys: Some(keys), ..launch };
            let mut server = Server::launch(launch.clone());
            assert!(server.terminate().success());
            Self { server, launch, _wire_server: wire_servers.next().expect("there are three") }
        })
    }

    pub(super) async fn import(&self, database: &impl Database, more: &[&str]) -> String {
        let mut command = import_with(&self.launch, &database.import(), &self.server.data_dir());
        command.arg("--channels-max=3").args(more);
        Program::run(command).await.succeeded()
    }
}

pub(super) fn import(database: &impl Database, data_dir: &Path) -> Command {
    import_with(&Launch::default(), &database.import(), data_dir)
}

/// The words are those behind `kalends import`.
pub(super) fn import_with<S: AsRef<str>>(launch: &Launch, words: &[S], data_dir: &Path) -> Command {
    let words: Vec<_> = ["import"].into_iter().chain(words.iter().map(AsRef::as_ref)).collect();
    let mut command = launch.command(&words);
    command.arg("--data-dir").arg(data_dir);
    command
}

pub(crate) fn crypto_keys(key: &str) -> String {
    format!("crypto_keys = [\"{key}\"]")
}

pub(super) fn put_key(dir: &Path, key: &str) {
    put_keys(dir, &crypto_keys(key));
}

/// Runs scenarios with a Redis and with a PostgreSQL.
macro_rules! with_each_database {
    ($($scenario:ident)*) => {
        mod redis {
            $(#[actix_web::test]
            async fn $scenario() {
                super::$scenario(super::Autopush::<super::RedisDatabase>::start().await).await;
            })*
        }
        mod postgresql {
            $(#[actix_web::test]
            async fn $scenario() {
                super::$scenario(super::Autopush::<super::PostgresDatabase<'_>>::start().await).await;
            })*
        }
    };
}

with_each_database! {
    users_of_autopush_keep_their_endpoints_their_channels_and_what_waits
    all_messages_of_a_user_are_imported_in_pages
    another_import_undoes_nothing_that_an_agent_did_since
    an_import_creates_the_store_beside_the_keys_and_reports_keys_that_open_nothing
    a_database_without_users_is_a_fault_and_without_messages_the_key_is_not_checked
}

pub(super) const STOPPED: &[&str] = &["--server-stopped"];

async fn users_of_autopush_keep_their_endpoints_their_channels_and_what_waits(
    mut autopush: Autopush<impl Database>,
) {
    let (now, channel, other) = (unix_now_s(), Uuid::new_v4(), Uuid::new_v4());
    let uaid = autopush.user(&[channel, other]);
    autopush.message(uaid, &Waiting::new(channel, "acked", now - 30));
    autopush.message(uaid, &Waiting::new(channel, "waits", now - 10));
    let topic = Waiting { topic: Some("news"), ..Waiting::new(other, "of a topic", now - 5) };
    autopush.message(uaid, &topic);
    autopush.message(uaid, &Waiting { ttl_s: 1, ..Waiting::new(other, "expired", now - 5) });
    autopush.message(uaid, &Waiting::new(Uuid::new_v4(), "unregistered", now - 5));
    autopush.database.increment_storage(uaid, now - 30);
    let stranger = autopush.user_of("gcm", r#"{"token":"t"}"#, &[]);
    let bridged = autopush.user_of("fcm", r#"{"token":"t","app_id":"app"}"#, &[channel]);
    autopush.user_of("apns", r#"{"rel_channel":"app"}"#, &[]);
    let odd = [(); 3].map(|()| autopush.user(&[]));
    autopush.database.add_unreadable(odd);
    let crowded: Vec<_> = (0..4).map(|_| Uuid::new_v4()).collect();
    autopush.user(&crowded);
    autopush.message(uaid, &Waiting::new(channel, &"x".repeat(9000), now - 3));
    autopush.message(uaid, &Waiting::new(channel, "ahead", now + 7200));
    let before = autopush.database.contents();

    for mut installation in Installation::each(&autopush.crypto_key) {
        let endpoints = [channel, other].map(|channel| autopush.endpoint(uaid, channel));
        let dry = installation.import(&autopush.database, &["--dry-run"]).await;
        assert!(is_in_the_guide(&dry), "docs/migrate.md has another output than:\n{dry}");
        let all =
            "2 users (1 behind a bridge), 3 channels and 2 messages\nbehind a bridge: fcm/app 1";
        assert_eq!(dry, report(&format!("would import {all}")));
        let done = installation.import(&autopush.database, STOPPED).await;
        assert_eq!(done, report(&format!("imported {all}")));
        let again = installation.import(&autopush.database, STOPPED).await;
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
    assert_eq!(autopush.database.contents(), before, "the source is unchanged");
}

/// The import reads 20 messages of a user at once.
async fn all_messages_of_a_user_are_imported_in_pages(mut autopush: Autopush<impl Database>) {
    let (now, channel) = (unix_now_s(), Uuid::new_v4());
    let uaid = autopush.user(&[channel]);
    // The length of a body is in the id of its message.
    let bodies: Vec<_> = (1..=45).map(|length| "x".repeat(length)).collect();
    for body in &bodies {
        autopush.message(uaid, &Waiting::new(channel, body, now - 10));
    }
    for mut installation in Installation::each(&autopush.crypto_key) {
        let done = installation.import(&autopush.database, STOPPED).await;
        assert_eq!(done, "imported 1 user (0 behind a bridge), 1 channel and 45 messages\n");
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
const OTHER_USERS: &str = "skipped 1 user of router type apns without its data\n\
     skipped 1 user of router type gcm\n\
     skipped 1 user with an expired or unreadable record\n\
     skipped 1 user with an unreadable key\n\
     skipped 1 user with more channels than channels_max\n\
     skipped 3 users with unreadable values";

fn report(first: &str) -> String {
    format!(
        "{first}\n{OTHER_USERS}\nskipped 1 message above payload_bytes_max\nskipped 1 message acked\nskipped 1 message expired\n\
         skipped 1 message of a channel that is not registered\nskipped 1 message of the future\n"
    )
}

async fn another_import_undoes_nothing_that_an_agent_did_since(
    mut autopush: Autopush<impl Database>,
) {
    let (now, kept, given_up) = (unix_now_s(), Uuid::new_v4(), Uuid::new_v4());
    let uaid = autopush.user(&[kept, given_up]);
    autopush.message(uaid, &Waiting::new(kept, "waits", now - 10));
    for mut installation in Installation::each(&autopush.crypto_key) {
        installation.import(&autopush.database, STOPPED).await;
        installation.server.restart();
        let mut agent =
            Agent::returned_to(&installation.server, &uaid.simple().to_string(), "waits").await;
        let unregister =
            serde_json::json!({"messageType": "unregister", "channelID": given_up.to_string()});
        assert_eq!(
            agent.request(&unregister).await.expect("the server is connected")["status"],
            200
        );
        agent.leave().await;
        assert!(installation.server.terminate().success());

        installation.import(&autopush.database, STOPPED).await;
        installation.server.restart();
        let mut agent = Agent::reconnect(&installation.server, &uaid.simple().to_string()).await;
        assert_eq!(agent.pending_notifications().await, []);
        let origin = installation.server.origin();
        let endpoint = format!("{origin}{}", autopush.endpoint(uaid, given_up));
        let gone = Sender::new().post(&endpoint).ttl(60).body("x").send().await;
        gone.assert_error(410, 106);
    }
}

async fn an_import_creates_the_store_beside_the_keys_and_reports_keys_that_open_nothing(
    mut autopush: Autopush<impl Database>,
) {
    let channel = Uuid::new_v4();
    let uaid = autopush.user(&[channel]);
    autopush.message(uaid, &Waiting::new(channel, "waits", unix_now_s()));
    autopush.user_of("fcm", r#"{"token":"t","app_id":"fenix"}"#, &[]);
    let dir = TempDir::new().expect("a temporary directory can be made");
    let run = async || Program::run(import(&autopush.database, dir.path())).await;
    fails(&run().await, "there is no keys.toml in");

    put_key(dir.path(), &fernet::Fernet::generate_key());
    // Nothing is written, so that another attempt fails too.
    for _ in 0..2 {
        fails(&run().await, "keys.toml has no crypto key of that server");
    }
    put_key(dir.path(), &autopush.crypto_key);
    let ended = run().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let imported = "imported 2 users (1 behind a bridge), 1 channel and 1 message\n";
    assert!(ended.stdout.starts_with(imported), "{ended:?}");
    for expected in [
        "\nbehind a bridge: fcm/fenix 1\n",
        "\n1 user is behind a bridge and keys.toml has no auth_keys: add the auth_keys of",
    ] {
        assert!(ended.stdout.contains(expected), "{ended:?}");
    }
}

async fn a_database_without_users_is_a_fault_and_without_messages_the_key_is_not_checked(
    mut autopush: Autopush<impl Database>,
) {
    let dir = TempDir::new().expect("a temporary directory can be made");
    put_key(dir.path(), &fernet::Fernet::generate_key());
    let ended = Program::run(import(&autopush.database, dir.path())).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("\nthis database has no users of autopush-rs: "), "{ended:?}");

    autopush.user(&[]);
    let printed = Program::run(import(&autopush.database, dir.path())).await.succeeded();
    assert!(printed.contains("\nthe crypto key could not be checked: "), "{printed}");
}

/// Checks that the command failed with this reason, and printed no password.
#[track_caller]
pub(super) fn fails(ended: &ExitOutput, reason: &str) {
    ended.failed(1, reason);
    assert!(!format!("{ended:?}").contains("s3cret"), "{ended:?}");
}
