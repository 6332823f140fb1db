//! What only a PostgreSQL has: rows that autopush-rs does not write, schemas, and pages by keys.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fernet::Fernet;
use postgres_server::PostgresServer;
use uuid::Uuid;

use super::autopush::{Autopush, Database, Waiting};
use super::imports::{Installation, STOPPED, import_with};
use super::postgresql_database::PostgresDatabase;
use crate::harness::{Agent, Program, unix_now_s};

type OnPostgres = Autopush<PostgresDatabase<'static>>;

/// Changes the row of the message with this body.
fn change(autopush: &OnPostgres, body: &str, values: &str) {
    let data = URL_SAFE_NO_PAD.encode(body);
    autopush.database.sql(&format!("UPDATE message SET {values} WHERE data = '{data}'"));
}

#[actix_web::test]
async fn odd_rows_are_counted_and_end_no_import() {
    let mut autopush = OnPostgres::start().await;
    let (now, channel) = (unix_now_s(), Uuid::new_v4());
    let uaid = autopush.user(&[channel]);
    for (length, body) in ["empty", "legacy", "no topic", "no ttl"].into_iter().enumerate() {
        autopush.message(uaid, &Waiting::new(channel, body, now - 50 + length as u64));
    }
    change(&autopush, "empty", "data = '', headers = 'null'");
    change(&autopush, "legacy", "sortkey_timestamp = NULL");
    change(&autopush, "no topic", "topic = ''");
    change(&autopush, "no ttl", "ttl = NULL");
    for (at, odd) in [
        "headers = 'null'",
        "headers = ''",
        "headers = 'no JSON'",
        "headers = NULL",
        "data = '%'",
        "channel_id = 'no channel'",
        "version = NULL",
        "timestamp = NULL",
        "ttl = -1",
        "sortkey_timestamp = -1",
    ]
    .into_iter()
    .enumerate()
    {
        let body = format!("unreadable {at}");
        autopush.message(uaid, &Waiting::new(channel, &body, now - 20 + at as u64));
        change(&autopush, &body, odd);
    }
    // Those of the second of the last ack stay, and only the one without a topic was acked.
    autopush.message(uaid, &Waiting::new(channel, "acked", now - 60));
    let topic = Waiting { topic: Some("news"), ..Waiting::new(channel, "of a topic", now - 60) };
    autopush.message(uaid, &topic);
    autopush.database.increment_storage(uaid, now - 60);
    autopush.user(&[]);
    autopush.user_of("carrier-pigeon", "null", &[channel]);
    autopush.user_of("adm", r#"{"registration_id":"t"}"#, &[]);
    autopush.user_of("apns", r#"{"token":"t","rel_channel":"app"}"#, &[]);
    autopush.database.sql(&format!(
        "INSERT INTO meta (uaid, channel_id) VALUES ('{}', 'no channel');
         INSERT INTO router (uaid, connected_at, router_type, router_data) VALUES
            ('{}', 1, 'webpush', 'null'), ('{}', 1, NULL, 'null'), ('{}', NULL, 'webpush', 'null')",
        uaid.simple(),
        uaid.to_string().to_uppercase(),
        Uuid::new_v4().simple(),
        Uuid::new_v4().simple(),
    ));
    let [mut installation, ..] = Installation::each(&autopush.crypto_key);
    let done = installation.import(&autopush.database, STOPPED).await;
    let lines: Vec<_> = done.lines().collect();
    assert_eq!(
        lines,
        [
            "imported 3 users (1 behind a bridge), 1 channel and 4 messages",
            "behind a bridge: apns/app 1",
            "skipped 1 user of another router type",
            "skipped 1 user of router type adm",
            "skipped 2 users with an expired or unreadable record",
            "skipped 1 user with an unreadable key",
            "skipped 1 channel unreadable",
            "skipped 1 message acked",
            "skipped 1 message expired",
            "skipped 10 messages unreadable",
        ]
    );
    installation.server.restart();
    let mut agent = Agent::reconnect(&installation.server, &uaid.simple().to_string()).await;
    let taken = agent.take(4).await;
    let mut bodies: Vec<_> = taken.iter().map(|it| it.body.as_deref()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [None, Some("legacy"), Some("no topic"), Some("of a topic")]);
}

/// The import reads 2000 users at once.
#[actix_web::test]
async fn users_are_read_in_pages_and_tables_are_found_in_the_search_path_and_on_a_standby() {
    let server = PostgresServer::start();
    let database = PostgresDatabase::on(&server);
    database.sql(
        "INSERT INTO router (uaid, connected_at, router_type, router_data)
         SELECT md5(i::text), 1, 'webpush', 'null' FROM generate_series(1, 4001) AS i",
    );
    server.tell("standby");
    let [installation, ..] = Installation::each(&Fernet::generate_key());
    let of_standby = server.url.replace("/postgres", "%2Fstandby.sockets/postgres");
    for url in [&server.url, &of_standby] {
        let url = format!("{url}?options=-csearch_path%3D{}", database.schema);
        let words = ["autopush-postgresql", &url, "--dry-run"];
        let command = import_with(&installation.launch, &words, &installation.server.data_dir());
        let printed = Program::run(command).await.succeeded();
        let first = "would import 4001 users (0 behind a bridge), 0 channels and 0 messages\n";
        assert!(printed.starts_with(first), "{printed}");
    }
}
