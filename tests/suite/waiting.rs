//! Bounds of messages that wait for an agent, and the end of expired ones.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{AT_ONCE, Agent, Answer, Channel, Sender, Server, until};

#[actix_web::test]
async fn pushes_above_the_bound_get_429_until_the_agent_has_fetched_its_messages() {
    let (server, mut agent) =
        Server::with_agent(&["--user-messages-max=6", "--channel-messages-max=4"]).await;
    let (first, second) = (agent.register().await, agent.register().await);
    let uaid = agent.leave().await;
    let sender = Sender::new();
    for number in 0..4 {
        sender.push(&first.endpoint, &format!("first {number}")).await;
    }
    assert_full(&push(&sender, &first).await, "this subscription");
    for number in 0..2 {
        sender.push(&second.endpoint, &format!("second {number}")).await;
    }
    assert_full(&push(&sender, &second).await, "this user agent");

    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.take(6).await.len(), 6);
    agent.sync().await;
    let uaid = agent.leave().await;
    until(AT_ONCE, "there is room again", async || push(&sender, &first).await.status == 201).await;
    // The agent was not dropped.
    Agent::returned_to(&server, &uaid, "one more").await;
}

#[actix_web::test]
async fn a_message_more_urgent_or_newer_replaces_another_if_the_setting_says_so() {
    let (server, uaid, channel) =
        Server::with_offline(&["--channel-messages-max=2", "--when-full=replace"]).await;
    let sender = Sender::new();
    for body in ["first", "second", "third"] {
        sender.push(&channel.endpoint, body).await;
    }
    let low = sender.post(&channel.endpoint).ttl(3600).header("urgency", "low").body("low");
    assert_full(&low.send().await, "this subscription");
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.take(2).await;
    assert_eq!(got.iter().map(|got| got.body()).collect::<Vec<_>>(), ["second", "third"]);
}

#[actix_web::test]
async fn expired_messages_vanish_although_their_agent_stays_away() {
    let (server, _uaid, channel) = Server::with_offline(&["--expiry-interval-s=1"]).await;
    let before = rows(&server).await;
    let sender = Sender::new();
    for _ in 0..300 {
        let answer = sender.post(&channel.endpoint).ttl(1).body("brief").send().await;
        assert_eq!(answer.status, 201, "{answer}");
    }
    sender.push(&channel.endpoint, "lasting").await;
    let expired = async || rows(&server).await == before + 1;
    until(Duration::from_secs(30), "only the lasting message is left", expired).await;
}

async fn push(sender: &Sender, channel: &Channel) -> Answer {
    sender.post(&channel.endpoint).ttl(3600).body("one more").send().await
}

fn assert_full(answer: &Answer, bound: &str) {
    answer.assert_refused(bound, (429, 201), bound);
    assert_eq!(answer.header("retry-after"), Some("60"), "{answer}");
}

/// The rows of all message tables.
async fn rows(server: &Server) -> u64 {
    let listed = server.run(&["tables", "list", "--json"]).await.succeeded();
    let listed: Value = serde_json::from_str(&listed).expect("a list in JSON");
    let tables = listed["tables"].as_array().expect("tables").iter();
    let of_messages = tables.filter(|table| table["holds"] == "messages");
    of_messages.map(|table| table["items"].as_u64().expect("a number of items")).sum()
}
