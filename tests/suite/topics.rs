//! Messages with a Topic: the newest one replaces the stored one, and nothing else does.

use std::time::Instant;

use futures_util::future::join_all;

use crate::harness::{Agent, Sender, Server};

/// Rounds of the race, enough that each side wins some.
const ROUNDS: usize = 30;

const TOPIC: &str = "weather";

#[actix_web::test]
async fn of_concurrent_pushes_to_a_topic_one_of_the_last_remains() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let posts = join_all((0..16).map(async |sender| {
        let (client, mut posts) = (Sender::new(), Vec::new());
        for number in 0..10 {
            let (body, began) = (format!("sender {sender}, number {number}"), Instant::now());
            client.push_topic(&channel.endpoint, TOPIC, &body).await;
            posts.push((body, began, Instant::now()));
        }
        posts
    }))
    .await;
    let posts = posts.concat();
    Sender::new().push(&channel.endpoint, "behind").await;

    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.take(2).await;
    assert_eq!(got[1].body(), "behind", "more than one message of the topic came");
    let (.., answered) = posts.iter().find(|(body, ..)| *body == got[0].body()).unwrap();
    let later = posts.iter().find(|(_, began, _)| began > answered);
    assert_eq!(later, None, "it was answered before this one was even sent");
}

#[actix_web::test]
async fn the_ack_of_a_replaced_message_does_not_delete_the_replacement() {
    let (server, uaid, channel) = Server::with_offline(&["--ack-wait-ms", "50"]).await;
    let sender = Sender::new();
    for round in 0..ROUNDS {
        let (old, new) = (format!("old {round}"), format!("new {round}"));
        sender.push_topic(&channel.endpoint, TOPIC, &old).await;
        let mut agent = Agent::reconnect(&server, &uaid).await;
        let first = agent.notification().await;
        assert_eq!(first.body(), old);
        tokio::join!(agent.ack(&first), sender.push_topic(&channel.endpoint, TOPIC, &new));
        assert_eq!(agent.take(1).await[0].body(), new);
        agent.leave().await;
    }
}

#[actix_web::test]
async fn an_ack_on_a_later_connection_does_not_delete_the_replacement() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    for round in 0..ROUNDS {
        let (old, new) = (format!("old {round}"), format!("new {round}"));
        sender.push_topic(&channel.endpoint, TOPIC, &old).await;
        let mut agent = Agent::reconnect(&server, &uaid).await;
        let first = agent.notification().await;
        agent.leave().await;
        sender.push_topic(&channel.endpoint, TOPIC, &new).await;

        let mut agent = Agent::reconnect(&server, &uaid).await;
        agent.ack(&first).await;
        agent.sync().await;
        agent.leave().await;
        Agent::returned_to(&server, &uaid, &new).await.leave().await;
    }
}

#[actix_web::test]
async fn deleting_a_replaced_message_does_not_delete_the_replacement() {
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let (sender, other) = (Sender::new(), Sender::new());
    for round in 0..ROUNDS {
        let (old, new) = (format!("old {round}"), format!("new {round}"));
        let location = sender.push_topic(&channel.endpoint, TOPIC, &old).await.location();
        let (dropped, _) = tokio::join!(
            sender.delete(&location),
            other.push_topic(&channel.endpoint, TOPIC, &new)
        );
        assert!([204, 404].contains(&dropped.status), "{dropped}");
        sender.delete(&location).await.assert_error(404, 102);

        Agent::returned_to(&server, &uaid, &new).await.leave().await;
    }
}

#[actix_web::test]
async fn topics_of_other_channels_and_messages_without_one_are_not_replaced() {
    let (server, mut agent) = Server::with_agent(&[]).await;
    let (one, other) = (agent.register().await, agent.register().await);
    let uaid = agent.leave().await;
    let sender = Sender::new();
    sender.push(&one.endpoint, "without").await;
    sender.push_topic(&one.endpoint, TOPIC, "replaced").await;
    sender.push_topic(&other.endpoint, TOPIC, "of the other channel").await;
    sender.push_topic(&one.endpoint, "sports", "of another topic").await;
    sender.push_topic(&one.endpoint, TOPIC, "replacement").await;

    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.take(4).await;
    let bodies: Vec<_> = got.iter().map(|got| got.body()).collect();
    assert_eq!(bodies, ["without", "of the other channel", "of another topic", "replacement"]);
}
