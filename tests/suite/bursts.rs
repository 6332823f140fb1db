//! Concurrent pushes: none is lost, and each has its own version.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use crate::harness::{AT_ONCE, Agent, Notification, Sender, Server, until};

const SENDERS: usize = 16;
const PUSHES: usize = 400;

/// Senders that repeat a push at once, without a limit of their own.
const INSISTENT: &str = "--subscription-pushes-per-minute-max=0";

#[actix_web::test]
async fn a_burst_of_400_pushes_to_an_offline_agent_arrives_completely_in_version_order() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let sent = burst(&channel.endpoint).await;

    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.take(PUSHES).await;

    assert_eq!(bodies(&got), sent);
    assert!(got.is_sorted_by(|before, after| before.version < after.version));
}

#[actix_web::test]
async fn a_burst_of_400_pushes_to_a_connected_agent_arrives_completely() {
    let (_server, agent, channel) = Server::with_subscribed(&[]).await;
    let agent = agent.ack_in_background();

    let sent = burst(&channel.endpoint).await;
    let got = agent.until("all pushes arrived", |got| versions(got).len() >= PUSHES).await;

    let versions = versions(&got);
    assert_eq!(versions.len(), PUSHES);
    assert_eq!(versions.into_values().collect::<BTreeSet<_>>(), sent);
}

#[actix_web::test]
async fn a_burst_to_many_channels_of_one_agent_arrives_completely() {
    let (_server, mut agent) = Server::with_agent(&[]).await;
    let mut channels = Vec::new();
    for _ in 0..SENDERS {
        channels.push(agent.register().await);
    }
    let agent = agent.ack_in_background();

    let sender = Sender::new();
    let pushes = (0..PUSHES).zip(channels.iter().cycle());
    join_all(pushes.map(async |(number, channel)| {
        sender.push(&channel.endpoint, &format!("{number} {}", channel.id)).await;
    }))
    .await;
    let got = agent.until("all pushes arrived", |got| versions(got).len() >= PUSHES).await;

    assert_eq!(versions(&got).len(), PUSHES);
    assert!(got.iter().all(|got| got.body().ends_with(&got.channel)));
    assert_eq!(got.iter().map(Notification::body).collect::<BTreeSet<_>>().len(), PUSHES);
}

#[actix_web::test]
async fn a_burst_through_mailboxes_of_capacity_1_arrives_completely() {
    // When the mailbox is full, the notification about a stored message is dropped; the periodic
    // recheck finds the message.
    let (_server, agent, channel) = Server::with_subscribed(&[
        "--client-mailbox-max=1",
        "--registry-mailbox-max=1",
        "--endpoint-mailbox-max=1",
        "--storage-recheck-s=1",
    ])
    .await;
    let agent = agent.ack_in_background();

    let (sent, _) = insistent_burst(&channel.endpoint).await;
    let got = agent.until("all pushes arrived", |got| bodies(got).is_superset(&sent)).await;
    assert_eq!(bodies(&got), sent);
}

#[actix_web::test]
async fn an_overloaded_store_answers_503_and_keeps_every_201() {
    let (server, uaid, channel) = Server::with_offline(&["--write-queue-max=1", INSISTENT]).await;
    let (sent, refusals) = insistent_burst(&channel.endpoint).await;
    assert!(refusals > 0, "the store was not overrun");

    let agent = Agent::reconnect(&server, &uaid).await.ack_in_background();
    let got = agent.until("all pushes arrived", |got| bodies(got).is_superset(&sent)).await;
    assert_eq!(bodies(&got), sent);
}

#[actix_web::test]
async fn pushes_above_the_limit_are_answered_503_and_the_others_are_kept() {
    let (server, uaid, channel) =
        Server::with_offline(&["--pushes-in-flight-max=2", INSISTENT]).await;
    let (sent, refusals) = insistent_burst(&channel.endpoint).await;
    assert!(refusals > 0, "there were never more than two");

    let got = Agent::reconnect(&server, &uaid).await.take(PUSHES).await;
    assert_eq!(bodies(&got), sent);
}

/// Like [`burst`], with senders that repeat a push after a 503. Returns the bodies and the number
/// of 503 answers.
async fn insistent_burst(endpoint: &str) -> (BTreeSet<String>, usize) {
    let refusals = Cell::new(0);
    let sent = burst_with(async |client, body| {
        until(AT_ONCE, "the push is taken", async || {
            let answer = client.post(endpoint).ttl(3600).body(body).send().await;
            if answer.status != 201 {
                answer.assert_error(503, 201);
                assert!(answer.header("retry-after").is_some(), "{answer}");
                refusals.set(refusals.get() + 1);
            }
            answer.status == 201
        })
        .await;
    })
    .await;
    (sent, refusals.get())
}

fn bodies(got: &[Notification]) -> BTreeSet<String> {
    got.iter().map(|got| got.body().to_owned()).collect()
}

/// Sends 400 pushes from 16 concurrent senders, each with this function, and returns their bodies.
async fn burst_with(push: impl AsyncFn(&Sender, &str)) -> BTreeSet<String> {
    let bodies = join_all((0..SENDERS).map(async |sender| {
        let (client, mut bodies) = (Sender::new(), Vec::new());
        for number in 0..PUSHES / SENDERS {
            let body = format!("sender {sender}, number {number}");
            push(&client, &body).await;
            bodies.push(body);
        }
        bodies
    }))
    .await;
    bodies.into_iter().flatten().collect()
}

async fn burst(endpoint: &str) -> BTreeSet<String> {
    burst_with(async |client, body| drop(client.push(endpoint, body).await)).await
}

/// Maps each version to its body. Panics if a redelivery has another body.
fn versions(got: &[Notification]) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for notification in got {
        let body = notification.body().to_owned();
        let known = versions.entry(notification.version.clone()).or_insert_with(|| body.clone());
        assert_eq!(*known, body, "one version for two pushes");
    }
    versions
}
