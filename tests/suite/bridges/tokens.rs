//! Tokens: made once, renewed before they end, replaced if they are refused.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use state_machine::BridgeName::{Apns, Fcm};
use state_machine::BridgeOutcome::{Accepted, TimedOut, Unauthorized, Unavailable};
use state_machine::{BridgeOutcome, Span};

use super::World;
use crate::harness::Reply;

const MINUTE: Span = Span::from_secs(60);

const UNAUTHENTICATED: &str = r#"{"error":{"code":401,"status":"UNAUTHENTICATED"}}"#;

/// The tokens of the messages so far.
fn tokens(world: &World) -> Vec<String> {
    let messages = world.service.messages();
    let token = |headers: &hyper::HeaderMap| {
        headers["authorization"].to_str().expect("a token is ASCII").to_owned()
    };
    messages.iter().map(|message| token(&message.headers)).collect()
}

#[actix_web::test]
async fn one_request_gets_the_access_token_however_many_pushes_wait() {
    let world = World::new();
    let outcomes = join_all((0..100).map(|_| world.send_to(Fcm))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Accepted));
    assert_eq!(world.service.token_requests(), 1);
    assert_eq!(world.service.connections(), 1);
}

#[actix_web::test]
async fn one_request_that_is_refused_answers_all_pushes_that_wait() {
    let world = World::new();
    let refused = Reply::json(400, r#"{"error":"invalid_grant"}"#);
    world.service.reply_to_token_request(refused.after(Duration::from_millis(200)));
    let outcomes = join_all((0..100).map(|_| world.send_to(Fcm))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Unauthorized), "{outcomes:?}");
    assert_eq!(world.service.token_requests(), 1);
}

#[actix_web::test]
async fn an_access_token_is_renewed_five_minutes_before_its_end() {
    let world = World::new();
    assert_eq!(world.send_to(Fcm).await, Accepted);
    world.advance(MINUTE * 54);
    assert_eq!(world.send_to(Fcm).await, Accepted);
    assert_eq!(world.service.token_requests(), 1);
    world.advance(MINUTE * 2);
    assert_eq!(world.send_to(Fcm).await, Accepted);
    assert_eq!(world.service.token_requests(), 2);
    assert_eq!(tokens(&world), ["Bearer access-1", "Bearer access-1", "Bearer access-2"]);
}

#[actix_web::test]
async fn the_life_of_an_access_token_may_have_a_fraction() {
    let world = World::new();
    let granted = r#"{"access_token":"a","expires_in":3599.0}"#;
    world.service.reply_to_token_request(Reply::json(200, granted));
    assert_eq!(world.send_to(Fcm).await, Accepted);
    // The server knows the tokens that it made itself, and refuses this one.
    assert_eq!(tokens(&world)[0], "Bearer a");
}

#[actix_web::test]
async fn a_failed_renewal_keeps_the_old_token_while_it_is_valid() {
    for failure in [
        Reply::json(500, ""),
        Reply::json(200, "garbage"),
        Reply::json(400, r#"{"error":"invalid_grant"}"#),
        Reply::Silence,
    ] {
        let world = World::with(|settings| settings.bridge_timeout_ms = 2000);
        assert_eq!(world.send_to(Fcm).await, Accepted);
        world.advance(MINUTE * 56);
        world.service.reply_to_token_request(failure.clone());
        assert_eq!(world.send_to(Fcm).await, Accepted, "{failure:?}");
        // The next renewal waits a little.
        assert_eq!(world.send_to(Fcm).await, Accepted);
        assert_eq!(world.service.token_requests(), 2);
        world.advance(Span::from_secs(10));
        assert_eq!(world.send_to(Fcm).await, Accepted);
        assert_eq!(tokens(&world).pop().as_deref(), Some("Bearer access-2"));
    }
}

#[actix_web::test]
async fn while_a_token_is_renewed_other_pushes_use_the_old_one() {
    let world = World::new();
    assert_eq!(world.send_to(Fcm).await, Accepted);
    world.advance(MINUTE * 56);
    world.service.reply_to_token_request(Reply::Silence);
    let bridges = &world;
    let renewing = bridges.send_to(Fcm);
    let other = bridges.send_to(Fcm);
    tokio::pin!(renewing);
    tokio::select! {
        biased;
        outcome = &mut renewing => panic!("the token server is silent: {outcome:?}"),
        outcome = other => assert_eq!(outcome, Accepted),
    }
}

#[actix_web::test]
async fn an_access_token_that_is_refused_is_replaced_once() {
    let world = World::new();
    assert_eq!(world.send_to(Fcm).await, Accepted);
    world.service.reply(Reply::json(401, UNAUTHENTICATED));
    assert_eq!(world.send_to(Fcm).await, Accepted);
    assert_eq!(world.service.token_requests(), 2);
    assert_eq!(world.service.messages().len(), 3);
    for _ in 0..2 {
        world.service.reply(Reply::json(401, UNAUTHENTICATED));
    }
    assert_eq!(world.send_to(Fcm).await, Unauthorized);
    assert_eq!(world.service.messages().len(), 5);
}

#[actix_web::test]
async fn a_token_server_that_fails_has_its_outcome() {
    let answers: [(Reply, BridgeOutcome); 8] = [
        (Reply::json(400, r#"{"error":"invalid_grant"}"#), Unauthorized),
        (Reply::json(200, ""), Unauthorized),
        (Reply::json(200, r#"{"access_token":"a\nb","expires_in":9}"#), Unauthorized),
        (Reply::json(200, r#"{"access_token":"a","expires_in":0}"#), Unauthorized),
        (Reply::json(200, r#"{"access_token":"a","expires_in":-1.5}"#), Unauthorized),
        (Reply::json(503, ""), Unavailable),
        (Reply::json(429, ""), Unavailable),
        (Reply::Silence, TimedOut),
    ];
    for (reply, outcome) in answers {
        let world = World::with(|settings| settings.bridge_timeout_ms = 1000);
        world.service.reply_to_token_request(reply.clone());
        assert_eq!(world.send_to(Fcm).await, outcome, "{reply:?}");
        assert!(world.service.messages().is_empty());
    }
}

#[actix_web::test]
async fn a_short_token_is_used_for_half_of_its_life() {
    let world = World::new();
    world.service.set_token_life_s(100);
    assert_eq!(world.send_to(Fcm).await, Accepted);
    world.advance(Span::from_secs(48));
    assert_eq!(world.send_to(Fcm).await, Accepted);
    assert_eq!(world.service.token_requests(), 1);
    world.advance(Span::from_secs(3));
    assert_eq!(world.send_to(Fcm).await, Accepted);
    assert_eq!(world.service.token_requests(), 2);
}

#[actix_web::test]
async fn a_provider_token_is_signed_again_after_40_minutes() {
    let world = World::new();
    let mut issued = Vec::new();
    for _ in 0..3 {
        assert_eq!(world.send_to(Apns).await, Accepted);
        let claims = world.service.messages().pop().and_then(|message| message.claims);
        issued.push(claims.as_ref().and_then(|claims| claims["iat"].as_u64()).unwrap());
        world.advance(MINUTE * 25);
    }
    assert_eq!(issued[0], issued[1]);
    assert!((3000..3010).contains(&(issued[2] - issued[1])), "{issued:?}");
}

#[actix_web::test]
async fn a_provider_token_is_replaced_if_apple_calls_it_expired_but_not_within_20_minutes() {
    let expired = Reply::json(403, r#"{"reason":"ExpiredProviderToken"}"#);
    let world = World::new();
    assert_eq!(world.send_to(Apns).await, Accepted);
    world.advance(MINUTE * 19);
    world.service.reply(expired.clone());
    assert_eq!(world.send_to(Apns).await, Unauthorized);
    world.advance(MINUTE * 2);
    world.service.reply(expired);
    assert_eq!(world.send_to(Apns).await, Accepted);
    let claims: Vec<Value> =
        world.service.messages().into_iter().filter_map(|m| m.claims).collect();
    assert_eq!(claims.len(), 4);
    assert_eq!(claims[1], claims[2]);
    assert_ne!(claims[2], claims[3]);
}
