//! `kalends store copy` in each direction between the three engines.

use std::fs;
use std::path::Path;

use postgres_server::shared;
use serde_json::Value;
use storage::copied_rows::CopiedRow;
use tempfile::TempDir;

use super::dump::{
    Dump, assert_counts, assert_items, assert_same, files, is_expired, schema, tables,
};
use super::{samples, stopped_with_samples};
use crate::harness::{Launch, Program, WireServer, dynamo, shared_keys};
use crate::store_copy::id_floor;

/// Copies, and returns the rows and the digest of each table, which a second look finds equal.
async fn copied(from: &str, to: &str, dir: &Path, launch: &Launch) -> Value {
    let run = async |more: &[&str]| {
        let mut copy = launch.command(&["store", "copy", "--from", from, "--to", to]);
        copy.args(["--server-stopped", "--json"]).args(more).arg("--data-dir").arg(dir);
        let printed = Program::run(copy).await.succeeded();
        serde_json::from_str::<Value>(&printed).expect("it prints JSON")
    };
    let copied = run(&[]).await;
    assert_eq!(run(&["--verify-only"]).await, copied);
    copied
}

/// A directory without a database.
fn empty_dir(keys: &Path) -> TempDir {
    let dir = TempDir::new().expect("a temporary directory can be made");
    fs::copy(keys, dir.path().join("keys.toml")).expect("the server made it");
    dir
}

/// The dump without what a copy makes anew or leaves out: the floor of ids and messages that have expired.
fn copied_part(mut dump: Dump) -> Dump {
    dump.remove("id_floor");
    dump.values_mut().for_each(|rows| rows.retain(|row| !is_expired(row)));
    dump
}

#[actix_web::test]
async fn rows_of_each_kind_are_copied_in_each_direction() {
    let launch = Launch { keys: Some(shared_keys()), ..Launch::default() };
    let (_server, dir, mut rows) = stopped_with_samples(launch).await;
    let (written, floor) = (files(&dir), id_floor(&dir).await);
    assert_counts(&written, &rows);
    rows.retain(|(_, row)| !matches!(row, CopiedRow::Message(samples::EXPIRED, _)));

    let wires = [WireServer::start(), WireServer::start()];
    let to = |wire: &WireServer, schema: &str| {
        dynamo::launch(&wire.url).with(&[
            format!("--postgresql-url={}", shared().url),
            format!("--postgresql-schema={schema}"),
        ])
    };
    let schemas = ["whole_store", "whole_store_again"];
    let [there, again] = [0, 1].map(|at| to(&wires[at], schemas[at]));
    let keys = dir.join("keys.toml");
    let [back, at_last] = [empty_dir(&keys), empty_dir(&keys)];

    let first = copied("embedded", "postgresql", &dir, &there).await;
    for (from, to, dir, launch) in [
        ("postgresql", "dynamodb", &*dir, &there),
        ("dynamodb", "embedded", back.path(), &there),
        ("embedded", "dynamodb", back.path(), &again),
        ("dynamodb", "postgresql", back.path(), &again),
        ("postgresql", "embedded", at_last.path(), &again),
    ] {
        assert_eq!(copied(from, to, dir, launch).await, first, "{from} to {to}");
    }
    let [in_schema, in_the_second] = schemas.map(|name| schema(shared(), name));
    assert_counts(&in_schema, &rows);
    assert_same(&in_the_second, &in_schema);
    let in_tables = tables(&wires[0].url).await;
    assert_items(&in_tables, &rows);
    assert_same(&tables(&wires[1].url).await, &in_tables);
    for dir in [back.path(), at_last.path()] {
        let files = files(dir);
        assert_counts(&files, &rows);
        assert_same(&copied_part(files), &copied_part(written.clone()));
        assert!(id_floor(dir).await >= floor, "no id is below a copied one");
    }
}
