//! Requests for receipts: pages, long polls, streams, and refusals.

use hyper::Method;

use super::{Receipts, acked, send};
use crate::harness::{Launch, Sender, Server, Signer};

#[actix_web::test]
async fn a_stream_reports_each_of_many_messages_once_and_continues_behind_the_last() {
    const MESSAGES: usize = 300;
    let (_server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let first = send(&channel, "0", None).await;
    let mut receipts = Receipts::at(&first.receipts);
    let mut events = receipts.events().await;
    let mut sent = vec![first.location.clone()];
    let pushing = async {
        for number in 1..MESSAGES {
            sent.push(send(&channel, &number.to_string(), Some(&first.receipts)).await.location);
        }
    };
    let reading = async {
        let mut got = Vec::new();
        while got.len() < MESSAGES / 2 {
            got.push(events.next().await);
        }
        got
    };
    let (_, _, mut got) = tokio::join!(agent.take(MESSAGES), pushing, reading);
    drop(events);
    receipts.cursor = got.last().expect("some arrived").id;
    let mut events = receipts.events().await;
    while got.len() < MESSAGES {
        got.push(events.next().await);
    }
    assert!(got.windows(2).all(|pair| pair[0].id < pair[1].id));
    let mut reported: Vec<_> = got.into_iter().map(|receipt| receipt.message).collect();
    reported.sort_unstable();
    sent.sort_unstable();
    assert_eq!(reported, sent);
    receipts.cursor = MESSAGES as u64;
    assert_eq!(receipts.there_are().await, []);
}

#[actix_web::test]
async fn urls_that_name_no_subscription_of_the_sender_are_answered_alike() {
    let (mut server, _, channel) = Server::with_offline(&[]).await;
    let (one, other, sender) = (Signer::new(), Signer::new(), Sender::new());
    let post = sender.post(&channel.endpoint).ttl(60).header("prefer", "respond-async");
    let sent = super::Sent::of(&post.signed(&one, &server.origin()).send().await);
    let get = |url: &str, signer: Option<&Signer>| {
        let request = sender.request(Method::GET, url);
        let request = match signer {
            Some(signer) => request.signed(signer, &server.origin()),
            None => request,
        };
        async move { request.send().await }
    };
    for signer in [None, Some(&one)] {
        assert_eq!(get(&sent.receipts, signer).await.status, 200);
    }
    let never = format!("{}/receipts/{}", server.origin(), "A".repeat(75));
    let mut texts = Vec::new();
    for (url, signer) in [
        (&*sent.receipts, Some(&other)),
        (&never, None),
        (&never, Some(&one)),
        (&format!("{}/receipts/x", server.origin()), None),
        (&format!("{}x", sent.receipts), None),
    ] {
        texts.push(get(url, signer).await.assert_error(404, 319));
    }
    // A subscription that has ended: after ttl_max_s and twice receipts_keep_s.
    server.terminate();
    server.restart_as(Launch::default().with(&["--dev", "--clock-offset-s=2764801"]));
    texts.push(Sender::new().get(&sent.receipts).await.assert_error(404, 319));
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
}

#[actix_web::test]
async fn a_wait_at_the_end_of_its_subscription_ends_with_404() {
    let (mut server, _, channel) = Server::with_offline(&[]).await;
    let sent = send(&channel, "0", None).await;
    server.terminate();
    // A few seconds before the end. On a machine that is slower than that, the subscription has ended already.
    server.restart_as(Launch::default().with(&["--dev", "--clock-offset-s=2764793"]));
    let get = async |after: u64| {
        Sender::new().get(&format!("{}?after={after}&wait=60", sent.receipts)).await
    };
    if get(0).await.status == 200 {
        get(1).await.assert_error(404, 319);
    }
    get(0).await.assert_error(404, 319);
}

#[actix_web::test]
async fn a_request_for_receipts_is_checked_like_one_for_a_feed() {
    let (_server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let sent = send(&channel, "0", None).await;
    let sender = Sender::new();
    for (query, errno) in
        [("?after=x", 307), ("?after=1", 308), ("?limit=0", 309), ("?wait=x", 310), ("?x=1", 306)]
    {
        sender.get(&format!("{}{query}", sent.receipts)).await.assert_error(400, errno);
    }
    let post = sender.post(&sent.receipts).send().await;
    post.assert_error(405, 999);
    assert_eq!(post.header("allow"), Some("GET, HEAD, OPTIONS"));
    let preflight = sender.request(Method::OPTIONS, &sent.receipts).send().await;
    assert_eq!(preflight.status, 204);
    let got = agent.notification().await;
    acked(&mut agent, &got, 100).await;
    let mut receipts = Receipts::at(&sent.receipts);
    assert_eq!(receipts.next().await.len(), 1);
    let answer = sender.get(&sent.receipts).await;
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
}
