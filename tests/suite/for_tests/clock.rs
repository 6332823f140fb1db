//! The clock that a test moves.

use hyper::Method;
use serde_json::Value;

use crate::harness::{AT_ONCE, Agent, Answer, Sender, Server, Signer, until};
use crate::metrics::scrape;

const DAY_S: u64 = 86_400;

fn url(server: &Server) -> String {
    format!("{}/dev/clock", server.origin())
}

/// Moves the clock. Returns the answer.
async fn advance(server: &Server, body: &str) -> Value {
    let answer = Sender::new().post(&url(server)).raw_body(body).send().await;
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

fn start() -> Server {
    Server::start_with(&["--dev"])
}

#[actix_web::test]
async fn a_message_expires_with_its_receipt_when_the_clock_has_passed_its_ttl() {
    let server = start();
    let (uaid, channel) = Agent::offline(&server).await;
    let sender = Sender::new();
    let push = sender.post(&channel.endpoint).ttl(3600).header("prefer", "respond-async");
    let answer = push.body("for an hour").send().await;
    let link = answer.header("link").expect("a 202 has a Link").to_owned();
    let receipts = link.trim_start_matches('<').split('>').next().expect("it has a URL");
    sender.post(&channel.endpoint).ttl(7200).body("for two").send().await;
    let before = advance(&server, "0").await;
    let after = advance(&server, r#"{"advance": "61m"}"#).await;
    let moved = after["now_ms"].as_u64().unwrap_or(0) - before["now_ms"].as_u64().unwrap_or(0);
    assert!((3_660_000..3_700_000).contains(&moved), "{moved}");
    assert_eq!(after["ahead_s"], 3660);
    // It is written when the answer arrives, and published right after.
    let page = sender.get(&format!("{receipts}?wait=30")).await;
    assert!(page.to_string().contains("expired"), "{page}");
    assert_eq!(scrape(&server).await["kalends_waiting_messages"], 1.0);
    Agent::returned_to(&server, &uaid, "for two").await;
}

#[actix_web::test]
async fn the_turn_of_a_month_is_rehearsed_with_an_agent_that_is_connected_and_one_that_is_away() {
    let server = start();
    let month = advance(&server, "0").await["month"].clone();
    let (mut connected, of_connected) = Agent::subscribed(&server).await;
    let (away, of_away) = Agent::offline(&server).await;
    let sender = Sender::new();
    advance(&server, "16d").await;
    let stored = sender.post(&of_away.endpoint).ttl(2_592_000).body("stored before").send().await;
    assert_eq!(stored.status, 201, "{stored}");
    let now = advance(&server, &(16 * DAY_S).to_string()).await["month"].clone();
    assert_ne!(now, month);
    let tables = server.run(&["tables", "list"]).await.succeeded();
    assert!(tables.contains(now.as_str().expect("a text")), "{tables}");
    // Its session has reached its highest age.
    let uaid = connected.uaid().to_owned();
    assert!(connected.try_notification().await.is_err());
    let mut connected = Agent::reconnect(&server, &uaid).await;
    sender.push_to(&mut connected, &of_connected, "in the new month").await;
    let mut away = Agent::returned_to(&server, &away, "stored before").await;
    sender.push_to(&mut away, &of_away, "in the new month").await;
}

#[actix_web::test]
async fn senders_sign_by_the_clock_of_the_machine() {
    let server = start();
    let (signer, sender) = (Signer::new(), Sender::new());
    let mut agent = Agent::new(&server).await;
    let channel = agent.register_for(&signer.key()).await;
    let uaid = agent.leave().await;
    advance(&server, "10d").await;
    let push = sender.post(&channel.endpoint).ttl(60).body("signed today");
    let answer = push.signed(&signer, &server.origin()).send().await;
    assert_eq!(answer.status, 201, "{answer}");
    Agent::returned_to(&server, &uaid, "signed today").await;
}

#[actix_web::test]
async fn web_pages_and_proxies_do_not_move_the_clock() {
    let server = start();
    let ask = async |method: Method, headers: &[(&'static str, &str)]| -> Answer {
        let (sender, url) = (Sender::new(), url(&server));
        let mut ask = sender.request(method, &url).raw_body("1h");
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        ask.send().await
    };
    let (own, port) = (server.origin(), server.address().port());
    for (headers, status) in [
        (vec![("host", "evil.example")], 421),
        (vec![("host", "localhost.evil.example")], 421),
        (vec![("origin", "http://evil.example")], 403),
        (vec![("origin", "null")], 403),
        (vec![("origin", "http://127.0.0.1:1")], 403),
        (vec![("x-forwarded-for", "192.0.2.1")], 403),
        (vec![("x-forwarded-host", "push.example.net")], 403),
        (vec![("x-real-ip", "192.0.2.1")], 403),
        (vec![("forwarded", "for=192.0.2.1")], 403),
        (vec![("via", "1.1 proxy")], 403),
    ] {
        for method in [Method::GET, Method::POST] {
            ask(method, &headers).await.assert_error(status, 999);
        }
    }
    let by_name = format!("localhost:{port}");
    for headers in [vec![], vec![("origin", own.as_str())], vec![("host", by_name.as_str())]] {
        assert_eq!(ask(Method::GET, &headers).await.json()["ahead_s"], 0, "{headers:?}");
    }
    assert_eq!(ask(Method::POST, &[]).await.json()["ahead_s"], 3600);
}

#[actix_web::test]
async fn the_clock_moves_forward_only_and_ten_years_at_most() {
    let server = start();
    let post = async |body: &str| Sender::new().post(&url(&server)).raw_body(body).send().await;
    for body in ["", "-1h", "back", "{}", "1.5", "18446744073709551615"] {
        post(body).await.assert_refused(body, (400, 999), "expected how far");
    }
    post("3661d").await.assert_refused("too far", (400, 999), "ten years");
    post(&" ".repeat(2000)).await.assert_error(413, 104);
    assert_eq!(advance(&server, "3660d").await["ahead_s"], 3660 * DAY_S);
    post("1").await.assert_refused("too far", (400, 999), "ten years");
    let health = async || server.health().await.status == 200;
    until(AT_ONCE, "the server is well after ten years", health).await;
    let deleted = Sender::new().delete(&url(&server)).await;
    deleted.assert_error(405, 999);
}

#[actix_web::test]
async fn a_server_for_others_has_no_such_clock() {
    let server = Server::start();
    for method in [Method::GET, Method::POST] {
        let answer = Sender::new().request(method, &url(&server)).raw_body("1h").send().await;
        answer.assert_error(404, 117);
    }
}
