//! A store that is throttled, loses answers or is down: no subscription is reported as gone, no
//! agent gets another uaid, and every message answered 201 is delivered.

use std::pin::pin;

use futures_util::future::join_all;

use super::DynamoFixture;
use crate::harness::{AT_ONCE, Agent, Bystander, Channel, Fault, Rule, Sender, until};

/// Short timeouts and backoff of the store.
const SHORT_TIMEOUTS: [&str; 4] = [
    "--dynamodb-attempts-max=2",
    "--dynamodb-backoff-ms=1",
    "--store-retry-ms=20",
    "--dynamodb-attempt-timeout-ms=500",
];

#[actix_web::test]
async fn a_store_without_a_success_answers_503_and_loses_no_agent_or_message() {
    for fault in [
        Fault::Throttled,
        Fault::CutBefore,
        Fault::Error(500, "InternalServerError"),
        Fault::Error(400, "AccessDeniedException"),
    ] {
        println!("{fault:?}");
        survives_outage(&fault).await;
    }
}

/// One agent is connected, one reconnects, and one is sent messages, while no request to the store
/// succeeds.
async fn survives_outage(fault: &Fault) {
    let fixture = DynamoFixture::open(&SHORT_TIMEOUTS);
    let (mut connected, channel) = Agent::subscribed(&fixture.server).await;
    let (absent, absents_channel) = Agent::offline_with(&fixture.server, "promised").await;
    let sender = Sender::new();

    fixture.proxy.rule(Rule::on("", fault.clone()));
    for endpoint in [&channel.endpoint, &absents_channel.endpoint] {
        assert_unavailable(&sender, endpoint).await;
    }
    assert_eq!(fixture.server.health().await.status, 503);
    connected.sync().await;
    let asked = asked_so_often(&fixture, "UpdateItem");
    {
        let mut back = pin!(Agent::reconnect(&fixture.server, &absent));
        let failing = until(AT_ONCE, "hello is tried again and again", async || {
            asked_so_often(&fixture, "UpdateItem") >= asked + 6
        });
        tokio::select! {
            _ = &mut back => panic!("the uaid cannot be checked"),
            () = failing => {}
        }
        fixture.proxy.clear_rules();
        // Connecting checks the uaid.
        let mut back = back.await;
        assert_eq!(back.take(1).await[0].body(), "promised");
        sender.push_to(&mut back, &absents_channel, "after").await;
        back.leave().await;
    }
    sender.push_to(&mut connected, &channel, "after").await;
    let connections = fixture.server.connections().await;
    assert_eq!(connections, 1, "the one that was there all the time");
}

/// A push that is answered 503, and not that it can never succeed.
async fn assert_unavailable(sender: &Sender, endpoint: &str) {
    let answer = sender.post(endpoint).ttl(3600).body("not promised").send().await;
    answer.assert_error(503, 201);
    let retry_after = answer.header("retry-after").and_then(|after| after.parse::<u32>().ok());
    assert!(retry_after.is_some_and(|after| after > 0), "{answer}");
}

fn asked_so_often(fixture: &DynamoFixture, operation: &str) -> usize {
    fixture.proxy.usage().count(&[operation])
}

#[actix_web::test]
async fn a_throttled_message_table_stops_no_direct_push() {
    let fixture = DynamoFixture::open(&SHORT_TIMEOUTS);
    let mut bystander = Bystander::connect(&fixture.server).await;
    let (_, channel) = Agent::offline(&fixture.server).await;
    fixture.proxy.rule(Rule::on("", Fault::Throttled).table("message_"));
    assert_unavailable(&Sender::new(), &channel.endpoint).await;
    bystander.is_unaffected().await;
}

/// The message is stored, but the second read of the record fails, so its delivery is not certain:
/// no 201.
#[actix_web::test]
async fn a_failed_second_record_read_is_answered_503_and_the_message_is_delivered() {
    let fixture = DynamoFixture::open(&SHORT_TIMEOUTS);
    let (uaid, channel) = Agent::offline_with(&fixture.server, "promised").await;
    let sender = Sender::new();
    fixture.proxy.rule(Rule::on("GetItem", Fault::Throttled).table("router").after(1));
    assert_unavailable(&sender, &channel.endpoint).await;
    fixture.proxy.clear_rules();
    let got = Agent::reconnect(&fixture.server, &uaid).await.take(2).await;
    assert_eq!(got.iter().map(|got| got.body()).collect::<Vec<_>>(), ["promised", "not promised"]);
}

/// A hanging request may still be executed: a message without a 201 may be delivered.
#[actix_web::test]
async fn a_hanging_store_request_times_out() {
    let fixture = DynamoFixture::open(&SHORT_TIMEOUTS);
    let mut bystander = Bystander::connect(&fixture.server).await;
    let (uaid, channel) = Agent::offline(&fixture.server).await;
    fixture.proxy.rule(Rule::on("PutItem", Fault::Held));
    let sender = Sender::new();
    tokio::join!(assert_unavailable(&sender, &channel.endpoint), fixture.proxy.held(1));
    bystander.is_unaffected().await;
    fixture.proxy.clear_rules();
    sender.push(&channel.endpoint, "promised").await;
    let mut agent = Agent::reconnect(&fixture.server, &uaid).await;
    while agent.take(1).await[0].body() != "promised" {}
}

/// Every operation in the life of a message is executed, and its first answer is lost.
#[actix_web::test]
async fn a_lost_answer_to_a_write_causes_no_duplicate_and_no_loss() {
    let fixture = DynamoFixture::open(&["--dynamodb-backoff-ms=1"]);
    let lose = |operation| fixture.proxy.rule(Rule::on(operation, Fault::CutAfter).times(1));
    lose("UpdateItem");
    let (mut agent, channel) = Agent::subscribed(&fixture.server).await;
    lose("UpdateItem");
    let second = agent.register().await;
    let uaid = agent.leave().await;

    let sender = Sender::new();
    for body in ["one", "two"] {
        lose("PutItem");
        sender.push(&channel.endpoint, body).await;
        lose("GetItem");
        sender.push_topic(&second.endpoint, "news", body).await;
    }
    lose("PutItem");
    sender.push_topic(&second.endpoint, "news", "three").await;

    lose("UpdateItem");
    lose("Query");
    let mut agent = Agent::reconnect(&fixture.server, &uaid).await;
    let mut got = agent.take(3).await;
    got.sort_by(|one, other| one.version.cmp(&other.version));
    assert_eq!(got.iter().map(|got| got.body()).collect::<Vec<_>>(), ["one", "two", "three"]);
    agent.leave().await;

    nothing_is_stored(&fixture, &uaid, &channel).await;
    lose("UpdateItem");
    let mut agent = Agent::reconnect(&fixture.server, &uaid).await;
    agent.unregister(&second).await;
    let gone = sender.post(&second.endpoint).ttl(60).body("too late").send().await;
    gone.assert_error(410, 106);
}

/// The delete of an ack is executed, and its answer is lost.
#[actix_web::test]
async fn a_delete_whose_answer_is_lost_is_settled() {
    let fixture = DynamoFixture::open(&["--dynamodb-backoff-ms=1"]);
    let (uaid, channel) = Agent::offline_with(&fixture.server, "once").await;
    let mut agent = Agent::reconnect(&fixture.server, &uaid).await;
    fixture.proxy.rule(Rule::on("DeleteItem", Fault::CutAfter).times(1));
    assert_eq!(agent.take(1).await[0].body(), "once");
    until(AT_ONCE, "it is deleted", async || asked_so_often(&fixture, "DeleteItem") >= 2).await;
    agent.leave().await;
    nothing_is_stored(&fixture, &uaid, &channel).await;
}

/// No message is stored: the next one that arrives is the next one that is sent.
async fn nothing_is_stored(fixture: &DynamoFixture, uaid: &str, channel: &Channel) {
    let sender = Sender::new();
    sender.push_topic(&channel.endpoint, "last", "nothing was left").await;
    let mut agent = Agent::reconnect(&fixture.server, uaid).await;
    let next = agent.take(1).await;
    assert_eq!(next[0].body(), "nothing was left");
    assert_eq!(agent.pending_notifications().await, []);
    agent.leave().await;
}

/// An ack that was sent while the store was throttled is settled afterwards.
#[actix_web::test]
async fn an_ack_during_throttling_is_settled_afterwards() {
    let fixture = DynamoFixture::open(&SHORT_TIMEOUTS);
    let (uaid, channel) = Agent::offline_with(&fixture.server, "acked").await;
    let mut agent = Agent::reconnect(&fixture.server, &uaid).await;
    let notification = agent.notification().await;
    fixture.proxy.rule(Rule::on("DeleteItem", Fault::Throttled));
    agent.ack(&notification).await;
    until(AT_ONCE, "its delete fails", async || asked_so_often(&fixture, "DeleteItem") >= 4).await;
    let failed = asked_so_often(&fixture, "DeleteItem");
    fixture.proxy.clear_rules();
    until(AT_ONCE, "it is deleted", async || asked_so_often(&fixture, "DeleteItem") > failed).await;
    agent.leave().await;
    nothing_is_stored(&fixture, &uaid, &channel).await;
}

/// Commands wait for the store on the same connection.
#[actix_web::test]
async fn a_channel_registered_during_throttling_is_granted_afterwards() {
    let fixture = DynamoFixture::open(&SHORT_TIMEOUTS);
    let mut agents = join_all((0..3).map(|_| Agent::new(&fixture.server))).await;
    fixture.proxy.rule(Rule::on("UpdateItem", Fault::Throttled));
    {
        let mut registered = pin!(join_all(agents.iter_mut().map(Agent::register)));
        let failing =
            until(AT_ONCE, "it fails", async || asked_so_often(&fixture, "UpdateItem") >= 12);
        tokio::select! {
            _ = &mut registered => panic!("granted, and kept nowhere"),
            () = failing => {}
        }
        fixture.proxy.clear_rules();
        registered.await;
    }
    for agent in &mut agents {
        agent.sync().await;
    }
}
