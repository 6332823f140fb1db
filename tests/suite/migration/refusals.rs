//! Why an import does not begin, in the words that an operator reads.

use postgres_server::PostgresServer;
use tempfile::TempDir;

use super::imports::{fails, import_with, put_key};
use super::postgresql_database::PostgresDatabase;
use super::redis_database::RedisServer;
use crate::harness::{AT_ONCE, Launch, Program, Server, WireServer, dynamo, until};

/// A data directory with a key.
fn data_dir() -> TempDir {
    let dir = TempDir::new().expect("a temporary directory can be made");
    put_key(dir.path(), &fernet::Fernet::generate_key());
    dir
}

#[actix_web::test]
async fn an_import_is_refused_beside_a_server_and_never_prints_the_url() {
    let (server, own) = (Server::start(), data_dir());
    let redis = ["autopush-redis", "redis://:s3cret@127.0.0.1:1/0"];
    let postgresql = ["autopush-postgresql", "postgresql://u:s3cret@127.0.0.1:1/d"];
    for (words, dir, reason) in [
        (redis, &*server.data_dir(), "a server is running on this store: stop it first"),
        (redis, own.path(), "cannot connect to Redis"),
        (["autopush-redis", "http://:s3cret@x"], own.path(), "write redis://HOST:PORT/DATABASE"),
        (postgresql, &*server.data_dir(), "a server is running on this store: stop it first"),
        (postgresql, own.path(), "no PostgreSQL is reached at 127.0.0.1:1"),
        (["autopush-postgresql", "http://:s3cret@x"], own.path(), "it begins with postgresql://"),
    ] {
        fails(&Program::run(import_with(&Launch::default(), &words, dir)).await, reason);
    }

    let wire_server = WireServer::start();
    let launch = dynamo::launch(&wire_server.url);
    let shared = Server::launch(launch.clone());
    for words in [redis, postgresql] {
        let beside = import_with(&launch, &words, &shared.data_dir());
        fails(&Program::run(beside).await, "stop all of them, then add --server-stopped");
    }
}

#[actix_web::test]
async fn an_import_says_what_a_redis_wants_that_refuses_it() {
    let dir = data_dir();
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
        let import = import_with(&Launch::default(), &["autopush-redis", url], dir.path());
        fails(&Program::run(import).await, reason);
    }
}

#[actix_web::test]
async fn an_import_says_what_a_postgresql_wants_that_refuses_it() {
    let (dir, server) = (data_dir(), PostgresServer::start());
    let PostgresDatabase { schema: readable, .. } = &PostgresDatabase::on(&server);
    server.sql(&format!(
        "CREATE SCHEMA other;
         CREATE TABLE other.router (uaid varchar(40), secret text);
         CREATE ROLE reader LOGIN PASSWORD 'another';
         GRANT USAGE ON SCHEMA {readable} TO reader"
    ));
    let directory = &server.rows("SHOW data_directory")[0][0];
    server.sql(&format!(
        "COPY (VALUES ('local all reader scram-sha-256'), ('local all all trust')) TO '{directory}/pg_hba.conf'"
    ));
    server.sql("SELECT pg_reload_conf()");
    let url = &server.url;
    let of_reader = |password: &str| url.replace("kalends@", &format!("reader{password}@"));
    let run = async |url: &str, schema: &str| {
        let words = ["autopush-postgresql", url, "--schema", schema];
        Program::run(import_with(&Launch::default(), &words, dir.path())).await
    };
    until(AT_ONCE, "passwords are checked", async || {
        run(&of_reader(""), readable).await.stderr.contains("set PGPASSWORD")
    })
    .await;
    for (url, schema, reason) in [
        (of_reader(":s3cret"), &**readable, "set PGPASSWORD"),
        (of_reader(":another"), readable, "GRANT SELECT ON router, meta, message"),
        (url.replace("/postgres", "/missing"), readable, "the database is at the end of the URL"),
        (url.clone(), "missing", "autopush-rs has no tables there: check /DATABASE"),
        (url.clone(), "other", "the tables are not those of autopush-rs: check /DATABASE"),
    ] {
        fails(&run(&url, schema).await, reason);
    }
}
