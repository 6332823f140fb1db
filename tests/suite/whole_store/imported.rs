//! An import changes no row of a store that has some of each kind.

use std::collections::BTreeSet;
use std::path::Path;

use postgres_server::shared;
use uuid::Uuid;

use super::dump::{Dump, files, schema, tables};
use super::{samples, stopped_with_samples};
use crate::harness::{Launch, Program, WireServer, dynamo, unix_now_s};
use crate::migration::{
    Autopush, Database, PostgresDatabase, RedisDatabase, User, Waiting, crypto_keys,
};

const SCHEMA: &str = "imported_into";

/// Tables with rows of users.
const OF_USERS: [&str; 5] = ["router", "channels", "messages", "waiting", "agents"];

/// An autopush-rs with a user that the store does not have, and one of the samples. Returns the words of the import, and how
/// many users that are.
async fn autopush<D: Database>(crypto_key: &str) -> Autopush<D> {
    let mut autopush = Autopush::<D>::start().await;
    autopush.crypto_key = crypto_key.to_owned();
    let (channel, now) = (Uuid::new_v4(), unix_now_s());
    let known = Uuid::from_bytes(samples::uaid(1).0);
    autopush.database.add_user(&User {
        uaid: known,
        connected_ms: now * 1000,
        router_type: "webpush",
        router_data: "null",
        channels: &[channel],
    });
    for (uaid, body) in [(autopush.user(&[channel]), "waits"), (known, "waits too")] {
        autopush.message(uaid, &Waiting::new(channel, body, now));
    }
    autopush
}

#[actix_web::test]
async fn imports_change_no_row_that_was_there_and_add_the_users_that_were_not() {
    let redis = autopush::<RedisDatabase>(&fernet::Fernet::generate_key()).await;
    let postgres = autopush::<PostgresDatabase<'_>>(&redis.crypto_key).await;
    let keys =
        format!("{}\nauth_keys = [\"an-auth-key-of-autopush\"]", crypto_keys(&redis.crypto_key));
    let launch = Launch { keys: Some(keys), ..Launch::default() };
    let (_server, dir, _rows) = stopped_with_samples(launch).await;
    let wire = WireServer::start();
    let of_postgresql =
        [format!("--postgresql-url={}", shared().url), format!("--postgresql-schema={SCHEMA}")];
    let shared_stores = dynamo::launch(&wire.url).with(&of_postgresql);
    for to in ["postgresql", "dynamodb"] {
        let words = ["store", "copy", "--from", "embedded", "--to", to, "--server-stopped"];
        run(&shared_stores, &words, &dir).await;
    }
    let embedded = Launch::default();
    let on_postgresql = embedded.clone().with(&of_postgresql).with(&["--store=postgresql"]);
    for (launch, store) in
        [(&embedded, "embedded"), (&on_postgresql, "postgresql"), (&shared_stores, "dynamodb")]
    {
        let rows = async || match store {
            "embedded" => files(&dir),
            "postgresql" => schema(shared(), SCHEMA),
            _ => tables(&wire.url).await,
        };
        for words in [redis.database.import(), postgres.database.import()] {
            let before = rows().await;
            let mut import = vec!["import", "--server-stopped"];
            import.splice(1..1, words.iter().map(String::as_str));
            let printed = run(launch, &import, &dir).await;
            assert!(printed.contains("imported 1 user ("), "{store}: {printed}");
            assert!(printed.contains("skipped 1 user already in the store"), "{store}: {printed}");
            assert_added(store, &before, &rows().await);
        }
    }
}

async fn run(launch: &Launch, words: &[&str], dir: &Path) -> String {
    let mut command = launch.command(words);
    command.arg("--data-dir").arg(dir);
    Program::run(command).await.succeeded()
}

/// Nothing is gone. The rows of one user with a channel and a message are new.
fn assert_added(store: &str, before: &Dump, after: &Dump) {
    for (table, rows) in before {
        let there: BTreeSet<_> = after[table].iter().collect();
        let gone: Vec<_> = rows.iter().filter(|row| !there.contains(row)).collect();
        let is_of_store = ["health", "id_floor"].contains(&table.as_str());
        assert!(gone.is_empty() || is_of_store, "{store}: {table}: {gone:?}");
        let is_new = after[table].len() > rows.len();
        assert_eq!(is_new, OF_USERS.contains(&table.as_str()), "{store}: {table}");
        assert!(after[table].len() <= rows.len() + 3, "{store}: {table}");
    }
}
