//! Connections: kept open, replaced when they break, and given up when they are silent.

use std::time::Duration;

use futures_util::future::join_all;
use state_machine::BridgeName::{Apns, Fcm};
use state_machine::BridgeOutcome::{Accepted, TimedOut, Unavailable};

use super::World;
use crate::harness::{AT_ONCE, Reply, free_port, within};

#[actix_web::test]
async fn all_messages_of_an_application_use_one_connection() {
    let world = World::new();
    for _ in 0..3 {
        let outcomes = join_all((0..50).map(|_| world.send_to(Apns))).await;
        assert!(outcomes.iter().all(|outcome| *outcome == Accepted));
    }
    assert_eq!(world.service.messages().len(), 150);
    assert_eq!(world.service.connections(), 1);
}

#[actix_web::test]
async fn a_message_of_a_connection_that_breaks_is_repeated_on_a_new_one() {
    for (bridge, breaks) in
        [(Apns, Reply::GoAway), (Apns, Reply::Close), (Fcm, Reply::GoAway), (Fcm, Reply::Close)]
    {
        let world = World::new();
        assert_eq!(world.send_to(bridge).await, Accepted);
        world.service.reply(breaks.clone());
        assert_eq!(world.send_to(bridge).await, Accepted, "{breaks:?}");
        let messages = world.service.messages();
        let connections: Vec<_> = messages.iter().map(|message| message.connection).collect();
        assert_eq!(connections, [1, 1, 2]);
        assert_eq!(messages[1].headers.get("apns-id"), messages[2].headers.get("apns-id"));
        assert_eq!(messages[1].body, messages[2].body);
    }
}

#[actix_web::test]
async fn no_message_in_flight_is_lost_when_the_connection_ends() {
    let world = World::new();
    world.service.reply_always(Reply::json(200, "").after(Duration::from_millis(50)));
    let sending = join_all((0..100).map(|_| world.send_to(Apns)));
    for _ in 0..50 {
        world.service.reply(Reply::json(200, ""));
    }
    world.service.reply(Reply::GoAway);
    let outcomes = sending.await;
    assert!(outcomes.iter().all(|outcome| *outcome == Accepted), "{outcomes:?}");
    assert_eq!(world.service.connections(), 2);
}

#[actix_web::test]
async fn a_stream_that_is_reset_is_repeated() {
    let world = World::new();
    world.service.reply(Reply::Reset);
    assert_eq!(world.send_to(Apns).await, Accepted);
    assert_eq!(world.service.messages().len(), 2);
}

#[actix_web::test]
async fn a_message_is_repeated_at_most_twice() {
    let world = World::new();
    world.service.reply_always(Reply::Close);
    assert_eq!(world.send_to(Apns).await, Unavailable);
    let sent = world.service.messages().len();
    assert!((2..=3).contains(&sent), "{sent}");
}

#[actix_web::test]
async fn a_silent_bridge_or_one_that_does_not_read_takes_the_timeout_and_no_more() {
    for reply in [Reply::Silence, Reply::Deaf] {
        let world = World::with(|settings| settings.bridge_timeout_ms = 500);
        world.service.reply(reply.clone());
        let sent = within(AT_ONCE, "it times out", world.send_to(Apns)).await;
        assert_eq!(sent, TimedOut, "{reply:?}");
    }
}

#[actix_web::test]
async fn a_port_without_a_server_or_without_tls_is_unavailable() {
    let closed = format!("https://localhost:{}", free_port().port());
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let not_tls = format!("https://localhost:{}", plain.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in plain.incoming() {
            drop(std::io::Write::write_all(
                &mut stream.unwrap(),
                b"HTTP/1.0 400 Bad Request\r\n\r\n",
            ));
        }
    });
    for origin in [closed, not_tls] {
        let world = World::new();
        let text = world.service.bridges_toml().replace(&world.service.origin(), &origin);
        world.service.write_bridges(&text);
        let world = world.reload();
        assert_eq!(world.send_to(Apns).await, Unavailable);
    }
}

#[actix_web::test]
async fn a_certificate_that_nobody_trusts_is_not_sent_to() {
    let (world, other) = (World::new(), World::new());
    std::fs::copy(other.service.file("ca.pem"), world.service.file("ca.pem")).unwrap();
    let world = world.reload();
    assert_eq!(world.send_to(Apns).await, Unavailable);
    assert!(world.service.messages().is_empty());
}
