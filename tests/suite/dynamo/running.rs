//! What an operator does to the tables under a live server.

use super::Shop;
use crate::harness::{AT_ONCE, Agent, Fault, Rule, Sender, dynamo, until};

/// The router table is gone, which is not to say that a user is.
#[actix_web::test]
async fn a_router_table_dropped_under_a_live_server_costs_no_agent_its_uaid() {
    let shop = Shop::open(&["--store-retry-ms=20"]);
    let mut connected = Agent::new(&shop.server).await;
    let channel = connected.register().await;
    let (absent, _) = Agent::absent(&shop.server).await;
    let client = dynamo::client(&shop.wire.url);
    client.delete_table().table_name("router").send().await.expect("the table is there");

    let sender = Sender::new();
    sender.post(&channel.endpoint).ttl(60).body("x").send().await.refused(503, 201);
    let asked = shop.proxy.bill_so_far().count(&["UpdateItem"]);
    let failing = until(AT_ONCE, "hello is tried again", async || {
        shop.proxy.bill_so_far().count(&["UpdateItem"]) >= asked + 3
    });
    tokio::select! {
        _ = Agent::back(&shop.server, &absent) => panic!("nobody can know who this is"),
        () = failing => {}
    }
    connected.ping().await;
    let health = sender.get(&format!("{}/health", shop.server.origin())).await;
    assert_eq!(health.status, 503, "{health}");
}

/// Its messages are lost with it; none is promised any more.
#[actix_web::test]
async fn a_message_table_dropped_under_a_live_server_makes_pushes_503_and_closes_nobody() {
    let shop = Shop::open::<&str>(&[]);
    let mut connected = Agent::new(&shop.server).await;
    let channel = connected.register().await;
    let (_, absents_channel) = Agent::absent(&shop.server).await;
    let client = dynamo::client(&shop.wire.url);
    let tables = client.list_tables().send().await.expect("the server answers");
    for table in tables.table_names().iter().filter(|name| name.starts_with("message_")) {
        client.delete_table().table_name(table).send().await.expect("the table is there");
    }
    let sender = Sender::new();
    let post = sender.post(&absents_channel.endpoint).ttl(60).body("x");
    post.send().await.refused(503, 201);
    sender.push_to(&mut connected, &channel, "a direct push needs no such table").await;
}

/// DynamoDB refuses an item of more than 400 KB.
#[actix_web::test]
async fn an_item_that_is_too_large_is_answered_503_and_not_201() {
    let shop = Shop::open::<&str>(&[]);
    let (uaid, channel) = Agent::absent(&shop.server).await;
    shop.proxy.rule(Rule::on("PutItem", Fault::Error(400, "ValidationException")));
    let sender = Sender::new();
    let post = sender.post(&channel.endpoint).ttl(60).body("x".repeat(4096));
    post.send().await.refused(503, 201);
    shop.proxy.heal();
    sender.push(&channel.endpoint, "smaller").await;
    assert_eq!(Agent::back(&shop.server, &uaid).await.take(1).await[0].body(), "smaller");
}

/// The largest item that the settings allow is one that DynamoDB takes.
#[actix_web::test]
async fn the_largest_message_that_can_be_set_fits_into_an_item() {
    let shop = Shop::open(&["--payload-bytes-max=380000", "--frame-bytes-max=1000000"]);
    let (uaid, channel) = Agent::absent(&shop.server).await;
    let body = "x".repeat(380_000);
    let topic = "t".repeat(32);
    Sender::new().push_topic(&channel.endpoint, &topic, &body).await;
    assert_eq!(Agent::back(&shop.server, &uaid).await.take(1).await[0].body(), body);
}
