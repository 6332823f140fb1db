//! What each operation costs, in requests and in capacity units, as the DynamoDB server counts them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::Shop;
use super::prices::{self, PRICES, Price};
use crate::harness::{Agent, Bill, Channel, Sender, Units, until};
use crate::rollover::Calendar;

/// A TTL that outlasts the month.
const MONTH_S: u32 = 30 * 24 * 60 * 60;

/// How long requests may be on their way.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// One story, in which everything that has a price happens.
///
/// It begins at noon, so that the index key, which is the hour, changes only where the story has it.
#[actix_web::test]
async fn every_operation_costs_what_the_documentation_says() {
    let calendar = Calendar::next_november();
    let mut till = Till { shop: Shop::open(&calendar.in_november()), measured: Vec::new() };
    till.shop.proxy.comes_to_rest().await;
    let (uaid, channel) = a_session(&mut till).await;
    pushes_to_the_absent(&mut till, &channel).await;
    returns(&mut till, &uaid, &channel).await;

    let (other, others_channel) = Agent::absent(&till.shop.server).await;
    let sender = Sender::new();
    for _ in 0..3 {
        let post = sender.post(&others_channel.endpoint).ttl(MONTH_S).body("x".repeat(100));
        assert_eq!(post.send().await.status, 201);
    }
    till.reopens(&calendar.in_december()).await;
    moves(&mut till, &uaid, &other).await;
    till.reopens(&calendar.two_hours_later()).await;
    till.rings(&prices::LATER, async |shop| Agent::back(&shop.server, &uaid).await).await;
    let health = format!("{}/health", till.shop.server.origin());
    let health = till.rings(&prices::HEALTH, async |_| sender.get(&health).await).await;
    assert_eq!(health.status, 200, "{health}");
    till.closes();
}

/// Adds up what is asked.
struct Till {
    shop: Shop,
    measured: Vec<&'static str>,
}

impl Till {
    /// Does something that must cost exactly that. What it asks too late is on the next bill.
    async fn rings<T>(&mut self, price: &Price, doing: impl AsyncFnOnce(&Shop) -> T) -> T {
        let done = doing(&self.shop).await;
        let count: usize = price.requests.iter().map(|(_, count)| count).sum();
        let proxy = &self.shop.proxy;
        let enough = until(SETTLED_WITHIN * 2, price.what, async || {
            proxy.bill_so_far().priced().values().sum::<usize>() >= count
        });
        // Where it is not enough, the bill says what is missing.
        let _enough_or_not = timeout(SETTLED_WITHIN, enough).await;
        agrees(price, &proxy.bill());
        self.measured.push(price.what);
        done
    }

    /// Starts the server with another clock; what that asks is of no matter here.
    async fn reopens(&mut self, arguments: &[String]) {
        self.shop.reopen(arguments);
        self.shop.proxy.comes_to_rest().await;
    }

    /// Everything was measured, and nothing came late.
    fn closes(mut self) {
        assert!(self.shop.server.terminate().success());
        let late = self.shop.proxy.bill();
        assert!(late.priced().is_empty(), "not paid for: {late}");
        assert_eq!(self.measured, PRICES.iter().map(|price| price.what).collect::<Vec<_>>());
    }
}

fn agrees(price: &Price, bill: &Bill) {
    let Price { what, requests, read, write, index: index_write } = *price;
    println!("{what}: {bill}");
    let requests: BTreeMap<_, _> = requests.iter().copied().collect();
    let expected = (requests, Units { read, write, index_write });
    assert_eq!((bill.priced(), bill.units), expected, "{what}");
}

/// A new agent comes, subscribes, is sent a message and leaves.
async fn a_session(till: &mut Till) -> (String, Channel) {
    let mut agent =
        till.rings(&prices::NEW_AGENT, async |shop| Agent::new(&shop.server).await).await;
    let channel = till.rings(&prices::FIRST_CHANNEL, async |_| agent.register().await).await;
    let second = till.rings(&prices::CHANNEL, async |_| agent.register().await).await;
    till.rings(&prices::UNREGISTER, async |_| agent.unregister(&second).await).await;
    let sender = Sender::new();
    till.rings(&prices::DIRECT, async |_| sender.push_to(&mut agent, &channel, "now").await).await;
    let uaid = till.rings(&prices::DISCONNECT, async |_| agent.leave().await).await;
    (uaid, channel)
}

async fn pushes_to_the_absent(till: &mut Till, channel: &Channel) {
    let (sender, endpoint) = (Sender::new(), &channel.endpoint);
    for (price, bytes) in [
        (&prices::FIRST_STORED, 100),
        (&prices::STORED, 100),
        (&prices::STORED_1_KB, 1024),
        (&prices::STORED_4_KB, 4096),
    ] {
        till.rings(price, async |_| sender.push(endpoint, &"x".repeat(bytes)).await).await;
    }
    for price in [&prices::STORED_TOPIC, &prices::REPLACED] {
        let body = "x".repeat(100);
        till.rings(price, async |_| sender.push_topic(endpoint, "news", &body).await).await;
    }
}

/// Takes what waits, comes again for nothing, and is sent something that is taken back.
async fn returns(till: &mut Till, uaid: &str, channel: &Channel) {
    let agent = till.rings(&prices::FETCH, async |shop| Agent::back(&shop.server, uaid).await);
    let mut agent = agent.await;
    let mut got = Vec::new();
    while got.len() < 5 {
        got.push(agent.notification().await);
    }
    till.rings(&prices::ACKS, async |_| agent.ack_all(&got).await).await;
    agent.leave().await;
    let again = till.rings(&prices::RECONNECT, async |shop| Agent::back(&shop.server, uaid).await);
    let mut agent = again.await;
    till.rings(&prices::RECHECK, async |_| look_again(&mut agent).await).await;
    agent.leave().await;

    let sender = Sender::new();
    let location = sender.push(&channel.endpoint, &"x".repeat(100)).await.location();
    till.shop.proxy.bill();
    till.rings(&prices::DROPPED, async |_| sender.delete(&location).await).await;
}

/// A lower bar for what is urgent makes a session look for what was held back by the higher one.
async fn look_again(agent: &mut Agent) {
    for min in ["high", "very-low"] {
        let answer = agent.ask(&json!({"messageType": "urgency", "min": min})).await;
        assert_eq!(answer.expect("the server is there")["status"], 200);
    }
}

/// December: one agent for whom nothing waits, and one with three messages.
async fn moves(till: &mut Till, uaid: &str, other: &str) {
    let moved = till.rings(&prices::MOVE, async |shop| Agent::back(&shop.server, uaid).await);
    moved.await.leave().await;
    let moved = till.rings(&prices::MOVE_3, async |shop| {
        let mut agent = Agent::back(&shop.server, other).await;
        agent.take(3).await;
        agent
    });
    moved.await.leave().await;
}
