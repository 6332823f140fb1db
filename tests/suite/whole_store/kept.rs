//! What a store keeps of each kind of row: in a backup, over a restart, in a copied month, after repairs.

use std::collections::BTreeMap;
use std::path::Path;

use state_machine::Month;
use storage::copied_rows::CopiedRow;
use storage::maintenance::Table;
use tempfile::TempDir;

use super::dump::{Dump, assert_same, file, files, is_expired};
use super::{now, samples, stopped_with_samples, write};
use crate::harness::{ExitOutput, Launch, Program, Server, kalends};

async fn command(words: &[&str], data_dir: &Path) -> ExitOutput {
    let mut command = kalends(words);
    command.arg("--data-dir").arg(data_dir);
    Program::run(command).await
}

/// The rows of these tables that no start changes: it deletes messages that have expired.
fn lasting(mut dump: Dump, tables: &[&str]) -> Dump {
    dump.retain(|table, _| tables.contains(&table.as_str()));
    assert_eq!(dump.len(), tables.len());
    dump.values_mut().for_each(|rows| rows.retain(|row| !is_expired(row)));
    dump
}

/// A running server publishes what is pending, and lets receipts end.
const OF_AGENTS: [&str; 4] = ["router", "notifications", "channels", "messages"];

const ALL: [&str; 9] = [
    "router",
    "notifications",
    "channels",
    "messages",
    "waiting",
    "sequences",
    "feed_keys",
    "receipts_expected",
    "months",
];

#[actix_web::test]
async fn a_backup_has_each_row_of_a_stopped_and_of_a_running_server() {
    let (mut server, dir, _rows) = stopped_with_samples(Launch::default()).await;
    let written = files(&dir);
    let home = TempDir::new().expect("a temporary directory can be made");
    let restored = async |name: &str| {
        let target = home.path().join(format!("{name}.restored"));
        let archive = home.path().join(name).display().to_string();
        command(&["backup", &archive], &dir).await.succeeded();
        command(&["restore", &archive], &target).await.succeeded();
        files(&target)
    };
    let stopped = restored("stopped.tar").await;
    assert_same(&lasting(stopped, &ALL), &lasting(written.clone(), &ALL));
    server.restart();
    let running = restored("running.tar").await;
    assert_same(&lasting(running, &OF_AGENTS), &lasting(written.clone(), &OF_AGENTS));
    assert!(server.terminate().success());
    assert_same(&lasting(files(&dir), &OF_AGENTS), &lasting(written, &OF_AGENTS));
}

/// The month of a server that does not rotate gets another name. The rows of agents follow.
#[actix_web::test]
async fn a_copied_month_has_each_row_of_the_first_one() {
    let mut server = Server::start();
    assert!(server.terminate().success());
    let (dir, now) = (server.data_dir(), now());
    let (this, old) = (Month::of(now), Month::of(now).previous().previous());
    let of_this =
        samples::all(now).into_iter().filter(|(table, _)| *table == Table::Messages(this));
    let mut rows: Vec<_> = of_this.map(|(_, row)| (Table::Messages(old), row)).collect();
    let registered = rows.iter().filter_map(|(_, row)| match row {
        CopiedRow::Channels(uaid, chids) => Some((*uaid, chids.clone())),
        _ => None,
    });
    let registered: BTreeMap<_, _> = registered.collect();
    // A message whose channel is not registered cannot be delivered, and is not copied.
    rows.retain(|(_, row)| match row {
        CopiedRow::Message(uaid, message) => {
            registered.get(uaid).is_some_and(|chids| chids.contains(&message.chid))
        }
        _ => true,
    });
    write(&dir, &rows).await;
    let of = |month: Month| lasting(file(&dir.join(format!("messages_{month}.db"))), &OF_MONTH);
    let before = of(old);
    command(&["tables", "copy", &old.to_string(), &this.to_string()], &dir).await.succeeded();
    assert_same(&of(this), &before);
}

const OF_MONTH: [&str; 3] = ["channels", "messages", "waiting"];
