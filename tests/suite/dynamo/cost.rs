//! The cost of each operation in requests and capacity units, as the DynamoDB server counts them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::DynamoFixture;
use super::prices::{self, PRICES, Price};
use crate::harness::{AT_ONCE, Agent, CapacityUsage, Channel, Sender, Units, until};
use crate::rollover::Calendar;

/// A TTL in seconds that is longer than the month.
const MONTH_S: u32 = 30 * 24 * 60 * 60;

/// Maximum time until all requests of an operation have arrived.
const SETTLED_WITHIN: Duration = AT_ONCE;

/// One scenario that contains every operation with a cost.
///
/// It starts at noon, so that the index key, which is the hour, changes only where the scenario
/// changes it.
#[actix_web::test]
async fn every_operation_has_its_documented_cost() {
    let calendar = Calendar::next_november();
    let mut meter =
        UsageMeter { fixture: DynamoFixture::open(&calendar.in_november()), measured: Vec::new() };
    meter.fixture.proxy.wait_until_idle().await;
    let (uaid, channel) = a_session(&mut meter).await;
    pushes_to_the_absent(&mut meter, &channel).await;
    returns(&mut meter, &uaid, &channel).await;

    let (other, others_channel) = Agent::offline(&meter.fixture.server).await;
    let sender = Sender::new();
    for _ in 0..3 {
        let post = sender.post(&others_channel.endpoint).ttl(MONTH_S).body("x".repeat(100));
        assert_eq!(post.send().await.status, 201);
    }
    meter.restart(&calendar.in_december()).await;
    moves(&mut meter, &uaid, &other).await;
    meter.restart(&calendar.two_hours_later()).await;
    meter
        .measure(&prices::LATER, async |fixture| Agent::reconnect(&fixture.server, &uaid).await)
        .await;
    let health = format!("{}/health", meter.fixture.server.origin());
    let health = meter.measure(&prices::HEALTH, async |_| sender.get(&health).await).await;
    assert_eq!(health.status, 200, "{health}");
    meter.finish();
}

/// Measures the cost of operations.
struct UsageMeter {
    fixture: DynamoFixture,
    measured: Vec<&'static str>,
}

impl UsageMeter {
    /// Runs an operation that must cost exactly this. Late requests count for the next operation.
    async fn measure<T>(
        &mut self,
        price: &Price,
        doing: impl AsyncFnOnce(&DynamoFixture) -> T,
    ) -> T {
        let done = doing(&self.fixture).await;
        let count: usize = price.requests.iter().map(|(_, count)| count).sum();
        let proxy = &self.fixture.proxy;
        let enough = until(SETTLED_WITHIN * 2, price.what, async || {
            proxy.usage().billed().values().sum::<usize>() >= count
        });
        // On a timeout, the assertion below shows what is missing.
        let _enough_or_not = timeout(SETTLED_WITHIN, enough).await;
        agrees(price, &proxy.take_usage());
        self.measured.push(price.what);
        done
    }

    /// Restarts the server with other arguments; the start is not measured.
    async fn restart(&mut self, arguments: &[String]) {
        self.fixture.reopen(arguments);
        self.fixture.proxy.wait_until_idle().await;
    }

    /// Checks that every operation was measured, and that no request arrived late.
    fn finish(mut self) {
        assert!(self.fixture.server.terminate().success());
        let late = self.fixture.proxy.take_usage();
        assert!(late.billed().is_empty(), "not paid for: {late}");
        assert_eq!(self.measured, PRICES.iter().map(|price| price.what).collect::<Vec<_>>());
    }
}

fn agrees(price: &Price, usage: &CapacityUsage) {
    let Price { what, requests, read, write, index: index_write } = *price;
    println!("{what}: {usage}");
    let requests: BTreeMap<_, _> = requests.iter().copied().collect();
    let expected = (requests, Units { read, write, index_write });
    assert_eq!((usage.billed(), usage.units), expected, "{what}");
}

/// A new agent connects, registers, is sent a message and disconnects.
async fn a_session(meter: &mut UsageMeter) -> (String, Channel) {
    let mut agent =
        meter.measure(&prices::NEW_AGENT, async |fixture| Agent::new(&fixture.server).await).await;
    let channel = meter.measure(&prices::FIRST_CHANNEL, async |_| agent.register().await).await;
    let second = meter.measure(&prices::CHANNEL, async |_| agent.register().await).await;
    meter.measure(&prices::UNREGISTER, async |_| agent.unregister(&second).await).await;
    let sender = Sender::new();
    meter
        .measure(&prices::DIRECT, async |_| sender.push_to(&mut agent, &channel, "now").await)
        .await;
    let uaid = meter.measure(&prices::DISCONNECT, async |_| agent.leave().await).await;
    (uaid, channel)
}

async fn pushes_to_the_absent(meter: &mut UsageMeter, channel: &Channel) {
    let (sender, endpoint) = (Sender::new(), &channel.endpoint);
    for (price, bytes) in [
        (&prices::FIRST_STORED, 100),
        (&prices::STORED, 100),
        (&prices::STORED_1_KB, 1024),
        (&prices::STORED_4_KB, 4096),
    ] {
        meter.measure(price, async |_| sender.push(endpoint, &"x".repeat(bytes)).await).await;
    }
    for price in [&prices::STORED_TOPIC, &prices::REPLACED] {
        let body = "x".repeat(100);
        meter.measure(price, async |_| sender.push_topic(endpoint, "news", &body).await).await;
    }
}

/// The agent receives the stored message, reconnects without a message, and is sent one that is
/// deleted.
async fn returns(meter: &mut UsageMeter, uaid: &str, channel: &Channel) {
    let agent = meter
        .measure(&prices::FETCH, async |fixture| Agent::reconnect(&fixture.server, uaid).await);
    let mut agent = agent.await;
    let mut got = Vec::new();
    while got.len() < 5 {
        got.push(agent.notification().await);
    }
    meter.measure(&prices::ACKS, async |_| agent.ack_all(&got).await).await;
    agent.leave().await;
    let again = meter
        .measure(&prices::RECONNECT, async |fixture| Agent::reconnect(&fixture.server, uaid).await);
    let mut agent = again.await;
    meter.measure(&prices::RECHECK, async |_| look_again(&mut agent).await).await;
    agent.leave().await;

    let sender = Sender::new();
    let location = sender.push(&channel.endpoint, &"x".repeat(100)).await.location();
    meter.fixture.proxy.take_usage();
    meter.measure(&prices::DROPPED, async |_| sender.delete(&location).await).await;
}

/// A lower urgency limit makes the session fetch the messages that the higher one excluded.
async fn look_again(agent: &mut Agent) {
    for min in ["high", "very-low"] {
        let answer = agent.request(&json!({"messageType": "urgency", "min": min})).await;
        assert_eq!(answer.expect("the server is there")["status"], 200);
    }
}

/// December: one agent without messages, and one with three.
async fn moves(meter: &mut UsageMeter, uaid: &str, other: &str) {
    let moved =
        meter.measure(&prices::MOVE, async |fixture| Agent::reconnect(&fixture.server, uaid).await);
    moved.await.leave().await;
    let moved = meter.measure(&prices::MOVE_3, async |fixture| {
        let mut agent = Agent::reconnect(&fixture.server, other).await;
        let mut got = Vec::new();
        while got.len() < 3 {
            got.push(agent.notification().await);
        }
        agent.ack_all(&got).await;
        agent
    });
    moved.await.leave().await;
}
