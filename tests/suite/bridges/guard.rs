//! The guard of an application: its bound, its breaker and its counts.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use state_machine::BridgeName::{Apns, Fcm};
use state_machine::BridgeOutcome::{Accepted, Busy, TimedOut, TooLarge, Unauthorized, Unavailable};
use state_machine::Span;

use super::{World, large, recipient};
use crate::harness::{AT_ONCE, Reply, until};

#[actix_web::test]
async fn a_push_over_the_bound_is_busy_and_another_application_is_not() {
    let world = World::with(|settings| settings.bridge_pushes_in_flight_max = 3);
    world.service.reply_always(Reply::Silence);
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(world.send_to(Apns))).collect();
    for push in &mut waiting {
        assert!(push.now_or_never().is_none());
    }
    assert_eq!(world.state(Apns).in_flight, 3);
    assert_eq!(world.send_to(Apns).await, Busy { retry_after: None });
    until(AT_ONCE, "the pushes are sent", async || world.service.messages().len() == 3).await;
    world.service.reply_always(Reply::default());
    assert_eq!(world.send_to(Fcm).await, Accepted);
    assert_eq!(world.state(Apns).outcomes["busy"], 1);
}

#[actix_web::test]
async fn a_push_that_nobody_awaits_any_more_is_sent_and_frees_its_place() {
    let world = World::new();
    let mut push = Box::pin(world.send_to(Apns));
    assert!((&mut push).now_or_never().is_none());
    drop(push);
    until(AT_ONCE, "the push ends", async || world.state(Apns).in_flight == 0).await;
    assert_eq!(world.service.messages().len(), 1);
    assert_eq!(world.state(Apns).outcomes["accepted"], 1);
}

#[actix_web::test]
async fn after_five_failures_in_a_row_pushes_are_answered_at_once() {
    let world = World::with(|settings| settings.bridge_timeout_ms = 100);
    world.service.reply_always(Reply::Silence);
    for _ in 0..5 {
        assert!(world.state(Apns).is_available);
        assert_eq!(world.send_to(Apns).await, TimedOut);
    }
    for _ in 0..100 {
        assert_eq!(world.send_to(Apns).now_or_never(), Some(Unavailable));
    }
    assert_eq!(world.service.messages().len(), 5);
}

#[actix_web::test]
async fn failures_with_an_answer_between_them_do_not_open_the_breaker() {
    let world = World::new();
    for _ in 0..4 {
        for _ in 0..4 {
            world.service.reply(Reply::json(500, ""));
            assert_eq!(world.send_to(Apns).await, Unavailable);
        }
        assert_eq!(world.send_to(Apns).await, Accepted);
    }
}

async fn fails_five_times(world: &World) {
    for _ in 0..5 {
        world.service.reply(Reply::json(500, ""));
        assert_eq!(world.send_to(Apns).await, Unavailable);
    }
}

#[actix_web::test]
async fn one_push_tries_a_bridge_again_after_the_backoff_and_closes_the_breaker() {
    let world = World::new();
    fails_five_times(&world).await;
    // The first probe fails, so the next wait is twice as long.
    world.advance(Span(1000));
    world.service.reply(Reply::json(500, ""));
    let outcomes = join_all((0..10).map(|_| world.send_to(Apns))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Unavailable));
    assert_eq!(world.service.messages().len(), 6);
    world.advance(Span(1000));
    assert_eq!(world.send_to(Apns).await, Unavailable);
    assert_eq!(world.service.messages().len(), 6);
    world.advance(Span(1100));
    assert_eq!(world.send_to(Apns).await, Accepted);
    assert!(world.state(Apns).is_available);
}

#[actix_web::test]
async fn a_message_that_is_too_large_is_no_probe() {
    let world = World::new();
    fails_five_times(&world).await;
    world.advance(Span(1000));
    assert_eq!(world.send(&recipient(Apns), &large(4096)).await, TooLarge { max_bytes: 4096 });
    assert!(!world.state(Apns).is_available);
    assert_eq!(world.send_to(Apns).await, Accepted);
}

#[actix_web::test]
async fn a_bridge_that_names_a_time_is_not_asked_before() {
    let world = World::new();
    world.service.reply(Reply::json(503, "").header("retry-after", "30"));
    assert_eq!(world.send_to(Fcm).await, Unavailable);
    world.advance(Span::from_secs(29));
    assert_eq!(world.send_to(Fcm).await, Unavailable);
    assert_eq!(world.service.messages().len(), 1);
    world.advance(Span::from_secs(2));
    assert_eq!(world.send_to(Fcm).await, Accepted);
}

#[actix_web::test]
async fn refused_credentials_do_not_flood_the_bridge() {
    let world = World::new();
    for _ in 0..5 {
        world.service.reply(Reply::json(403, r#"{"reason":"InvalidProviderToken"}"#));
    }
    for _ in 0..20 {
        assert_eq!(world.send_to(Apns).await, Unauthorized);
    }
    assert_eq!(world.service.messages().len(), 5);
}

#[actix_web::test]
async fn the_bound_holds_while_thousands_of_pushes_arrive() {
    let world = World::with(|settings| settings.bridge_pushes_in_flight_max = 900);
    world.service.reply_always(Reply::json(200, "").after(Duration::from_millis(200)));
    let outcomes = join_all((0..3000).map(|_| world.send_to(Apns))).await;
    let accepted = outcomes.iter().filter(|outcome| **outcome == Accepted).count();
    let busy = outcomes.iter().filter(|outcome| matches!(outcome, Busy { .. })).count();
    assert_eq!((accepted + busy, accepted >= 900, busy > 0), (3000, true, true));
    assert_eq!(world.service.messages().len(), accepted);
    assert_eq!(world.service.connections(), 1);
}
