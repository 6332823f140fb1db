//! VAPID: every fault of a token is rejected, and the message names the check that failed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::Method;
use serde_json::json;

use crate::harness::{Agent, Sender, Server, Signer, unix_now_s};
use crate::metrics::scrape;

#[actix_web::test]
async fn every_fault_of_a_vapid_token_is_rejected_and_named() {
    let (server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let (sender, signer, stranger) = (Sender::new(), Signer::new(), Signer::new());
    let (origin, now) = (server.origin(), unix_now_s());
    let es256 = json!({"typ": "JWT", "alg": "ES256"});
    let good = json!({"aud": origin, "exp": now + 3600, "sub": "mailto:a@b.example"});
    let token = signer.token_with_claims(&good);
    let claiming = |claims| signer.vapid(&signer.token_with_claims(&claims));
    let with_header = |header| signer.vapid(&signer.token(&header, &good));
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let other_claims = signer.token_with_claims(&json!({"aud": origin, "exp": now + 7200}));
    let swapped = format!("{}.{signature}", other_claims.rsplit_once('.').unwrap().0);
    let key = signer.key();
    for (authorization, expected) in [
        (String::new(), "scheme"),
        ("Basic YTpi".to_owned(), "scheme"),
        ("vapid".to_owned(), "no token"),
        (format!("vapid k={key}"), "no token"),
        (format!("vapid t={token}"), "no public key (k)"),
        (format!("vapid t={token},t={token},k={key}"), "t more than once"),
        (format!("WebPush {token}"), "p256ecdsa"),
        (format!("Bearer {token}"), "p256ecdsa"),
        (format!("vapid t={token},k=AAAA"), "P-256 point"),
        (format!("vapid t={token},k={}", &key[..86]), "P-256 point"),
        (format!("vapid t={token},k=B{}", "A".repeat(86)), "P-256 point"),
        (signer.vapid("garbage"), "three parts"),
        (signer.vapid(signed), "three parts"),
        (signer.vapid(&format!("{token}.x")), "three parts"),
        (signer.vapid(&"x".repeat(4097)), "longer than 4096"),
        (signer.vapid(&format!("!.{token}")), "three parts"),
        (signer.vapid(&format!("e30.{}", token.split_once('.').unwrap().1)), "header"),
        (signer.vapid(&format!("{signed}.AAAA")), "64 bytes"),
        (signer.vapid(&format!("{signed}.!")), "64 bytes"),
        (signer.vapid(&swapped), "does not match"),
        (stranger.vapid(&token), "does not match"),
        (with_header(json!({"typ": "JWT", "alg": "none"})), "not ES256"),
        (with_header(json!({"typ": "JWT", "alg": "HS256"})), "not ES256"),
        (with_header(json!({"alg": "ES256", "crit": ["exp"]})), "crit"),
        (signer.vapid(&signer.token(&es256, &json!("claims"))), "claims are not"),
        (claiming(json!({"exp": now + 3600})), "no aud"),
        (claiming(json!({"aud": 5, "exp": now + 3600})), "no aud"),
        (claiming(json!({"aud": "https://other.example", "exp": now + 3600})), "another server"),
        (claiming(json!({"aud": ["https://other.example"], "exp": now + 60})), "another server"),
        (claiming(json!({"aud": format!("{origin}0"), "exp": now + 3600})), "another server"),
        (claiming(json!({"aud": origin})), "no exp"),
        (claiming(json!({"aud": origin, "exp": "soon"})), "not a number"),
        (claiming(json!({"aud": origin, "exp": now - 3600})), "expired 36"),
        (claiming(json!({"aud": origin, "exp": -5})), "expired"),
        (claiming(json!({"aud": origin, "exp": now + 90_000})), "more than 24 hours"),
        (claiming(json!({"aud": origin, "exp": 1e300})), "more than 24 hours"),
    ] {
        let post = sender.post(&channel.endpoint).ttl(60).body("refused");
        let answer = post.header("authorization", &authorization).send().await;
        answer.assert_refused(&authorization, (401, 109), expected);
        assert_eq!(answer.header("www-authenticate"), Some("vapid"));
    }
    let twice = sender.post(&channel.endpoint).ttl(60).signed(&signer, &origin);
    let twice = twice.signed(&signer, &origin).send().await;
    twice.assert_refused("two headers", (401, 109), "more than once");
    sender.push_to(&mut agent, &channel, "the first to arrive").await;
}

#[actix_web::test]
async fn valid_tokens_are_accepted_in_every_form_that_senders_use() {
    let (server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let (sender, signer) = (Sender::new(), Signer::new());
    let (origin, exp, key) = (server.origin(), unix_now_s() + 3600, signer.key());
    let token = signer.token_with_claims(&json!({"aud": origin, "exp": exp}));
    let claiming = |claims| signer.vapid(&signer.token_with_claims(&claims));
    let legacy = format!("p256ecdsa={key}");
    for (authorization, crypto_key) in [
        (signer.authorization(&origin), None),
        (format!("vapid t={token}, k={key}"), None),
        (format!("VAPID k={key},t={token}"), None),
        (format!("vapid k=\"{key}=\", t=\"{token}\""), None),
        (claiming(json!({"aud": [origin, "https://other.example"], "exp": exp})), None),
        (claiming(json!({"aud": format!("{origin}/"), "exp": exp})), None),
        (claiming(json!({"aud": origin, "exp": exp as f64 + 0.5})), None),
        (claiming(json!({"aud": origin, "exp": exp, "sub": 5, "extra": []})), None),
        (format!("WebPush {token}"), Some(&legacy)),
        (format!("Bearer {token}"), Some(&legacy)),
    ] {
        for body in ["first", "again, from the cache"] {
            let mut post = sender.post(&channel.endpoint).ttl(60).body(body);
            post = post.header("authorization", &authorization);
            if let Some(crypto_key) = crypto_key {
                post = post.header("crypto-key", crypto_key);
            }
            let (answer, got) = tokio::join!(post.send(), agent.take(1));
            assert_eq!(answer.status, 201, "{authorization}: {answer}");
            assert_eq!(got[0].body(), body);
        }
    }
}

#[actix_web::test]
async fn a_restricted_endpoint_accepts_only_its_own_key() {
    let (server, mut agent) = Server::with_agent(&[]).await;
    let (owner, other) = (Signer::new(), Signer::new());
    let sender = Sender::new();
    for key in [owner.key(), owner.key() + "="] {
        let channel = agent.register_for(&key).await;
        let push = |body: &str| sender.post(&channel.endpoint).ttl(60).body(body);

        let unsigned = push("unsigned").send().await;
        assert!(unsigned.assert_error(401, 109).contains("restricted"));
        assert_eq!(unsigned.header("www-authenticate"), Some("vapid"));
        let foreign = push("foreign").signed(&other, &server.origin()).send().await;
        assert!(foreign.assert_error(403, 109).contains("another VAPID key"));
        // A request that names the key without a signature does not prove its possession.
        let token =
            other.token_with_claims(&json!({"aud": server.origin(), "exp": unix_now_s() + 60}));
        let forged = push("forged").header("authorization", &owner.vapid(&token)).send().await;
        assert!(forged.assert_error(401, 109).contains("does not match"));

        let own = push("own").signed(&owner, &server.origin()).send();
        let (answer, got) = tokio::join!(own, agent.take(1));
        assert_eq!(answer.status, 201, "{answer}");
        assert_eq!((got[0].body(), &got[0].channel), ("own", &channel.id));

        let unrestricted = channel.endpoint.replace("/wpush/r/", "/wpush/");
        let around = sender.post(&unrestricted).ttl(60).signed(&owner, &server.origin());
        around.send().await.assert_error(404, 102);
    }
}

#[actix_web::test]
async fn a_restricted_endpoint_of_lost_keys_is_unknown_with_every_key() {
    let (before, after) = (Server::start(), Server::start());
    let (owner, other) = (Signer::new(), Signer::new());
    let channel = Agent::new(&before).await.register_for(&owner.key()).await;
    let lost = format!("{}{}", after.origin(), channel.path(&before));
    let sender = Sender::new();
    for signer in [&owner, &other] {
        let push = sender.post(&lost).ttl(60).body("lost").signed(signer, &after.origin());
        push.send().await.assert_error(404, 102);
    }
    sender.post(&lost).ttl(60).body("lost").send().await.assert_error(404, 102);
}

#[actix_web::test]
async fn a_register_for_a_key_that_is_not_on_the_curve_is_refused_for_good() {
    let (_server, mut agent) = Server::with_agent(&[]).await;
    let signer = Signer::new();
    let mut point = signer.public().to_vec();
    point[64] ^= 1;
    let channel = "0b6ae4b6-6e75-4e1b-bc5d-a9b2d1a4a2a1";
    for key in [URL_SAFE_NO_PAD.encode(point), "AAAA".to_owned(), "!".to_owned(), String::new()] {
        let register = json!({"messageType": "register", "channelID": channel, "key": key});
        agent.socket().send_json(&register).await;
        let expected = json!({"messageType": "register", "channelID": channel, "status": 400,
            "pushEndpoint": "",
            "reason": "key must be an uncompressed P-256 point in URL-safe base64"});
        assert_eq!(agent.socket().receive().await, Ok(expected), "{key}");
    }
    agent.register_for(&signer.key()).await;
}

/// The server has another name now. Senders sign for the origin in the endpoint that they have.
#[actix_web::test]
async fn endpoints_of_a_former_name_keep_working() {
    let former = "https://old.example";
    let (server, mut agent, channel) =
        Server::with_subscribed(&[&format!("--former-urls=http://older.example,{former}")]).await;
    let (sender, signer) = (Sender::new(), Signer::new());
    let count = async || scrape(&server).await["kalends_former_url_pushes_total"];
    sender.push_to(&mut agent, &channel, "unsigned").await;
    let own = sender.post(&channel.endpoint).ttl(60).body("signed for the new name");
    assert_eq!(own.signed(&signer, &server.origin()).send().await.status, 201);
    assert_eq!(count().await, 0.0);
    for (times, origin) in
        [former, "https://old.example:443/", "http://older.example", former].into_iter().enumerate()
    {
        let push = sender.post(&channel.endpoint).ttl(60).body("signed for an old name");
        let answer = push.signed(&signer, origin).send().await;
        assert_eq!(answer.status, 201, "{origin}");
        assert_eq!(count().await, times as f64 + 1.0);
    }
    // An unsigned push is known by the name that it was sent to.
    let push = sender.post(&channel.endpoint).ttl(60).body("unsigned");
    assert_eq!(push.header("host", "old.example").send().await.status, 201);
    assert_eq!(count().await, 5.0);
    let token = channel.endpoint.strip_prefix(&server.origin()).expect("it is of the server");
    let pushkey = format!("{former}{token}");
    let notification = json!({"notification": {"event_id": "$a", "devices": [{"app_id": "a", "pushkey": pushkey}]}});
    let gateway = format!("{}/_matrix/push/v1/notify", server.origin());
    let answer = sender.request(Method::POST, &gateway).raw_body(notification.to_string());
    assert_eq!(answer.send().await.json(), json!({"rejected": []}));
    assert_eq!(count().await, 6.0);
    let inspected = server.run(&["inspect", &pushkey]).await.succeeded();
    assert!(!inspected.contains("another origin"), "{inspected}");
    let status = server.run(&["status"]).await.succeeded();
    assert!(status.contains("former URLs  6 pushes since the start\n"), "{status}");
    let foreign = sender.post(&channel.endpoint).ttl(60).body("refused");
    let answer = foreign.signed(&signer, "https://old.example.evil.example").send().await;
    answer.assert_refused("of no name", (401, 109), "another server");
    assert_eq!(count().await, 6.0);
}
