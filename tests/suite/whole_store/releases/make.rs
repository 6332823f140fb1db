//! Makes the store of this version: what users do on a server, and rows of each kind, in each form that is kept.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postgres_server::shared;
use rusqlite::Connection;
use serde_json::{Value, json};
use state_machine::Time;
use storage::copied_rows::CopiedRow;
use tempfile::TempDir;

use super::known::{Known, kept_rows};
use super::stores::{Release, SCHEMA, copied, items, of_postgresql};
use crate::admin::access;
use crate::harness::{
    Agent, Launch, Program, Sender, Server, Signer, WireServer, dynamo, unix_now_s,
};
use crate::receipts;
use crate::simplepush::SimpleAgent;
use crate::whole_store::dump::files;
use crate::whole_store::samples::Samples;
use crate::whole_store::write;

/// Rows of each kind besides the odd ones: few, as the files are in the repository.
const PLAIN: u16 = 3;

/// Writes the files of the release. One that is there stays as it is.
pub(super) async fn make(release: &Release) {
    assert!(!release.dir.exists(), "{} is there, and is never changed", release.dir.display());
    let home = TempDir::new().expect("a temporary directory can be made");
    let data = home.path().join("data");
    let launch = Launch { data_dir: Some(data.clone()), ..Launch::default() };
    let mut server = Server::launch(launch.with(&["--simplepush=true"]));
    let mut known = use_it(&server).await;
    assert!(server.terminate().success());
    let now = Time(unix_now_s() * 1000);
    let mut rows = Samples { now, plain: PLAIN }.rows();
    // The server has rows of these feeds already.
    rows.retain(|(_, row)| !["access", "broadcasts"].contains(&feed_of(row)));
    write(&data, &rows).await;
    known.rows = kept_rows(&files(&data));

    fs::create_dir_all(&release.dir).expect("the repository can be written");
    let archive = release.archive().display().to_string();
    run(server.command(&["backup", &archive])).await;
    write_dynamodb(release, &data).await;
    write_postgresql(release, &data).await;
    shrink(&data);
    copied(&data, &release.dir.join("data"), |name| {
        name == "keys.toml" || name == "clock" || name.ends_with(".db")
    });
    let known = serde_json::to_string_pretty(&known).expect("it is JSON") + "\n";
    fs::write(release.dir.join("known.json"), known).expect("the repository can be written");
}

async fn run(command: tokio::process::Command) -> String {
    Program::run(command).await.succeeded()
}

fn feed_of(row: &CopiedRow) -> &str {
    match row {
        CopiedRow::Sequence(state) => state.name.as_str(),
        CopiedRow::Key { feed, .. }
        | CopiedRow::Value { feed, .. }
        | CopiedRow::ExpectedReceipt { feed, .. } => feed.as_str(),
        CopiedRow::Record(_)
        | CopiedRow::Version(..)
        | CopiedRow::Channels(..)
        | CopiedRow::Message(..) => "",
    }
}

/// What users and senders do: each URL and token that they keep is made.
async fn use_it(server: &Server) -> Known {
    let (origin, sender) = (server.origin(), Sender::new());
    let path = |url: &str| url.strip_prefix(&origin).expect("it is of the server").to_owned();
    let (mut agent, channel) = Agent::subscribed(server).await;
    let (signer, pkcs8) = Signer::with_pkcs8();
    let restricted = agent.register_for(&signer.key()).await;
    let uaid = agent.leave().await;
    sender.push(&channel.endpoint, "plain").await;
    sender.push_topic(&channel.endpoint, "topic", "of a topic").await;
    let withdrawn = sender.push(&channel.endpoint, "withdrawn").await;
    let sent = receipts::send(&channel, "with a receipt", None).await;
    let mut simple = SimpleAgent::connect(server, None).await;
    let (simple_channel, simple_endpoint) = simple.register().await;
    let simple_uaid = simple.uaid().to_owned();
    simple.leave().await;
    let put = sender.request(hyper::Method::PUT, &simple_endpoint).raw_body("version=7");
    assert!(put.send().await.status < 300);
    let token = run(server.command(&["access", "add", "bob", "--json"])).await;
    let token: Value = serde_json::from_str(&token).expect("it prints JSON");
    let access_path = format!("/u/{}", token["token"].as_str().expect("it is a text"));
    let mut of_token = access::hello(server, &access_path, None).await;
    let _channel = of_token.register().await;
    let access_uaid = of_token.leave().await;
    run(server.command(&["feed", "put", "prices", "eur", "1.08"])).await;
    let feed_token = run(server.command(&["feed", "token", "prices", "--read"])).await;
    let location = withdrawn.header("location").expect("a 201 has a Location");
    Known {
        made_at_s: i64::try_from(unix_now_s()).expect("it is a date"),
        uaid,
        endpoint: path(&channel.endpoint),
        waiting: ["plain", "of a topic", "with a receipt"].map(str::to_owned).into(),
        location: path(location),
        receipts: path(&sent.receipts),
        receipt_of: path(&sent.location),
        restricted_endpoint: path(&restricted.endpoint),
        vapid_pkcs8: STANDARD.encode(pkcs8),
        simple_uaid,
        simple_channel,
        simple_endpoint: path(&simple_endpoint),
        simple_version: 7,
        access_path,
        access_uaid,
        feed: "prices".into(),
        feed_token: feed_token.trim().to_owned(),
        feed_key: "eur".into(),
        feed_value: "1.08".into(),
        rows: Default::default(),
    }
}

pub(super) async fn copy(data: &Path, to: &str, launch: Launch) {
    let mut copy = launch.command(&["store", "copy", "--from", "embedded", "--to", to]);
    copy.arg("--server-stopped").arg("--data-dir").arg(data);
    run(copy).await;
}

async fn write_dynamodb(release: &Release, data: &Path) {
    let wire = WireServer::start();
    copy(data, "dynamodb", dynamo::launch(&wire.url)).await;
    let items = serde_json::to_string_pretty(&json!(items(&wire).await)).expect("it is JSON");
    fs::write(release.dir.join("dynamodb.json"), items + "\n").expect("it can be written");
}

async fn write_postgresql(release: &Release, data: &Path) {
    shared().sql(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"));
    copy(data, "postgresql", of_postgresql()).await;
    fs::write(release.dir.join("postgresql.sql"), shared().dump(SCHEMA))
        .expect("it can be written");
}

/// Gives free pages back.
fn shrink(data: &Path) {
    for entry in fs::read_dir(data).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_some_and(|extension| extension == "db") {
            let conn = Connection::open(&path).expect("it is a database");
            conn.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").expect("it has space");
        }
    }
}
