//! Pushes that ask for a receipt, and what becomes of their messages.

use super::subscription::link;
use super::{Receipts, Sent, acked, send};
use crate::harness::{Agent, Launch, Sender, Server, Signer};

#[actix_web::test]
async fn a_connected_agents_ack_is_reported_with_its_code() {
    let (_server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let first = send(&channel, "0", None).await;
    let mut receipts = Receipts::at(&first.receipts);
    assert_eq!(receipts.there_are().await, [], "nothing was acked");
    let got = agent.notification().await;
    acked(&mut agent, &got, 100).await;
    assert_eq!(receipts.next().await[0].state(), (&*first.location, "delivered", Some(100)));
    for (code, body) in [(101, "1"), (102, "2")] {
        let sent = send(&channel, body, Some(&first.receipts)).await;
        assert_eq!(sent.receipts, first.receipts, "the subscription is shared");
        let got = agent.notification().await;
        assert_eq!(got.body(), body);
        acked(&mut agent, &got, code).await;
        assert_eq!(receipts.next().await[0].state(), (&*sent.location, "delivered", Some(code)));
    }
    // A push without the wish is delivered directly.
    Sender::new().push_to(&mut agent, &channel, "3").await;
    assert_eq!(receipts.there_are().await, []);
}

#[actix_web::test]
async fn a_stored_messages_ack_is_reported_after_a_restart_and_a_second_ack_is_not() {
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    let sent = send(&channel, "stored", None).await;
    server.crash();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.notification().await;
    for _ in 0..2 {
        acked(&mut agent, &got, 102).await;
    }
    let mut receipts = Receipts::at(&sent.receipts);
    assert_eq!(receipts.next().await[0].state(), (&*sent.location, "delivered", Some(102)));
    agent.leave().await;
    assert_eq!(receipts.there_are().await, []);
}

fn two_hours_later() -> Launch {
    Launch::default().with(&["--feed-sweep-s=1", "--dev", "--clock-offset-s=7200"])
}

#[actix_web::test]
async fn an_expired_message_is_reported_and_a_replaced_or_deleted_one_never() {
    let (mut server, _, channel) = Server::with_offline(&["--feed-sweep-s", "1"]).await;
    let sender = Sender::new();
    let expiring = send(&channel, "expires", None).await;
    let topic = |body: &'static str| {
        let post = sender.post(&channel.endpoint).ttl(3600).header("prefer", "respond-async");
        let post = post.header("topic", "t").header("link", &link(&expiring.receipts));
        async move { Sent::of(&post.body(body).send().await) }
    };
    let (_replaced, newer) = (topic("old").await, topic("new").await);
    let deleted = send(&channel, "deleted", Some(&expiring.receipts)).await;
    assert_eq!(sender.delete(&deleted.location).await.status, 204);
    server.terminate();
    server.restart_as(two_hours_later());
    let url = expiring.receipts.clone();
    let mut receipts = Receipts::at(&url);
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(receipts.next().await);
    }
    got.sort_by_key(|receipt| receipt.message != expiring.location);
    let states: Vec<_> = got.iter().map(super::Receipt::state).collect();
    let expected = [expiring, newer].map(|sent| sent.location);
    assert_eq!(states, expected.each_ref().map(|location| (&**location, "expired", None)));
    server.terminate();
    server.restart();
    let mut after = Receipts::at(&url);
    after.cursor = receipts.cursor;
    assert_eq!(after.there_are().await, []);
}

#[actix_web::test]
async fn a_push_that_cannot_have_a_receipt_is_answered_201() {
    let (_server, _, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    let zero = sender.post(&channel.endpoint).ttl(0).header("prefer", "respond-async");
    let zero = zero.send().await;
    assert_eq!((zero.status, zero.header("link")), (201, None), "{zero}");
}

#[actix_web::test]
async fn a_push_that_is_refused_leaves_no_receipt_behind() {
    let (mut server, uaid, channel) = Server::with_offline(&["--feed-sweep-s", "1"]).await;
    let kept = send(&channel, "kept", None).await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let gone = agent.register().await;
    agent.unregister(&gone).await;
    agent.leave().await;
    let sender = Sender::new();
    let refused = sender.post(&gone.endpoint).ttl(60).header("prefer", "respond-async");
    let refused = refused.header("link", &link(&kept.receipts)).send().await;
    refused.assert_error(410, 106);
    server.terminate();
    server.restart_as(two_hours_later());
    let mut receipts = Receipts::at(&kept.receipts);
    assert_eq!(receipts.next().await[0].state(), (&*kept.location, "expired", None));
    assert_eq!(receipts.there_are().await, []);
}

#[actix_web::test]
async fn a_link_of_another_sender_is_refused_like_one_that_never_was() {
    let (server, _, channel) = Server::with_offline(&[]).await;
    let (one, other, sender) = (Signer::new(), Signer::new(), Sender::new());
    let push = |signer: Option<&Signer>, url: Option<&str>| {
        let post = sender.post(&channel.endpoint).ttl(60).header("prefer", "respond-async");
        let post = match url {
            Some(url) => post.header("link", &link(url)),
            None => post,
        };
        let post = match signer {
            Some(signer) => post.signed(signer, &server.origin()),
            None => post,
        };
        async move { post.send().await }
    };
    let ours = Sent::of(&push(Some(&one), None).await).receipts;
    let never = format!("{}{}", &ours[..ours.len() - 20], "A".repeat(20));
    let mut texts = Vec::new();
    for answer in [
        push(Some(&other), Some(&ours)).await,
        push(None, Some(&ours)).await,
        push(Some(&one), Some(&never)).await,
        push(Some(&one), Some("https://elsewhere.example/x")).await,
    ] {
        texts.push(answer.assert_error(400, 116));
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert_eq!(Sent::of(&push(Some(&one), Some(&ours)).await).receipts, ours);
}
