//! Changes that an operator makes to tables of a running server.

use super::DynamoFixture;
use crate::harness::{AT_ONCE, Agent, Fault, Rule, Sender, dynamo, until};

/// A missing router table does not mean that a user is unknown.
#[actix_web::test]
async fn dropping_the_router_table_of_a_running_server_changes_no_uaid() {
    let fixture = DynamoFixture::open(&["--store-retry-ms=20"]);
    let (mut connected, channel) = Agent::subscribed(&fixture.server).await;
    let (absent, _) = Agent::offline(&fixture.server).await;
    let client = dynamo::client(&fixture.wire.url);
    client.delete_table().table_name("router").send().await.expect("the table is there");

    let sender = Sender::new();
    sender.post(&channel.endpoint).ttl(60).body("x").send().await.assert_error(503, 201);
    let asked = fixture.proxy.usage().count(&["UpdateItem"]);
    let failing = until(AT_ONCE, "hello is tried again", async || {
        fixture.proxy.usage().count(&["UpdateItem"]) >= asked + 3
    });
    tokio::select! {
        _ = Agent::reconnect(&fixture.server, &absent) => panic!("the uaid cannot be checked"),
        () = failing => {}
    }
    connected.sync().await;
    let health = sender.get(&format!("{}/health", fixture.server.origin())).await;
    assert_eq!(health.status, 503, "{health}");
}

/// Its messages are lost with the table; no further push is answered 201.
#[actix_web::test]
async fn dropping_a_message_table_makes_pushes_503_and_closes_no_connection() {
    let fixture = DynamoFixture::open::<&str>(&[]);
    let (mut connected, channel) = Agent::subscribed(&fixture.server).await;
    let (_, absents_channel) = Agent::offline(&fixture.server).await;
    let client = dynamo::client(&fixture.wire.url);
    let tables = client.list_tables().send().await.expect("the server answers");
    for table in tables.table_names().iter().filter(|name| name.starts_with("message_")) {
        client.delete_table().table_name(table).send().await.expect("the table is there");
    }
    let sender = Sender::new();
    let post = sender.post(&absents_channel.endpoint).ttl(60).body("x");
    post.send().await.assert_error(503, 201);
    sender.push_to(&mut connected, &channel, "a direct push needs no such table").await;
}

/// DynamoDB rejects an item of more than 400 KB.
#[actix_web::test]
async fn an_item_that_is_too_large_is_answered_503_and_not_201() {
    let fixture = DynamoFixture::open::<&str>(&[]);
    let (uaid, channel) = Agent::offline(&fixture.server).await;
    fixture.proxy.rule(Rule::on("PutItem", Fault::Error(400, "ValidationException")));
    let sender = Sender::new();
    let post = sender.post(&channel.endpoint).ttl(60).body("x".repeat(4096));
    post.send().await.assert_error(503, 201);
    fixture.proxy.clear_rules();
    sender.push(&channel.endpoint, "smaller").await;
    assert_eq!(Agent::reconnect(&fixture.server, &uaid).await.take(1).await[0].body(), "smaller");
}

/// The largest item that the settings allow is accepted by DynamoDB.
#[actix_web::test]
async fn the_largest_configurable_message_fits_into_an_item() {
    let fixture = DynamoFixture::open(&["--payload-bytes-max=380000", "--frame-bytes-max=1000000"]);
    let (uaid, channel) = Agent::offline(&fixture.server).await;
    let body = "x".repeat(380_000);
    let topic = "t".repeat(32);
    Sender::new().push_topic(&channel.endpoint, &topic, &body).await;
    assert_eq!(Agent::reconnect(&fixture.server, &uaid).await.take(1).await[0].body(), body);
}
