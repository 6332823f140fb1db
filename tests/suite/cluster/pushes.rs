//! A push through an endpoint node and a connection node.

use std::collections::BTreeMap;

use super::node_of;
use crate::harness::{Agent, Channel, Cluster, Sender, Server};

#[actix_web::test]
async fn a_push_to_an_agent_on_another_node_costs_one_read_and_no_write() {
    let cluster = Cluster::start(1, 2);
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    assert_eq!(
        node_of(&cluster, agent.uaid()).await,
        Some(cluster.connection_nodes[0].router_url())
    );
    let sender = Sender::new();
    for node in 0..2 {
        cluster.proxy.wait_until_idle().await;
        let endpoint = cluster.endpoint(node, &channel);
        let channel = Channel { endpoint, ..channel.clone() };
        for body in ["first", "second"] {
            sender.push_to(&mut agent, &channel, body).await;
        }
        let usage = cluster.proxy.take_usage();
        assert_eq!(usage.billed(), BTreeMap::from([("GetItem", 2)]), "{usage}");
    }
}

#[actix_web::test]
async fn every_kind_of_message_is_relayed_unchanged() {
    let cluster = Cluster::start(1, 1);
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    let (largest, largest_aesgcm) = ("x".repeat(4096), "x".repeat(5630));
    let old = sender
        .post(&channel.endpoint)
        .ttl(60)
        .header("content-encoding", "aesgcm")
        .header("encryption", "salt=c2FsdHNhbHRzYWx0c2FsdA")
        .header("crypto-key", "dh=BDgpRKok2GZZDmS4r63vbJSUtcQx4Fq1V58-6-3NbZzSTlZsQiCEDTQy3CZ0ZMsqeqsEb7qW2blQHA4S48fynTk")
        .raw_body(largest_aesgcm.as_str());
    let (answer, got) = tokio::join!(old.send(), agent.take(1));
    assert_eq!((answer.status, got[0].body()), (201, largest_aesgcm.as_str()), "{answer}");
    assert_eq!(got[0].headers["encoding"], "aesgcm");
    assert_eq!(got[0].headers["encryption"], "salt=c2FsdHNhbHRzYWx0c2FsdA");

    for post in [
        sender.post(&channel.endpoint).ttl(0).body("fleeting"),
        sender.post(&channel.endpoint).ttl(60).header("topic", "a-topic").body("of a topic"),
        sender.post(&channel.endpoint).ttl(60).header("urgency", "high").body(largest.as_str()),
        sender.post(&channel.endpoint).ttl(60),
    ] {
        let (answer, got) = tokio::join!(post.send(), agent.take(1));
        assert_eq!(answer.status, 201, "{answer}");
        assert_eq!(got[0].channel, channel.id);
    }
}

#[actix_web::test]
async fn a_push_to_an_offline_agent_is_stored_and_found_on_any_node() {
    let cluster = Cluster::start(2, 2);
    let (uaid, channel) = Agent::offline(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    for node in 0..2 {
        sender.push(&cluster.endpoint(node, &channel), &node.to_string()).await;
    }
    assert_eq!(node_of(&cluster, &uaid).await, None, "it was not there, and this was found out");
    let got = Agent::reconnect(&cluster.connection_nodes[1], &uaid).await.take(2).await;
    assert_eq!([got[0].body(), got[1].body()], ["0", "1"]);
}

#[actix_web::test]
async fn an_unregistered_channel_is_gone_on_every_node() {
    let cluster = Cluster::start(1, 2);
    let mut agent = Agent::new(&cluster.connection_nodes[0]).await;
    let (kept, given_up) = (agent.register().await, agent.register().await);
    agent.unregister(&given_up).await;
    let sender = Sender::new();
    for node in 0..2 {
        let post = sender.post(&cluster.endpoint(node, &given_up)).ttl(60).body("x");
        post.send().await.assert_error(410, 106);
    }
    sender.push_to(&mut agent, &kept, "the other").await;
}

#[actix_web::test]
async fn an_unacked_message_is_redelivered_on_another_node_and_delays_no_other_agent() {
    let cluster = Cluster::start(2, 1);
    let [first, second] =
        <&[Server; 2]>::try_from(&cluster.connection_nodes[..]).expect("there are two");
    let mut silent = Agent::new(first).await;
    let (channel, uaid) = (silent.register().await, silent.uaid().to_owned());
    let (mut other, others_channel) = Agent::subscribed(first).await;
    let sender = Sender::new();
    let bystander = async {
        sender.push_to(&mut other, &others_channel, "meanwhile").await;
    };
    let (_, ()) = tokio::join!(sender.push(&channel.endpoint, "unacked"), bystander);
    let first_time = silent.notification().await;
    let again = Agent::reconnect(second, &uaid).await.take(1).await;
    assert_eq!(again[0], first_time, "the same version, by which an agent knows it");
}
