//! Delivery of stored messages when an agent connects.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use crate::harness::{AT_ONCE, Agent, Channel, Sender, Server, until};

#[actix_web::test]
async fn stored_messages_500_arrive_once_each_in_order_and_the_subscription_remains() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let bodies = store(&channel, 500).await;

    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.take(500).await;
    assert!(got.iter().map(|got| got.body()).eq(bodies.iter()));
    assert!(got.is_sorted_by(|before, after| before.version < after.version));

    let sender = Sender::new();
    let (_, after) = tokio::join!(sender.push(&channel.endpoint, "after"), agent.take(1));
    assert_eq!(after[0].body(), "after");

    // The next session receives no message that was acked.
    agent.leave().await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    Sender::new().push(&channel.endpoint, "later").await;
    assert_eq!(agent.take(1).await[0].body(), "later");
}

#[actix_web::test]
async fn an_agent_that_acks_in_batches_receives_each_message_once() {
    let (server, uaid, channel) =
        Server::with_offline(&["--unacked-max", "50", "--fetch-rows-max", "20"]).await;
    let bodies = store(&channel, 200).await;

    let mut agent = Agent::reconnect(&server, &uaid).await;
    let mut got = Vec::new();
    while got.len() < bodies.len() {
        let mut batch = vec![agent.notification().await];
        batch.extend(agent.pending_notifications().await);
        agent.ack_all(&batch).await;
        got.extend(batch);
    }
    assert!(got.iter().map(|got| got.body()).eq(bodies.iter()));
}

#[actix_web::test]
async fn an_agent_without_acks_receives_one_window_and_the_same_after_reconnecting() {
    const WINDOW: usize = 30;
    let arguments = ["--unacked-max", "30", "--fetch-rows-max", "20", "--ack-wait-ms", "600000"];
    let (server, uaid, channel) = Server::with_offline(&arguments).await;
    store(&channel, 40).await;

    let mut lives = Vec::new();
    for _ in 0..2 {
        let mut agent = Agent::reconnect(&server, &uaid).await;
        let mut got = Vec::new();
        while got.len() < WINDOW / 2 {
            got.push(agent.notification().await);
        }
        got.extend(agent.pending_notifications().await);
        assert!(got.len() <= WINDOW, "{} messages wait for an ack", got.len());
        got.truncate(WINDOW / 2);
        lives.push(got);
        agent.leave().await;
    }
    assert_eq!(lives[0], lives[1]);
}

#[actix_web::test]
async fn pushes_that_arrive_during_a_drain_are_not_lost() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let stored = store(&channel, 150).await;

    let agent = Agent::reconnect(&server, &uaid).await.ack_in_background();
    let sender = Sender::new();
    let direct: Vec<_> = (0..60).map(|number| format!("during {number}")).collect();
    join_all(direct.iter().map(|body| sender.push(&channel.endpoint, body))).await;

    let all: BTreeSet<_> = stored.iter().chain(&direct).cloned().collect();
    let got = agent
        .until("all messages came", |got| {
            got.iter().map(|got| got.body()).collect::<BTreeSet<_>>().len() >= all.len()
        })
        .await;
    assert_eq!(got.iter().map(|got| got.body().to_owned()).collect::<BTreeSet<_>>(), all);
}

#[actix_web::test]
async fn messages_of_an_unregistered_channel_are_not_delivered() {
    let (server, mut agent) = Server::with_agent(&[]).await;
    let (given_up, kept) = (agent.register().await, agent.register().await);
    let uaid = agent.leave().await;
    store(&given_up, 3).await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    agent.unregister(&given_up).await;
    let uaid = agent.leave().await;

    let sender = Sender::new();
    let refused = sender.post(&given_up.endpoint).ttl(60).body("too late").send().await;
    refused.assert_error(410, 106);
    assert_eq!(refused.header("cache-control"), Some("max-age=86400"));

    sender.push(&kept.endpoint, "kept").await;
    let _agent = Agent::returned_to(&server, &uaid, "kept").await;
}

#[actix_web::test]
async fn an_expired_message_is_not_delivered() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    let brief = sender.post(&channel.endpoint).ttl(1).body("brief").send().await.location();
    until(AT_ONCE, "a second passes", async || sender.delete(&brief).await.status == 404).await;
    sender.push(&channel.endpoint, "lasting").await;

    let _agent = Agent::returned_to(&server, &uaid, "lasting").await;
}

#[actix_web::test]
async fn a_push_with_ttl_0_is_not_stored() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    let answer = sender.post(&channel.endpoint).ttl(0).body("never").send().await;
    assert_eq!((answer.status, answer.header("ttl")), (201, Some("0")), "{answer}");
    sender.push(&channel.endpoint, "kept").await;
    let mut agent = Agent::returned_to(&server, &uaid, "kept").await;

    // A connected agent receives a push with TTL 0, and the answer does not wait for the ack.
    agent.sync().await;
    let answer = sender.post(&channel.endpoint).ttl(0).body("now").send().await;
    assert_eq!(answer.status, 201, "{answer}");
    assert_eq!(agent.notification().await.body(), "now");
}

/// Stores `count` messages one after the other and returns their bodies.
async fn store(channel: &Channel, count: usize) -> Vec<String> {
    let sender = Sender::new();
    let bodies: Vec<_> = (0..count).map(|number| format!("stored {number}")).collect();
    for body in &bodies {
        sender.push(&channel.endpoint, body).await;
    }
    bodies
}
