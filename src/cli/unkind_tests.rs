//! Every command that a server runs, on stores that are unkind: each call fails once, or is slow. It ends with the rows
//! that it leaves in a kind store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use actors::Clock;
use futures_util::StreamExt;
use serde_json::{Value, json};
use state_machine::access::AccessGrant;
use state_machine::feed::FeedName;
use state_machine::{Chid, Message, MessageId, Span};
use storage::copied_rows::CopiedRow;
use storage::maintenance::{SNAPSHOT_DIR, Table};
use storage::{StoreAdmin, StoreOp};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;
use tokio::sync::watch;
use unkind_store::UnkindStore;

use super::COMMANDS;
use crate::command::fixture::{NOW, in_month, month, registration, uaid};
use crate::command::served::Started;
use crate::command::{Completion, Context, Servers};
use crate::settings::Settings;

/// The months of the store. The agents connected in the first and in the last.
const MONTHS: [&str; 3] = ["2026_08", "2026_10", "2026_11"];

/// Commands that read the memory of a server, and no store.
const OF_A_SERVER: [&str; 2] = ["refusals", "status"];

/// A command with its arguments.
type Case = (&'static str, Value);

fn cases() -> Vec<Case> {
    let subject = json!({"uaid": uaid(0), "endpoint": null, "message": null});
    let key = json!({"feed": "weather", "key": "berlin"});
    vec![
        ("preflight", json!({})),
        ("tables list", json!({"json": true})),
        ("tables status", json!({"json": true})),
        ("tables create", json!({"lower_prior": null})),
        ("tables drop-old", json!({"keep": 1, "dry_run": false, "force": true})),
        ("tables copy", json!({"from": "2026_08", "to": "2026_11", "server_stopped": true})),
        ("tables drop", json!({"month": "2026_08", "yes": true, "force": true})),
        (
            "users drop-inactive",
            json!({"months": 2, "rate": 100_000, "dry_run": false, "since": null}),
        ),
        ("users drop", json!({"uaid": uaid(0)})),
        ("users repair", json!({"server_stopped": true})),
        ("inspect", json!({"subject": subject, "json": true})),
        ("nodes", json!({"json": true})),
        ("store repair", json!({"server_stopped": true})),
        ("access add", json!({"name": "bob", "expires": null, "agents_max": 0, "json": true})),
        ("access list", json!({"json": true})),
        ("access rotate", json!({"name": "alice", "expires": null, "json": true})),
        ("access revoke", json!({"name": "alice"})),
        ("backup", json!({})),
        ("feed put", json!({"of": key, "value": "snow"})),
        ("feed delete", json!({"of": key})),
        ("feed republish", json!({"of": key})),
        ("feed list", json!({"json": true})),
        (
            "feed tail",
            json!({"feed": "weather", "after": 0, "count": 1, "once": true, "restart_if_gone": false}),
        ),
        ("broadcast put", json!({"id": "blocklist", "version": "2"})),
        ("broadcast list", json!({"json": true})),
    ]
}

#[test]
fn each_command_of_a_server_is_tried_on_unkind_stores() {
    let tried: BTreeSet<_> = cases().into_iter().map(|(name, _)| name).collect();
    let served: BTreeSet<_> = COMMANDS.served().map(|command| command.name).collect();
    assert_eq!(&tried | &OF_A_SERVER.into(), served);
}

#[tokio::test]
async fn a_command_whose_calls_fail_once_leaves_what_it_leaves_without_failures() {
    each_leaves_the_same(UnkindStore::failing_once).await;
}

#[tokio::test]
async fn a_command_on_a_slow_store_leaves_what_it_leaves_on_a_fast_one() {
    each_leaves_the_same(UnkindStore::slow).await;
}

async fn each_leaves_the_same(unkind: fn(Arc<dyn StoreAdmin>) -> UnkindStore) {
    for (name, args) in cases() {
        let (kind, _dir) = filled().await;
        let done = run(name, &args, &kind).await;
        // No node answers here.
        let is_well = name != "nodes";
        assert_eq!(done, if is_well { Completion::Done } else { Completion::Unwell }, "{name}");
        let (real, _dir) = filled().await;
        let unkind: Arc<dyn StoreAdmin> = Arc::new(unkind(real.clone()));
        let mut failures = Vec::new();
        loop {
            let end = run(name, &args, &unkind).await;
            // The second refusal says that there is nothing left to do.
            if end == done || failures.last() == Some(&end) {
                break;
            }
            failures.push(end);
        }
        assert_eq!(left(&*real).await, left(&*kind).await, "{name} after {failures:?}");
    }
}

async fn run(name: &str, args: &Value, store: &Arc<dyn StoreAdmin>) -> Completion {
    let context = Context::own(store.clone(), &Settings::default(), Servers::Stopped);
    let context = Context { clock: Clock::starting_at(NOW), ..context };
    let command = COMMANDS.served().find(|command| command.name == name).expect("it is served");
    let (_stop, stopped) = watch::channel(false);
    let Started { job, lines } = (command.start)(args.clone(), context, stopped).unwrap();
    tokio::join!(job, lines.count()).0
}

/// A store with a row of each table, from commands and from agents.
async fn filled() -> (Arc<dyn StoreAdmin>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    // The process of `kalends backup` makes it for the server.
    fs::create_dir(dir.path().join(SNAPSHOT_DIR)).unwrap();
    let store = Embedded::open(dir.path(), &EmbeddedOptions::new(4096)).unwrap();
    let store: Arc<dyn StoreAdmin> = Arc::new(store);
    for text in MONTHS {
        store.ensure_month(month(text)).await.unwrap();
    }
    for (number, text) in [(0, "2026_08"), (1, "2026_08"), (2, "2026_11")] {
        let op = StoreOp::Register(registration(number, in_month(text)));
        store.execute(op).await.unwrap();
        let (uaid, chid) = (uaid(number), Chid([1; 16]));
        let (of, channels) = (month(text), [chid].into());
        store.execute(StoreOp::AddChannels { uaid, month: of, channels }).await.unwrap();
        store.store_message(uaid, of, message(number, chid)).await.unwrap();
    }
    let key = json!({"feed": "weather", "key": "berlin"});
    let steps = [
        ("feed put", json!({"of": key, "value": "rain"})),
        ("broadcast put", json!({"id": "blocklist", "version": "1"})),
        ("access add", json!({"name": "alice", "expires": null, "agents_max": 0, "json": true})),
    ];
    for (name, args) in &steps {
        assert_eq!(run(name, args, &store).await, Completion::Done, "{name}");
    }
    (store, dir)
}

/// A message that lives for ninety days.
fn message(number: u16, chid: Chid) -> Message {
    let id = MessageId::from_uuid_v7(u128::from(number) << 80, false);
    Message::new(id, chid, NOW, Span::from_secs(90 * 24 * 60 * 60))
}

/// What a command leaves: the rows of each table.
async fn left(store: &dyn StoreAdmin) -> BTreeMap<String, BTreeSet<String>> {
    let months = store.months().await.unwrap();
    let tables = Table::OF_NO_MONTH.into_iter().chain(months.into_iter().map(Table::Messages));
    let mut left = BTreeMap::new();
    for table in tables {
        let (mut rows, mut after) = (BTreeSet::new(), None);
        loop {
            let page = store.read_rows(table, after).await.unwrap();
            rows.extend(page.rows.iter().map(described));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        left.insert(format!("{table:?}"), rows);
    }
    left
}

/// A row without what a repeated write changes: versions and numbers of keys, and what is random in an access token.
fn described(row: &CopiedRow) -> String {
    match row {
        CopiedRow::Sequence(state) => format!("sequence {}", state.name),
        CopiedRow::Key { feed, .. } if *feed == FeedName::access() => "key of a token".to_owned(),
        CopiedRow::Key { feed, key, number, .. } => {
            format!("key {feed} {key}, published: {}", number.is_some())
        }
        CopiedRow::Value { feed, value: Some(value), .. } if *feed == FeedName::access() => {
            let grant: AccessGrant = serde_json::from_str(value.as_str()).unwrap();
            let AccessGrant { name, agents_max, expires_s, revoked_s, .. } = grant;
            format!("token {name} {agents_max} {:?}", (expires_s, revoked_s.is_some()))
        }
        CopiedRow::Value { feed, key, value, .. } => format!("value {feed} {key} {value:?}"),
        row => {
            let mut hasher = DefaultHasher::new();
            row.hash(&mut hasher);
            format!("row {:x}", hasher.finish())
        }
    }
}
