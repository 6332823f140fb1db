//! The files of a release, and the databases that are filled from them.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postgres_server::shared;
use serde_json::{Map, Value, json};

use super::known::Known;
use crate::harness::{Launch, Program, Server, WireServer, dynamo};

/// The schema of the tables in PostgreSQL.
pub(super) const SCHEMA: &str = "golden";

pub(super) struct Release {
    pub(super) dir: PathBuf,
}

impl Release {
    /// The directory of all releases.
    pub(super) fn all() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/releases")
    }

    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(super) fn known(&self) -> Known {
        let text = self.read("known.json");
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", self.dir.display()))
    }

    pub(super) fn archive(&self) -> PathBuf {
        self.dir.join("archive.tar")
    }

    /// A copy of the data directory, with the modes that a server demands.
    pub(super) fn data_in(&self, home: &Path) -> PathBuf {
        copied(&self.dir.join("data"), &home.join("data"), |_| true)
    }

    /// A data directory with the keys only, for a server on another database.
    pub(super) fn keys_in(&self, home: &Path) -> PathBuf {
        copied(&self.dir.join("data"), &home.join("data"), |name| name == "keys.toml")
    }

    pub(super) fn read(&self, name: &str) -> String {
        let path = self.dir.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Makes the tables by a server of today, as the version of then described them the same way, and puts the items.
    pub(super) async fn fill_dynamodb(&self, wire: &WireServer) {
        let client = dynamo::client(&wire.url);
        let tables: BTreeMap<String, Vec<Map<String, Value>>> =
            serde_json::from_str(&self.read("dynamodb.json")).expect("it was written as JSON");
        let launch = dynamo::launch(&wire.url);
        let dev = ["--dev".to_owned(), self.known().clock_offset(0)];
        let mut server = Server::launch(launch.clone().with(&dev));
        assert!(server.terminate().success());
        // Those of SimplePush too.
        let mut create = launch.command(&["tables", "create"]);
        create.arg("--data-dir").arg(server.data_dir());
        Program::run(create).await.succeeded();
        for (table, items) in tables {
            for item in items {
                let item = item.into_iter().map(|(name, value)| (name, attribute(&value)));
                let put = client.put_item().table_name(&table).set_item(Some(item.collect()));
                put.send().await.unwrap_or_else(|error| panic!("{table}: {error:?}"));
            }
        }
    }

    /// Executes the dump. Returns how a server on it is launched.
    pub(super) fn fill_postgresql(&self) -> Launch {
        shared().sql(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"));
        shared().load(&self.read("postgresql.sql"));
        of_postgresql()
    }
}

pub(super) fn of_postgresql() -> Launch {
    let url = format!("--postgresql-url={}", shared().url);
    let schema = format!("--postgresql-schema={SCHEMA}");
    Launch::default().with(&["--store=postgresql".to_owned(), url, schema])
}

/// Copies the files of a directory that are wanted.
pub(super) fn copied(from: &Path, to: &Path, is_wanted: impl Fn(&str) -> bool) -> PathBuf {
    fs::create_dir(to).expect("it is not there yet");
    fs::set_permissions(to, Permissions::from_mode(0o700)).expect("it is ours");
    for entry in fs::read_dir(from).expect("it can be listed") {
        let entry = entry.expect("it can be listed");
        let name = entry.file_name().into_string().expect("names are text");
        if entry.path().is_file() && is_wanted(&name) {
            let copy = to.join(&name);
            fs::copy(entry.path(), &copy).expect("a file can be copied");
            fs::set_permissions(&copy, Permissions::from_mode(0o600)).expect("it is ours");
        }
    }
    to.to_owned()
}

/// All items of all tables, as DynamoDB's JSON.
pub(super) async fn items(wire: &WireServer) -> BTreeMap<String, Vec<Value>> {
    let (client, mut all) = (dynamo::client(&wire.url), BTreeMap::new());
    let listed = client.list_tables().send().await.expect("the server answers");
    for table in listed.table_names() {
        let items = client.scan().table_name(table).into_paginator().items().send();
        let items = items.collect::<Result<Vec<_>, _>>().await.expect("the server answers");
        let mut items: Vec<_> = items.iter().map(json_of).collect();
        items.sort_by_key(Value::to_string);
        all.insert(table.clone(), items);
    }
    all
}

fn json_of(item: &HashMap<String, AttributeValue>) -> Value {
    let attributes = item.iter().map(|(name, value)| (name.clone(), json_value(value)));
    Value::Object(attributes.collect())
}

fn json_value(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(number) => json!({"N": number}),
        AttributeValue::B(bytes) => json!({"B": STANDARD.encode(bytes.as_ref())}),
        AttributeValue::Bool(is) => json!({"BOOL": is}),
        AttributeValue::Ss(texts) => {
            let mut texts = texts.clone();
            texts.sort();
            json!({"SS": texts})
        }
        AttributeValue::M(inner) => json!({"M": json_of(inner)}),
        other => panic!("no row has an attribute such as {other:?}"),
    }
}

fn attribute(value: &Value) -> AttributeValue {
    let (kind, value) = value.as_object().and_then(|one| one.iter().next()).expect("it is one");
    let text = || value.as_str().expect("it is a text").to_owned();
    match kind.as_str() {
        "S" => AttributeValue::S(text()),
        "N" => AttributeValue::N(text()),
        "B" => AttributeValue::B(STANDARD.decode(text()).expect("it is base64").into()),
        "BOOL" => AttributeValue::Bool(value.as_bool().expect("it is one")),
        "SS" => AttributeValue::Ss(serde_json::from_value(value.clone()).expect("they are texts")),
        "M" => {
            let inner = value.as_object().expect("it is a map").iter();
            let inner = inner.map(|(name, value)| (name.clone(), attribute(value)));
            AttributeValue::M(inner.collect())
        }
        other => panic!("no attribute is of type {other}"),
    }
}

/// A server on this directory with the clock of the machine.
pub(super) fn today(launch: Launch, dir: &Path) -> Launch {
    Launch { data_dir: Some(dir.to_owned()), ..launch }.with(&["--simplepush=true"])
}

impl Known {
    /// The argument for a clock that is so many seconds after that time.
    pub(super) fn clock_offset(&self, after_s: i64) -> String {
        let now = i64::try_from(crate::harness::unix_now_s()).expect("it is a date");
        format!("--clock-offset-s={}", self.made_at_s + after_s - now)
    }

    /// A server on this directory whose clock shows the time at which the store was made.
    pub(super) fn on(&self, launch: Launch, dir: &Path) -> Launch {
        self.later(0, launch, dir)
    }

    /// The same so many seconds later.
    pub(super) fn later(&self, after_s: i64, launch: Launch, dir: &Path) -> Launch {
        today(launch, dir).with(&["--dev", &self.clock_offset(after_s)])
    }
}
