//! A store that is throttled, loses its answers, or is away: nobody is told that a subscription is gone, no
//! agent gets another uaid, and what was answered 201 comes.

use std::pin::pin;

use futures_util::future::join_all;

use super::Shop;
use crate::harness::{AT_ONCE, Agent, Channel, Fault, Neighbour, Rule, Sender, until};

/// A store that fails is given up soon, and asked again soon.
const IMPATIENT: [&str; 4] = [
    "--dynamodb-attempts-max=2",
    "--dynamodb-backoff-ms=1",
    "--store-retry-ms=20",
    "--dynamodb-attempt-timeout-ms=500",
];

#[actix_web::test]
async fn a_throttled_store_answers_503_and_keeps_every_agent_and_what_it_was_promised() {
    fails_for_a_while(&Fault::Throttled).await;
}

#[actix_web::test]
async fn a_store_that_is_away_answers_503_and_keeps_every_agent_and_what_it_was_promised() {
    fails_for_a_while(&Fault::CutBefore).await;
}

#[actix_web::test]
async fn a_store_with_errors_of_its_own_answers_503_and_keeps_every_agent_and_what_it_was_promised()
{
    fails_for_a_while(&Fault::Error(500, "InternalServerError")).await;
}

#[actix_web::test]
async fn a_store_that_refuses_us_answers_503_and_keeps_every_agent_and_what_it_was_promised() {
    fails_for_a_while(&Fault::Error(400, "AccessDeniedException")).await;
}

/// One agent is connected, one comes back, and one is sent messages, all while nothing succeeds.
async fn fails_for_a_while(fault: &Fault) {
    let shop = Shop::open(&IMPATIENT);
    let mut connected = Agent::new(&shop.server).await;
    let channel = connected.register().await;
    let (absent, absents_channel) = Agent::absent(&shop.server).await;
    let sender = Sender::new();
    sender.push(&absents_channel.endpoint, "promised").await;

    shop.proxy.rule(Rule::on("", fault.clone()));
    for endpoint in [&channel.endpoint, &absents_channel.endpoint] {
        unavailable(&sender, endpoint).await;
    }
    assert_eq!(sender.get(&format!("{}/health", shop.server.origin())).await.status, 503);
    connected.ping().await;
    let asked = asked_so_often(&shop, "UpdateItem");
    {
        let mut back = pin!(Agent::back(&shop.server, &absent));
        let failing = until(AT_ONCE, "hello is tried again and again", async || {
            asked_so_often(&shop, "UpdateItem") >= asked + 6
        });
        tokio::select! {
            _ = &mut back => panic!("nobody can know who this is"),
            () = failing => {}
        }
        shop.proxy.heal();
        // The greeting checks the uaid.
        let mut back = back.await;
        assert_eq!(back.take(1).await[0].body(), "promised");
        sender.push_to(&mut back, &absents_channel, "after").await;
        back.leave().await;
    }
    sender.push_to(&mut connected, &channel, "after").await;
    let connections = shop.server.connections().await;
    assert_eq!(connections, 1, "the one that was there all the time");
}

/// A push that is not promised, and of which nobody says that it never can be.
async fn unavailable(sender: &Sender, endpoint: &str) {
    let answer = sender.post(endpoint).ttl(3600).body("not promised").send().await;
    answer.refused(503, 201);
    let retry_after = answer.header("retry-after").and_then(|after| after.parse::<u32>().ok());
    assert!(retry_after.is_some_and(|after| after > 0), "{answer}");
}

fn asked_so_often(shop: &Shop, operation: &str) -> usize {
    shop.proxy.bill_so_far().count(&[operation])
}

#[actix_web::test]
async fn a_message_table_that_is_throttled_alone_stops_no_direct_push() {
    let shop = Shop::open(&IMPATIENT);
    let mut neighbour = Neighbour::beside(&shop.server).await;
    let (_, channel) = Agent::absent(&shop.server).await;
    shop.proxy.rule(Rule::on("", Fault::Throttled).table("message_"));
    unavailable(&Sender::new(), &channel.endpoint).await;
    neighbour.notices_nothing().await;
}

/// The message is stored, but nobody can say whether its user agent will look there: no 201.
#[actix_web::test]
async fn a_second_look_that_fails_is_answered_503_and_the_message_comes_all_the_same() {
    let shop = Shop::open(&IMPATIENT);
    let (uaid, channel) = Agent::absent(&shop.server).await;
    let sender = Sender::new();
    sender.push(&channel.endpoint, "promised").await;
    shop.proxy.rule(Rule::on("GetItem", Fault::Throttled).table("router").after(1));
    unavailable(&sender, &channel.endpoint).await;
    shop.proxy.heal();
    let got = Agent::back(&shop.server, &uaid).await.take(2).await;
    assert_eq!(got.iter().map(|got| got.body()).collect::<Vec<_>>(), ["promised", "not promised"]);
}

/// What hangs may still be done: a message that was not promised may come all the same.
#[actix_web::test]
async fn a_request_that_hangs_is_given_up() {
    let shop = Shop::open(&IMPATIENT);
    let mut neighbour = Neighbour::beside(&shop.server).await;
    let (uaid, channel) = Agent::absent(&shop.server).await;
    shop.proxy.rule(Rule::on("PutItem", Fault::Held));
    let sender = Sender::new();
    tokio::join!(unavailable(&sender, &channel.endpoint), shop.proxy.held(1));
    neighbour.notices_nothing().await;
    shop.proxy.heal();
    sender.push(&channel.endpoint, "promised").await;
    let mut agent = Agent::back(&shop.server, &uaid).await;
    while agent.take(1).await[0].body() != "promised" {}
}

/// Every operation in the life of a message is carried out, and nobody hears of it the first time.
#[actix_web::test]
async fn an_answer_that_is_lost_after_a_write_makes_no_duplicate_and_loses_nothing() {
    let shop = Shop::open(&["--dynamodb-backoff-ms=1"]);
    let lose = |operation| shop.proxy.rule(Rule::on(operation, Fault::CutAfter).times(1));
    lose("UpdateItem");
    let mut agent = Agent::new(&shop.server).await;
    let channel = agent.register().await;
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
    let mut agent = Agent::back(&shop.server, &uaid).await;
    let mut got = agent.take(3).await;
    got.sort_by(|one, other| one.version.cmp(&other.version));
    assert_eq!(got.iter().map(|got| got.body()).collect::<Vec<_>>(), ["one", "two", "three"]);
    agent.leave().await;

    comes_to_nothing(&shop, &uaid, &channel).await;
    lose("UpdateItem");
    let mut agent = Agent::back(&shop.server, &uaid).await;
    agent.unregister(&second).await;
    let gone = sender.post(&second.endpoint).ttl(60).body("too late").send().await;
    gone.refused(410, 106);
}

/// An ack whose delete is carried out, and nobody hears of it.
#[actix_web::test]
async fn a_delete_whose_answer_is_lost_is_settled() {
    let shop = Shop::open(&["--dynamodb-backoff-ms=1"]);
    let (uaid, channel) = Agent::absent(&shop.server).await;
    Sender::new().push(&channel.endpoint, "once").await;
    let mut agent = Agent::back(&shop.server, &uaid).await;
    shop.proxy.rule(Rule::on("DeleteItem", Fault::CutAfter).times(1));
    assert_eq!(agent.take(1).await[0].body(), "once");
    until(AT_ONCE, "it is deleted", async || asked_so_often(&shop, "DeleteItem") >= 2).await;
    agent.leave().await;
    comes_to_nothing(&shop, &uaid, &channel).await;
}

/// Nothing waits: the next that comes is the next that is sent.
async fn comes_to_nothing(shop: &Shop, uaid: &str, channel: &Channel) {
    let sender = Sender::new();
    sender.push_topic(&channel.endpoint, "last", "nothing was left").await;
    let mut agent = Agent::back(&shop.server, uaid).await;
    let next = agent.take(1).await;
    assert_eq!(next[0].body(), "nothing was left");
    assert_eq!(agent.notifications_so_far().await, []);
    agent.leave().await;
}

/// An ack that was said while the store was throttled holds when it is not any more.
#[actix_web::test]
async fn an_ack_during_the_throttle_is_settled_after_it() {
    let shop = Shop::open(&IMPATIENT);
    let (uaid, channel) = Agent::absent(&shop.server).await;
    Sender::new().push(&channel.endpoint, "acked").await;
    let mut agent = Agent::back(&shop.server, &uaid).await;
    let notification = agent.notification().await;
    shop.proxy.rule(Rule::on("DeleteItem", Fault::Throttled));
    agent.ack(&notification).await;
    until(AT_ONCE, "its delete fails", async || asked_so_often(&shop, "DeleteItem") >= 4).await;
    let failed = asked_so_often(&shop, "DeleteItem");
    shop.proxy.heal();
    until(AT_ONCE, "it is deleted", async || asked_so_often(&shop, "DeleteItem") > failed).await;
    agent.leave().await;
    comes_to_nothing(&shop, &uaid, &channel).await;
}

/// Commands wait for the store, on the same connection.
#[actix_web::test]
async fn a_channel_registered_during_the_throttle_is_granted_after_it() {
    let shop = Shop::open(&IMPATIENT);
    let mut agents = join_all((0..3).map(|_| Agent::new(&shop.server))).await;
    shop.proxy.rule(Rule::on("UpdateItem", Fault::Throttled));
    {
        let mut registered = pin!(join_all(agents.iter_mut().map(Agent::register)));
        let failing =
            until(AT_ONCE, "it fails", async || asked_so_often(&shop, "UpdateItem") >= 12);
        tokio::select! {
            _ = &mut registered => panic!("granted, and kept nowhere"),
            () = failing => {}
        }
        shop.proxy.heal();
        registered.await;
    }
    for agent in &mut agents {
        agent.ping().await;
    }
}
