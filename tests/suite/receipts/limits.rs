//! The bounds of receipts.

use super::subscription::link;
use super::{Receipts, Sent, acked, send};
use crate::harness::{Launch, Sender, Server, Signer};

#[actix_web::test]
async fn a_full_subscription_refuses_further_messages_and_another_takes_them() {
    let (server, mut agent, channel) =
        Server::with_subscribed(&["--receipt-messages-max", "2"]).await;
    let first = send(&channel, "0", None).await;
    let got = agent.notification().await;
    acked(&mut agent, &got, 100).await;
    Receipts::at(&first.receipts).next().await;
    send(&channel, "1", Some(&first.receipts)).await;
    let sender = Sender::new();
    let post = sender.post(&channel.endpoint).ttl(60).header("prefer", "respond-async");
    let refused = post.header("link", &link(&first.receipts)).send().await;
    refused.assert_error(429, 201);
    assert!(refused.header("retry-after").is_some(), "{refused}");
    assert_ne!(send(&channel, "2", None).await.receipts, first.receipts);
    server.logged("receipt subscriptions are full").await;
}

#[actix_web::test]
async fn a_sender_makes_so_many_subscriptions_in_a_minute_and_may_use_each() {
    let (server, _, channel) =
        Server::with_offline(&["--receipt-subscriptions-per-minute-max", "2"]).await;
    let (one, other, sender) = (Signer::new(), Signer::new(), Sender::new());
    let push = |signer: &Signer| {
        let post = sender.post(&channel.endpoint).ttl(60).header("prefer", "respond-async");
        post.signed(signer, &server.origin())
    };
    let first = Sent::of(&push(&one).send().await);
    let second = Sent::of(&push(&one).send().await);
    assert_ne!(first.receipts, second.receipts);
    let refused = push(&one).send().await;
    let text = refused.assert_error(429, 201);
    assert!(text.contains("receipt subscriptions"), "{text}");
    assert!(refused.header("retry-after").is_some(), "{refused}");
    let linked = push(&one).header("link", &link(&first.receipts)).send().await;
    assert_eq!(Sent::of(&linked).receipts, first.receipts);
    Sent::of(&push(&other).send().await);
}

#[actix_web::test]
async fn fresh_keys_do_not_raise_the_limit_of_an_address() {
    let limits = ["--receipt-subscriptions-per-minute-max=2", "--loopback-limited=true"];
    let (server, _, channel) = Server::with_offline(&limits).await;
    let sender = Sender::new();
    let push = async || {
        let post = sender.post(&channel.endpoint).ttl(60).header("prefer", "respond-async");
        post.signed(&Signer::new(), &server.origin()).send().await
    };
    for _ in 0..2 {
        Sent::of(&push().await);
    }
    let text = push().await.assert_error(429, 201);
    assert!(text.contains("receipt subscriptions"), "{text}");
}

#[actix_web::test]
async fn a_message_that_outlives_its_subscription_gets_another() {
    let limits = ["--ttl-max-s=3600", "--receipts-keep-s=3600"];
    let (mut server, _, channel) = Server::with_offline(&limits).await;
    let first = send(&channel, "0", None).await;
    assert_eq!(send(&channel, "1", Some(&first.receipts)).await.receipts, first.receipts);
    server.terminate();
    server.restart_as(Launch::default().with(&limits).with(&["--dev", "--clock-offset-s=3600"]));
    let second = send(&channel, "2", Some(&first.receipts)).await;
    assert_ne!(second.receipts, first.receipts);
    assert_eq!(send(&channel, "3", Some(&second.receipts)).await.receipts, second.receipts);
}
