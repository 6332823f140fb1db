//! Receipt subscriptions after a copy, and after one by an earlier build, which left out their sequences.

use std::path::Path;

use rusqlite::Connection;

use super::{copied, remove_store, run};
use crate::harness::{
    Agent, Channel, ExitOutput, Launch, Program, Sender, Server, WireServer, dynamo, shared_keys,
};
use crate::receipts::{Receipts, send};

const RESTORED: &str = "restored receipt subscriptions that had lost their sequence: 1\n";

/// A stopped server on SQLite, with the receipt of one message, and another message that waits for its ack.
struct Source {
    server: Server,
    uaid: String,
    channel: Channel,
    /// The URL of the receipt subscription.
    receipts: String,
}

/// A server on DynamoDB with the source's keys.
struct Target {
    server: Server,
    channel: Channel,
    receipts: String,
}

impl Source {
    async fn new(keys: &str) -> Self {
        let launch = Launch { keys: Some(keys.to_owned()), ..Launch::default() };
        let mut server = Server::launch(launch);
        let (uaid, channel) = Agent::offline(&server).await;
        let receipts = send(&channel, "acked before the copy", None).await.receipts;
        ack_all(&server, &uaid, 1).await;
        assert_eq!(ids(&mut Receipts::at(&receipts), 1).await, [1]);
        send(&channel, "acked after the copy", Some(&receipts)).await;
        assert!(server.terminate().success());
        Self { server, uaid, channel, receipts }
    }

    fn target(&self, keys: &str, url: &str) -> Target {
        let launch = Launch { keys: Some(keys.to_owned()), ..dynamo::launch(url) };
        let server = Server::launch(launch);
        let moved = |url: &str| url.replace(&self.server.origin(), &server.origin());
        let channel = Channel { endpoint: moved(&self.channel.endpoint), ..self.channel.clone() };
        Target { channel, receipts: moved(&self.receipts), server }
    }
}

/// Acks the messages that wait.
async fn ack_all(server: &Server, uaid: &str, count: usize) {
    let mut agent = Agent::reconnect(server, uaid).await;
    agent.take(count).await;
    assert_eq!(agent.pending_notifications().await, []);
}

/// The ids of the next receipts.
async fn ids(receipts: &mut Receipts, count: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    while ids.len() < count {
        ids.extend(receipts.next().await.into_iter().map(|receipt| receipt.id));
    }
    ids
}

/// Removes what a copy by an earlier build has left out.
async fn lose_sequences(url: &str) {
    let client = dynamo::client(url);
    let all = client.scan().table_name("sequences").send().await.expect("the server answers");
    for item in all.items() {
        let name = &item["name"];
        if name.as_s().is_ok_and(|name| name.starts_with(".receipts.")) {
            let delete = client.delete_item().table_name("sequences").key("name", name.clone());
            delete.send().await.expect("the server answers");
        }
    }
}

async fn repair(data_dir: &Path, url: &str, more: &[&str]) -> ExitOutput {
    let mut command = dynamo::launch(url).command(&["store", "repair"]);
    command.args(more).arg("--data-dir").arg(data_dir);
    Program::run(command).await
}

#[actix_web::test]
async fn the_store_of_a_stopped_server_is_repaired_in_place() {
    let mut source = Source::new(&shared_keys()).await;
    let dir = source.server.data_dir();
    let router = Connection::open(dir.join("router.db")).expect("the server has closed it");
    let lose = "DELETE FROM sequences WHERE name LIKE '.receipts.%'";
    assert_eq!(router.execute(lose, []), Ok(1));
    drop(router);
    source.server.run(&["store", "repair"]).await.printed(RESTORED);
    source.server.restart();
    let mut receipts = Receipts::at(&source.receipts);
    assert_eq!(ids(&mut receipts, 1).await, [1]);
    ack_all(&source.server, &source.uaid, 1).await;
    assert_eq!(ids(&mut receipts, 1).await, [2]);
    source.server.run(&["store", "repair"]).await.failed(1, "a server is running");
}

#[actix_web::test]
async fn receipts_are_read_and_numbered_on_after_a_copy_both_ways() {
    let (wire, keys) = (WireServer::start(), shared_keys());
    let mut source = Source::new(&keys).await;
    let dir = source.server.data_dir();
    copied("dynamodb", &dir, &wire.url).await;
    let mut there = source.target(&keys, &wire.url);
    let mut receipts = Receipts::at(&there.receipts);
    assert_eq!(ids(&mut receipts, 1).await, [1]);
    ack_all(&there.server, &source.uaid, 1).await;
    assert_eq!(ids(&mut receipts, 1).await, [2]);
    let sent = send(&there.channel, "acked after the way back", Some(&there.receipts)).await;
    assert_eq!(sent.receipts, there.receipts);
    assert!(there.server.terminate().success());

    remove_store(&dir);
    copied("embedded", &dir, &wire.url).await;
    source.server.restart();
    let mut receipts = Receipts::at(&source.receipts);
    assert_eq!(ids(&mut receipts, 2).await, [1, 2]);
    ack_all(&source.server, &source.uaid, 1).await;
    assert_eq!(ids(&mut receipts, 1).await, [3]);
}

#[actix_web::test]
async fn a_store_without_sequences_of_receipts_is_repaired_but_for_those_that_were_overwritten() {
    let (wire, keys) = (WireServer::start(), shared_keys());
    let source = Source::new(&keys).await;
    let dir = source.server.data_dir();
    copied("dynamodb", &dir, &wire.url).await;
    lose_sequences(&wire.url).await;
    let mut there = source.target(&keys, &wire.url);
    assert_eq!(Sender::new().get(&there.receipts).await.status, 404);
    // The first push with the old link begins at number 1 again.
    send(&there.channel, "overwrites", Some(&there.receipts)).await;
    ack_all(&there.server, &source.uaid, 2).await;
    assert_eq!(ids(&mut Receipts::at(&there.receipts), 2).await, [1, 2]);
    assert!(there.server.terminate().success());

    repair(&dir, &wire.url, &[]).await.failed(1, "add --server-stopped");
    let lost = "not restored, because later receipts have overwritten them: 1 receipts\n";
    for notes in [&*format!("{RESTORED}{lost}"), "no receipt subscription lacks its sequence\n"] {
        repair(&dir, &wire.url, &["--server-stopped"]).await.printed(notes);
    }

    there.server.restart();
    let mut receipts = Receipts::at(&there.receipts);
    assert_eq!(ids(&mut receipts, 2).await, [1, 2]);
    send(&there.channel, "after the repair", Some(&there.receipts)).await;
    ack_all(&there.server, &source.uaid, 1).await;
    // Number 3 is that of the lost receipt, which has no state to show.
    assert_eq!(ids(&mut receipts, 1).await, [4]);
    assert!(there.server.terminate().success());
    remove_store(&dir);
    copied("embedded", &dir, &wire.url).await;
}

#[actix_web::test]
async fn a_copy_restores_the_receipt_subscriptions_that_its_source_has_lost() {
    let (wire, keys) = (WireServer::start(), shared_keys());
    let mut source = Source::new(&keys).await;
    let dir = source.server.data_dir();
    copied("dynamodb", &dir, &wire.url).await;
    lose_sequences(&wire.url).await;
    let compared = run("dynamodb", &dir, &wire.url, &["--server-stopped", "--verify-only"]).await;
    assert!(compared.stderr.contains("sequences (1 row and 0)"), "{compared:?}");
    remove_store(&dir);
    let printed = copied("embedded", &dir, &wire.url).await;
    assert!(printed.contains(&format!("in the source: {RESTORED}")), "{printed}");
    source.server.restart();
    let mut receipts = Receipts::at(&source.receipts);
    assert_eq!(ids(&mut receipts, 1).await, [1]);
    ack_all(&source.server, &source.uaid, 1).await;
    assert_eq!(ids(&mut receipts, 1).await, [2]);
}
