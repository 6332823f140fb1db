//! Kalends with its tables in PostgreSQL: one server, a cluster, commands, and a database that goes away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postgres_server::{PostgresServer, shared};
use serde_json::Value;
use state_machine::{Month, Time};
use storage::WaitingLimits;
use storage_postgresql::{Postgres, PostgresOptions};
use tempfile::TempDir;

use crate::admin::operator_page::values_with;
use crate::harness::{
    Agent, Launch, Program, Role, Sender, Server, WireServer, dynamo, kalends, shared_keys,
    unix_now_s, until,
};
use crate::judgement::findings;

/// A database is back sooner.
const LONG: Duration = Duration::from_secs(60);

/// Arguments for a schema that no other test has.
fn arguments(database: &PostgresServer) -> [String; 3] {
    static SCHEMAS: AtomicU32 = AtomicU32::new(0);
    let schema = SCHEMAS.fetch_add(1, Ordering::Relaxed);
    [
        "--store=postgresql".to_owned(),
        format!("--postgresql-url={}", database.url),
        format!("--postgresql-schema=suite{schema}"),
    ]
}

pub(crate) fn on(database: &PostgresServer) -> Launch {
    Launch::default().with(&arguments(database))
}

fn argument(launch: &Launch, name: &str) -> String {
    let value = launch.arguments.iter().find_map(|argument| argument.strip_prefix(name));
    value.expect("a server on PostgreSQL has it").to_owned()
}

/// The schema of a server.
pub(crate) fn schema_of(launch: &Launch) -> String {
    argument(launch, "--postgresql-schema=")
}

/// The store of a server that has ended.
pub(crate) fn opened(launch: &Launch) -> Postgres {
    let limit = Duration::from_secs(30);
    let options = PostgresOptions {
        url: argument(launch, "--postgresql-url="),
        password: None,
        schema: schema_of(launch),
        create_tables: false,
        is_pooled: false,
        connect_timeout: limit,
        operation_timeout: limit,
        requests_max: 4096,
        agent_writes_max: 4096,
        connections: 2,
        threads: 2,
        waiting: WaitingLimits::NONE,
    };
    storage_postgresql::open(&options).expect("the tables are there")
}

#[actix_web::test]
async fn a_server_on_postgresql_delivers_directly_and_from_the_store_also_after_a_restart() {
    let launch = on(shared());
    let mut server = Server::launch(launch.clone());
    let (mut agent, channel) = Agent::subscribed(&server).await;
    Sender::new().push_to(&mut agent, &channel, "direct").await;
    let uaid = agent.leave().await;
    for body in ["one", "two"] {
        assert_eq!(Sender::new().push(&channel.endpoint, body).await.status, 201);
    }
    assert!(server.terminate().success());
    server.restart();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let delivered = agent.take(2).await;
    assert_eq!(delivered.iter().map(|it| it.body()).collect::<Vec<_>>(), ["one", "two"]);
    agent.ack_all(&delivered).await;
    assert_eq!(agent.pending_notifications().await, []);
    let listed = server.run(&["tables", "list", "--json"]).await.succeeded();
    assert!(listed.contains("\"router\"") && listed.contains("\"unmetered\""), "{listed}");
    let inspected = server.run(&["inspect", &uaid]).await.succeeded();
    assert!(inspected.contains(&uaid), "{inspected}");
}

/// Writes an archive, and restores it into an emptied data directory. Returns what both commands report.
async fn keys_moved(launch: &Launch, server: &Server) -> [String; 2] {
    let home = TempDir::new().expect("a temporary directory can be made");
    let file = home.path().join("keys.tar");
    let run = async |name: &str| {
        let mut command = launch.command(&[name]);
        command.arg(&file).arg("--data-dir").arg(server.data_dir());
        let ended = Program::run(command).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stderr
    };
    let written = run("backup").await;
    let mode = fs::metadata(&file).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    fs::remove_dir_all(server.data_dir()).expect("the server has it");
    [written, run("restore").await]
}

#[actix_web::test]
async fn a_dump_of_the_database_and_an_archive_of_the_keys_restore_everything() {
    let database = PostgresServer::start();
    let launch = on(&database);
    let mut server = Server::launch(launch.clone());
    let (uaid, channel) = Agent::offline_with(&server, "before").await;
    let schema = schema_of(&launch);
    database.tell(&format!("dump {schema}"));
    assert!(server.terminate().success());
    database.sql(&format!("DROP SCHEMA {schema} CASCADE"));
    let [written, restored] = keys_moved(&launch, &server).await;
    assert!(written.contains(&format!("pg_dump --format custom --schema {schema}")), "{written}");
    assert!(restored.contains(&format!("PostgreSQL, schema {schema}")), "{restored}");
    database.tell("restore");
    server.restart();
    assert_eq!(Sender::new().push(&channel.endpoint, "after").await.status, 201);
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let delivered = agent.take(2).await;
    assert_eq!(delivered.iter().map(|it| it.body()).collect::<Vec<_>>(), ["before", "after"]);
}

#[actix_web::test]
async fn an_archive_of_a_server_on_dynamodb_has_its_keys() {
    let wire = WireServer::start();
    let launch = dynamo::launch(&wire.url);
    let mut server = Server::launch(launch.clone());
    let (uaid, _channel) = Agent::offline_with(&server, "before").await;
    assert!(server.terminate().success());
    let [written, restored] = keys_moved(&launch, &server).await;
    assert!(written.contains("point-in-time recovery"), "{written}");
    assert!(restored.contains("DynamoDB, prefix"), "{restored}");
    server.restart();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.notification().await.body(), "before");
}

#[actix_web::test]
async fn nodes_on_one_database_deliver_for_each_other() {
    let (arguments, keys) = (arguments(shared()), shared_keys());
    let node = |role, more: &[String]| {
        let launch = Launch { role, keys: Some(keys.clone()), ..Launch::default() };
        Server::launch(launch.with(&arguments).with(more))
    };
    let endpoint = node(Role::Endpoint, &[]);
    let public_url = [format!("--public-url={}", endpoint.origin())];
    let nodes = [(); 2].map(|()| node(Role::Connection, &public_url));
    let (mut agent, channel) = Agent::subscribed(&nodes[0]).await;
    Sender::new().push_to(&mut agent, &channel, "relayed").await;
    let uaid = agent.leave().await;
    assert_eq!(Sender::new().push(&channel.endpoint, "stored").await.status, 201);
    let mut agent = Agent::reconnect(&nodes[1], &uaid).await;
    let stored = agent.notification().await;
    assert_eq!(stored.body(), "stored");
    agent.ack(&stored).await;
    Sender::new().push_to(&mut agent, &channel, "on the other node").await;
}

#[actix_web::test]
async fn a_database_that_is_away_is_503_and_unhealthy_until_it_is_back() {
    let database = PostgresServer::start();
    let server = Server::launch(on(&database).with(&["--postgresql-operation-timeout-ms=1000"]));
    let (_uaid, channel) = Agent::offline(&server).await;
    database.tell("kill");
    let sender = Sender::new();
    let push = async || sender.post(&channel.endpoint).ttl(60).body("stored").send().await;
    let refused = push().await;
    assert_eq!(refused.status, 503, "{refused}");
    assert!(refused.header("retry-after").is_some(), "{refused}");
    until(LONG, "the health check fails", async || server.health().await.status == 503).await;
    database.tell("start");
    until(LONG, "a push is stored", async || push().await.status == 201).await;
    until(LONG, "the server is healthy", async || server.health().await.status == 200).await;
}

#[actix_web::test]
async fn a_start_that_cannot_succeed_is_a_wrong_configuration_and_one_that_may_is_not() {
    let url = &shared().url;
    for (url, code, reason) in [
        (url.replace("kalends@", "nobody@"), 2, "role \"nobody\" does not exist"),
        (url.replace("/postgres", "/nothing"), 2, "database \"nothing\" does not exist"),
        (format!("{url}?sslmode=prefer"), 2, "verify-full"),
        (
            "postgresql://u:secret@127.0.0.1:1/d".to_owned(),
            1,
            "no PostgreSQL is reached at 127.0.0.1:1",
        ),
    ] {
        let home = TempDir::new().expect("a temporary directory can be made");
        let mut command = kalends(&["serve", "--listen=127.0.0.1:0", "--store=postgresql"]);
        command.arg(format!("--postgresql-url={url}")).arg("--data-dir").arg(home.path());
        let ended = Program::run(command).await;
        ended.failed(code, reason);
        assert!(!format!("{ended:?}").contains("secret"), "{ended:?}");
    }
}

#[actix_web::test]
async fn tables_of_a_newer_version_are_refused_with_a_sentence() {
    let launch = on(shared());
    let mut server = Server::launch(launch.clone());
    assert!(server.terminate().success());
    let schema =
        launch.arguments.last().and_then(|last| last.split_once('=')).expect("it has one").1;
    let newer = format!("UPDATE {schema}.state SET number = 99 WHERE name LIKE 'schema%'");
    shared().sql(&newer);
    let mut command = launch.command(&["serve"]);
    command.arg("--listen=127.0.0.1:0").arg("--data-dir").arg(server.data_dir());
    let newer = "the tables have schema version 99 of a newer kalends";
    Program::run(command).await.failed(2, newer);
}

#[actix_web::test]
async fn the_printed_statements_make_the_tables_of_a_server_that_may_make_none() {
    let launch = on(shared()).with(&["--create-tables=false"]);
    let home = TempDir::new().expect("a temporary directory can be made");
    let mut print = launch.command(&["tables", "create", "--print"]);
    print.arg("--data-dir").arg(home.path());
    let statements = Program::run(print).await.succeeded();
    shared().sql(&statements);
    let server = Server::launch(launch);
    let (uaid, _channel) = Agent::offline_with(&server, "stored").await;
    let mut agent = Agent::returned_to(&server, &uaid, "stored").await;
    agent.sync().await;
}

#[actix_web::test]
async fn settings_that_lose_answered_pushes_are_named_by_the_doctor_and_on_the_operators_page() {
    let database = PostgresServer::start();
    let launch = on(&database).with(&["--metrics-listen=127.0.0.1:0"]);
    let server = Server::launch(launch.clone());
    let examined = async || {
        let mut doctor = launch.command(&["doctor", "--idle-s=0"]);
        doctor.arg(format!("--public-url={}", server.origin()));
        doctor.arg("--data-dir").arg(server.data_dir());
        Program::run(doctor).await.succeeded()
    };
    let found = examined().await;
    assert!(found.contains("ok    durability: "), "{found}");
    database.sql("ALTER ROLE kalends SET synchronous_commit = off");
    database.tell("standby");
    let found = examined().await;
    for risk in ["synchronous_commit is off", "the standbys are asynchronous"] {
        assert!(found.contains(&format!("warn  durability: {risk}")), "{found}");
    }
    // A session has the settings that it began with: those of the server end with the database.
    database.tell("kill");
    database.tell("start");
    until(Duration::from_secs(120), "the server has read the settings again", async || {
        findings(&server).await.iter().any(|finding| finding["check"] == "durability")
    })
    .await;
    until(Duration::from_secs(120), "the finding is logged", async || {
        server.log().contains("a check found something wrong")
    })
    .await;
    let is_found = |finding: &Value| finding["check"] == "durability";
    let found = values_with(&server, |page| {
        page["findings"].as_array().is_some_and(|findings| findings.iter().any(is_found))
    });
    let found = found.await["findings"].take();
    let found = found.as_array().into_iter().flatten().find(|finding| is_found(finding));
    let text = found.and_then(|finding| finding["found"].as_str()).expect("it says what it found");
    assert!(
        text.starts_with("PostgreSQL at ") && text.contains(": synchronous_commit is off: "),
        "{text}"
    );
}

/// The queries of the page for operators, in their order.
fn monitoring_queries() -> Vec<&'static str> {
    let page = include_str!("../../docs/operations/postgresql.md");
    page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[actix_web::test]
async fn the_monitoring_queries_of_the_page_show_what_it_promises() {
    let database = PostgresServer::start();
    let launch = on(&database);
    let server = Server::launch(launch.clone());
    let (_uaid, _channel) = Agent::offline_with(&server, "waiting").await;
    database.tell("standby");
    database.sql("SELECT pg_create_physical_replication_slot('abandoned', true)");
    let schema = schema_of(&launch);
    let month = Month::of(Time(unix_now_s() * 1000)).to_string();
    let here = |query: &str| {
        let named = query.replace("'kalends'", &format!("'{schema}'"));
        named.replace("kalends.", &format!("{schema}.")).replace("2026_11", &month)
    };
    // One holds the lock that the other waits for, until this test has seen both.
    let lock = format!(
        "BEGIN; LOCK TABLE {schema}.health IN SHARE ROW EXCLUSIVE MODE; SELECT pg_sleep(600)"
    );
    let holders = [(); 2].map(|()| database.session(&lock));
    let [sizes, messages, dead, longest, waits, standbys, slots, wal] =
        monitoring_queries().try_into().expect("the page has eight");
    let shown = async |query: &str, what: &str, is_right: &dyn Fn(&[Vec<String>]) -> bool| {
        until(LONG, what, async || is_right(&database.rows(&here(query)))).await;
    };
    let has = |rows: &[Vec<String>], column: usize, value: &str| {
        rows.iter().any(|row| row[column] == value)
    };
    shown(sizes, "the sizes of tables", &|rows| has(rows, 0, &format!("messages_{month}"))).await;
    let is_one = |rows: &[Vec<String>]| [0, 2, 3].iter().all(|at| rows[0][*at] == "1");
    shown(messages, "the message that waits", &is_one).await;
    shown(dead, "dead rows", &|rows| has(rows, 0, &format!("agents_{month}"))).await;
    shown(longest, "the longest transaction", &|rows| {
        rows.iter().any(|row| row[4].contains("LOCK"))
    })
    .await;
    shown(waits, "a session that waits for a lock", &|rows| {
        rows.iter().any(|row| row[3].contains("LOCK") && row[1].starts_with('{'))
    })
    .await;
    shown(standbys, "the standby", &|rows| has(rows, 2, "async") && has(rows, 1, "streaming"))
        .await;
    shown(slots, "the slot", &|rows| has(rows, 0, "abandoned") && has(rows, 1, "f")).await;
    shown(wal, "the log", &|rows| rows[0][0].parse::<u64>().is_ok_and(|bytes| bytes > 0)).await;
    drop(holders);
}
