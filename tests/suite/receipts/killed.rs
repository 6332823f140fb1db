//! kill -9 between acks: a receipt says delivered only if the agent acked, and every acked message has one.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use state_machine::{Span, Time};
use storage::{ReceiptTables, Store};
use storage_sqlite::{Embedded, EmbeddedOptions};

use super::{Receipts, acked, send};
use crate::harness::{
    AT_ONCE, Agent, KillCountdown, Launch, Sender, Server, WireServer, dynamo, until,
};

#[actix_web::test]
async fn every_acked_message_has_one_receipt_after_kills_on_sqlite() {
    acks_and_kills(Launch::default(), 60, &[7, 19, 3, 11]).await;
}

#[actix_web::test]
async fn every_acked_message_has_one_receipt_after_kills_on_dynamodb() {
    let wire = WireServer::start();
    acks_and_kills(dynamo::launch(&wire.url), 30, &[5, 9]).await;
}

#[actix_web::test]
async fn receipts_that_were_written_and_not_published_are_published_when_they_are_read() {
    // One more than a page has.
    const MESSAGES: usize = 251;
    let (mut server, _, channel) = Server::with_offline(&[]).await;
    let sent = send(&channel, "0", None).await;
    for number in 1..MESSAGES {
        send(&channel, &number.to_string(), Some(&sent.receipts)).await;
    }
    server.terminate();
    assert_eq!(expire_all(&server).await, MESSAGES as u64);
    server.restart();
    let url = format!("{}?limit=1000", sent.receipts);
    let mut page = Value::Null;
    until(AT_ONCE, "requests without a wait get them", async || {
        let answer = Sender::new().get(&url).await;
        assert_eq!(answer.status, 200, "{answer}");
        page = serde_json::from_slice(&answer.body).expect("a page is JSON");
        page["head"] == json!(MESSAGES)
    })
    .await;
    let receipts = page["receipts"].as_array().expect("a page has receipts");
    assert_eq!((receipts.len(), &page["cursor"]), (MESSAGES - 1, &json!(MESSAGES - 1)));
    assert!(receipts.iter().all(|receipt| receipt["status"] == "expired"), "{page}");
}

/// Does what a server does that is killed after it has written that all messages are expired. Returns their number.
async fn expire_all(server: &Server) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    let later = Time(now.as_secs() * 1000) + Span::from_secs(86_400);
    let store = Embedded::open(&server.data_dir(), &EmbeddedOptions::new(4096));
    let store = store.expect("the server has closed it");
    let mut receipts = 0;
    loop {
        let expired = store.expire_receipts(later).await.expect("the store works");
        receipts += expired.receipts;
        if !expired.is_more {
            break;
        }
    }
    store.close().await.expect("the store closes");
    receipts
}

/// The code with which the agent acks each message.
fn code_of(body: &str) -> u16 {
    100 + body.parse::<u16>().expect("bodies are numbers") % 3
}

/// An agent acks messages one by one, and the server is killed after some acks, repeatedly.
async fn acks_and_kills(launch: Launch, messages: usize, lives: &[usize]) {
    let mut server = Server::launch(launch);
    let (uaid, channel) = Agent::offline(&server).await;
    let first = send(&channel, "0", None).await;
    let mut bodies = BTreeMap::from([(first.location.clone(), "0".to_owned())]);
    for number in 1..messages {
        let body = number.to_string();
        let sent = send(&channel, &body, Some(&first.receipts)).await;
        bodies.insert(sent.location, body);
    }
    let mut acked_bodies = Vec::new();
    for acks in lives {
        let countdown = KillCountdown::of(&server, *acks);
        let mut agent = Agent::reconnect(&server, &uaid).await;
        let mut left = *acks;
        while let Ok(got) = agent.try_notification().await {
            // The kill may be slow: some messages are left for the next life.
            if left == 0 {
                continue;
            }
            left -= 1;
            acked_bodies.push(got.body().to_owned());
            acked(&mut agent, &got, code_of(got.body())).await;
            countdown.step();
        }
        server.crash();
        for receipt in Receipts::at(&first.receipts).there_are().await {
            let body = &bodies[&receipt.message];
            assert!(acked_bodies.contains(body), "{body} was not acked: {receipt:?}");
        }
    }
    // The server may not have processed the acks of the last life. It sends their messages again.
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let mut reported = BTreeMap::new();
    let mut receipts = Receipts::at(&first.receipts);
    until(AT_ONCE, "every message has its receipt", async || {
        for got in agent.pending_notifications().await {
            acked(&mut agent, &got, code_of(got.body())).await;
        }
        for receipt in receipts.there_are().await {
            let body = bodies[&receipt.message].clone();
            assert_eq!(receipt.state(), (&*receipt.message, "delivered", Some(code_of(&body))));
            assert_eq!(reported.insert(body, receipt.id), None, "reported twice: {receipt:?}");
        }
        reported.len() == messages
    })
    .await;
}
