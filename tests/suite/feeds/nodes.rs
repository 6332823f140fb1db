//! Feeds in DynamoDB: several servers over one store, and a store that fails.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use hyper::Method;

use super::{FeedClient, Replica};
use crate::harness::{AT_ONCE, Fault, Proxy, Rule, Server, WireServer, dynamo, until};

#[actix_web::test]
async fn writes_on_two_nodes_reach_followers_on_a_third_with_unique_numbers() {
    const WRITES: usize = 30;
    let wire = WireServer::start();
    let launch = || dynamo::launch(&wire.url).with(&["--feed-poll-ms=50", "--feed-retry-ms=20"]);
    let nodes: Vec<_> = (0..3).map(|_| Server::launch(launch())).collect();
    let reader = FeedClient::at(&nodes[2], "news");
    FeedClient::at(&nodes[0], "news").put("first", "1").await;
    let mut events = reader.events(0).await;
    let writers = nodes[..2].iter().enumerate().map(async |(node, server)| {
        let client = FeedClient::at(server, "news");
        let mut last = 0;
        for number in 0..WRITES {
            client.put(&format!("{node}/{}", number % 7), &number.to_string()).await;
            last = client.put("both", &format!("{node} {number}")).await;
        }
        last
    });
    let follow = async {
        let mut copy = Replica::default();
        let mut numbers = BTreeSet::new();
        let is_done = |copy: &Replica| {
            let ends = (0..2).all(|node| copy.value(&format!("{node}/1")) == Some("29"));
            ends && copy.value("both").is_some_and(|value| value.ends_with(" 29"))
        };
        while !is_done(&copy) {
            let event = events.next().await.expect("the stream is open");
            assert!(numbers.insert(event.id), "{} was given twice", event.id);
            event.update.into_iter().for_each(|update| copy.update(update));
        }
        copy
    };
    let (last, mut copy) = tokio::join!(join_all(writers), follow);
    let last = last.into_iter().max().expect("there are two");
    until(AT_ONCE, "all that was written is published", async || {
        while !copy.take(reader.page(&format!("after={}", copy.cursor)).await) {}
        copy.rows["both"].1 > last
    })
    .await;
    for node in &nodes {
        assert_eq!(Replica::of(&FeedClient::at(node, "news")).await, copy);
    }
}

#[actix_web::test]
async fn a_failing_store_is_answered_503_and_streams_continue_afterwards() {
    let wire = WireServer::start();
    let proxy = Proxy::to(&wire.url);
    let quick = ["--dynamodb-attempts-max=1", "--feed-retry-ms=20", "--feed-poll-ms=20"];
    let server = Server::launch(dynamo::launch(&proxy.url()).with(&quick));
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    let mut events = client.events(0).await;
    assert_eq!(events.next().await.expect("an event").id, 1);

    proxy.rule(Rule::on("", Fault::Throttled));
    for (method, path) in [
        (Method::PUT, "/a"),
        (Method::DELETE, "/a"),
        (Method::POST, "/a/republish"),
        (Method::GET, ""),
        (Method::GET, "?after=1&wait=60"),
    ] {
        let answer = client.request(method, path, "2").await;
        let message = answer.assert_error(503, 201);
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert!(!message.contains("Throughput"), "{message}");
    }
    proxy.clear_rules();
    assert!(client.put("a", "3").await > 1);
    let event = events.next().await.expect("the stream is open");
    let update = event.update.expect("a is written again");
    assert_eq!((event.id, update.value.as_deref()), (2, Some("3")));
}
