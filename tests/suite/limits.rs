//! Limits by who asks, over real sockets: the one who asks too often gets a named answer, others are unaffected.
//!
//! The peers of these tests are on loopback, which is a trusted proxy here: each names its own address.

use std::net::{IpAddr, Ipv4Addr};

use hyper::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Error;

use crate::harness::{AT_ONCE, Agent, Answer, Closed, Raw, Sender, Server, Signer, Socket, until};

const TRUSTED: &str = "--trusted-proxies=127.0.0.1";
const ALICE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const BOB: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Requests that are enough to reach the small limits of these tests, however slow the machine is.
const MANY: usize = 1000;

/// Checks a 429 of this limit, with 3 requests a minute.
fn assert_over_limit(answer: &Answer, policy: &str) {
    let who = policy.replace("vapid-key", "VAPID key");
    let text = format!("too many requests of this {who}: try again after");
    assert!(answer.assert_error(429, 201).contains(&text), "{answer}");
    let wait: u64 = answer.header("retry-after").unwrap_or_default().parse().expect("seconds");
    assert!((1..=20).contains(&wait), "{answer}");
    let quota = format!("\"{policy}\";r=0;t={wait}");
    assert_eq!(answer.header("ratelimit"), Some(&*quota));
    let policy = format!("\"{policy}\";q=3;w=60");
    assert_eq!(answer.header("ratelimit-policy"), Some(&*policy));
    let exposed = answer.header("access-control-expose-headers").unwrap_or_default();
    assert!(exposed.contains("retry-after, ratelimit, ratelimit-policy"), "{answer}");
}

/// What the first attempt returns that is refused, and the number of those before.
async fn until_refused<T>(mut attempt: impl AsyncFnMut() -> Option<T>) -> (usize, T) {
    for passed in 0..MANY {
        if let Some(refused) = attempt().await {
            return (passed, refused);
        }
    }
    panic!("{MANY} requests passed");
}

/// Pushes until a 429, and checks that it is of this limit.
async fn assert_limited(push: impl AsyncFn() -> Answer, policy: &str) {
    let (passed, answer) = until_refused(async || {
        let answer = push().await;
        assert!([201, 429].contains(&answer.status), "{answer}");
        (answer.status == 429).then_some(answer)
    })
    .await;
    assert!(passed >= 3, "{passed}");
    assert_over_limit(&answer, policy);
}

/// Registers a channel, and returns the answer.
async fn register(agent: &mut Agent) -> Value {
    let chid = uuid::Uuid::new_v4().to_string();
    let register = json!({"messageType": "register", "channelID": chid});
    agent.request(&register).await.expect("the session continues")
}

async fn hello(server: &Server, uaid: Option<&str>) -> Option<Closed> {
    let mut socket = Socket::open(server).await;
    socket.send_json(&json!({"messageType": "hello", "uaid": uaid})).await;
    socket.receive().await.err()
}

async fn refusals(server: &Server) -> Value {
    server.health().await.json()["refused"].take()
}

#[actix_web::test]
async fn pushes_to_one_subscription_are_limited_and_another_is_unaffected() {
    let (server, mut agent) = Server::with_agent(&["--subscription-pushes-per-minute-max=3"]).await;
    let (channel, other) = (agent.register().await, agent.register().await);
    let sender = Sender::new();
    let push = async || sender.post(&channel.endpoint).ttl(60).body("x").send().await;
    assert_limited(push, "subscription").await;
    sender.push(&other.endpoint, "x").await;
    assert_eq!(refusals(&server).await, json!({"subscription_pushes_per_minute_max": 1}));
}

#[actix_web::test]
async fn pushes_of_one_vapid_key_are_limited_and_no_other_key_uses_up_its_limit() {
    let server = Server::start_with(&["--vapid-key-pushes-per-minute-max=3"]);
    let channel = Agent::new(&server).await.register().await;
    let (sender, signer, thief) = (Sender::new(), Signer::new(), Signer::new());
    let push = async |signer: &Signer| {
        let push = sender.post(&channel.endpoint).ttl(60).signed(signer, &server.origin());
        push.body("x").send().await
    };
    // A token that another key signed.
    let forged = thief.authorization(&server.origin());
    let forged = forged.replace(&thief.key(), &signer.key());
    for _ in 0..10 {
        let push = sender.post(&channel.endpoint).ttl(60).header("authorization", &forged);
        push.send().await.assert_error(401, 109);
    }
    assert_limited(async || push(&signer).await, "vapid-key").await;
    assert_eq!(push(&thief).await.status, 201);
    sender.push(&channel.endpoint, "unsigned").await;
}

#[actix_web::test]
async fn pushes_from_one_address_are_limited_and_the_log_names_it_by_a_hash() {
    let server = Server::start_with(&[TRUSTED, "--address-pushes-per-minute-max=3"]);
    let channel = Agent::new(&server).await.register().await;
    let sender = Sender::new();
    let push = async |address: IpAddr| {
        let push = sender.post(&channel.endpoint).ttl(60).body("x");
        push.header("x-forwarded-for", &address.to_string()).send().await
    };
    assert_limited(async || push(ALICE).await, "address").await;
    // The limit is charged before the token is read.
    let nowhere = sender.post(&format!("{}/wpush/nowhere", server.origin()));
    assert_eq!(nowhere.header("x-forwarded-for", &ALICE.to_string()).send().await.status, 429);
    assert_eq!(push(BOB).await.status, 201);
    sender.push(&channel.endpoint, "from loopback").await;
    let line = server.logged("more arrive of one sender").await;
    for field in ["address_pushes_per_minute_max", "refused", "top", "refused_of_top"] {
        assert!(line.contains(field), "{line}");
    }
    server.logged("trusted_proxies names a proxy: set public_url").await;
    let log = server.log();
    assert!(!log.contains(&ALICE.to_string()), "{log}");
    assert!(!log.contains("a peer that is not in trusted_proxies"), "{log}");
}

#[actix_web::test]
async fn the_log_names_the_setting_of_a_proxy_that_is_not_trusted_or_sends_no_address() {
    for (trusted, forwarded, line) in [
        ("10.0.0.1", "192.0.2.1", "a peer that is not in trusted_proxies sends X-Forwarded-For"),
        (
            "127.0.0.1",
            "unknown",
            "a trusted proxy sends no X-Forwarded-For with the address of a client",
        ),
    ] {
        let server = Server::start_with(&[&format!("--trusted-proxies={trusted}")]);
        let channel = Agent::new(&server).await.register().await;
        let sender = Sender::new();
        for _ in 0..3 {
            let push = sender.post(&channel.endpoint).ttl(60).body("x");
            push.header("x-forwarded-for", forwarded).send().await;
        }
        server.logged(line).await;
        assert_eq!(server.log().matches(line).count(), 1);
    }
}

#[actix_web::test]
async fn connects_from_one_address_are_limited_before_the_upgrade() {
    let server = Server::start_with(&[TRUSTED, "--address-connects-per-minute-max=3"]);
    let connect = async || match Socket::open_from(server.address(), ALICE).await {
        Ok(_) => None,
        Err(Error::Http(response)) => Some(response),
        Err(error) => panic!("{error}"),
    };
    let (_, refused) = until_refused(connect).await;
    assert_eq!(refused.status().as_u16(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let socket = Socket::open_from(server.address(), BOB).await.expect("another address connects");
    Agent::hello(socket, None).await.expect("the server answers the hello");
    for _ in 0..10 {
        Agent::new(&server).await;
    }
}

#[actix_web::test]
async fn open_connections_of_one_address_are_limited_until_one_closes() {
    let server = Server::start_with(&[TRUSTED, "--address-connections-max=2"]);
    let open = async |address| Socket::open_from(server.address(), address).await;
    let first = open(ALICE).await.expect("the first connects");
    let _second = open(ALICE).await.expect("the second connects");
    for _ in 0..3 {
        let Err(Error::Http(refused)) = open(ALICE).await else { panic!("a third connects") };
        assert_eq!(refused.status().as_u16(), 429);
        assert_eq!(refused.headers()["retry-after"], "60");
    }
    let _other = open(BOB).await.expect("another address connects");
    for _ in 0..10 {
        Agent::new(&server).await;
    }
    assert_eq!(refusals(&server).await, json!({"address_connections_max": 3}));
    drop(first);
    until(AT_ONCE, "a place is free", async || open(ALICE).await.is_ok()).await;
    let line = server.logged("address_connections_max").await;
    let log = server.log();
    assert!(line.contains("refused_of_top") && !log.contains(&ALICE.to_string()), "{log}");
}

#[actix_web::test]
async fn new_agents_from_one_address_are_limited_at_their_first_register() {
    let server = Server::start_with(&[TRUSTED, "--address-new-agents-per-minute-max=2"]);
    let register_from = async |address| {
        let socket = Socket::open_from(server.address(), address).await.expect("it connects");
        let mut agent = Agent::hello(socket, None).await.expect("the server answers the hello");
        register(&mut agent).await
    };
    let (_, answer) = until_refused(async || {
        Some(register_from(ALICE).await).filter(|answer| answer["status"] != 200)
    })
    .await;
    assert_eq!(answer["status"], 429);
    assert_eq!(answer["reason"], "too many new user agents of this address, try again later");
    assert_eq!(answer.get("pushEndpoint"), None);
    assert_eq!(register_from(BOB).await["status"], 200);
}

#[actix_web::test]
async fn registers_of_one_agent_are_refused_and_accepted_later() {
    let (server, mut agent) = Server::with_agent(&["--agent-registers-per-minute-max=60"]).await;
    let (_, answer) = until_refused(async || {
        Some(register(&mut agent).await).filter(|answer| answer["status"] != 200)
    })
    .await;
    assert_eq!(answer["status"], 429);
    assert_eq!(answer["reason"], "too many registers, try again later");
    Agent::new(&server).await.register().await;
    until(AT_ONCE, "a register is accepted", async || register(&mut agent).await["status"] == 200)
        .await;
}

#[actix_web::test]
async fn an_agent_that_connects_too_often_is_closed_with_the_reason() {
    let (server, uaid, _) = Server::with_offline(&["--agent-hellos-per-minute-max=3"]).await;
    let (_, closed) = until_refused(async || hello(&server, Some(&uaid)).await).await;
    assert_eq!(closed, Closed(Some(4429)));
    let (other, _) = Agent::offline(&server).await;
    Agent::reconnect(&server, &other).await;
}

#[actix_web::test]
async fn invalid_handshakes_use_up_no_place_of_user_agents() {
    const BAD: usize = 200;
    let server = Server::start_with(&["--connects-per-second-max=2"]);
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n";
    for _ in 0..BAD {
        let mut raw = Raw::open(&server).await;
        raw.write(upgrade).await;
        raw.answer().await.assert_error(400, 999);
    }
    // A connection without a hello takes no place either.
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(Socket::open(&server).await);
    }
    Agent::new(&server).await;
}

#[actix_web::test]
async fn known_agents_connect_while_new_ones_exceed_the_limit() {
    let server = Server::start_with(&["--connects-per-second-max=4"]);
    let mut known = Vec::new();
    for _ in 0..2 {
        until(AT_ONCE, "a new agent connects", async || {
            let Ok(mut agent) = Agent::try_new(&server).await else { return false };
            agent.register().await;
            known.push(agent.leave().await);
            true
        })
        .await;
    }
    let (_, closed) = until_refused(async || hello(&server, None).await).await;
    assert_eq!(closed, Closed(Some(1013)), "new agents are refused");
    for uaid in &known {
        Agent::reconnect(&server, uaid).await;
    }
}

#[actix_web::test]
async fn an_invalid_push_or_handshake_closes_its_connection_and_others_keep_it() {
    let (server, mut agent, channel) =
        Server::with_subscribed(&["--subscription-pushes-per-minute-max=3"]).await;
    let path = channel.path(&server);
    let gone = agent.register().await;
    agent.unregister(&gone).await;
    let post = |path: &str, more: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{more}\r\n")
    };
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 426),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                .to_owned(),
            400,
        ),
        (post(&path, ""), 400),
        (post(&path, "TTL: 60\r\nAuthorization: vapid nonsense\r\n"), 401),
        (post("/wpush/nowhere", "TTL: 60\r\n"), 404),
        (
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nTTL: 60\r\nContent-Length: 9999\r\n\r\n"),
            413,
        ),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(request).await;
        let answer = raw.answer().await;
        assert_eq!(answer.status, status, "{answer}");
        let connection = answer.header("connection").unwrap_or_default();
        assert!(connection.starts_with("close"), "{answer}");
        raw.rest(AT_ONCE).await;
    }
    let mut raw = Raw::open(&server).await;
    let mut statuses = Vec::new();
    for path in [&gone.path(&server), &path, &path, &path, &path, &path] {
        let head = "TTL: 0\r\nContent-Encoding: aes128gcm\r\nContent-Length: 1\r\n\r\nx";
        raw.write(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{head}")).await;
        statuses.push(raw.answer().await.status);
    }
    assert_eq!((statuses[0], statuses[1]), (410, 201));
    assert!(statuses.contains(&429), "{statuses:?}");
    let sender = Sender::new();
    let options = sender.request(Method::OPTIONS, &channel.endpoint).send().await;
    assert_eq!(options.status, 204);
}

#[actix_web::test]
async fn an_agent_above_its_frame_rate_is_read_more_slowly_and_stays_connected() {
    let (server, mut agent) = Server::with_agent(&["--agent-frames-per-second-max=20"]).await;
    let pong = b"\x8a\x80\0\0\0\0";
    agent.socket().stream().write_all(&pong.repeat(60)).await.unwrap();
    server.logged("it is read more slowly").await;
    let health = server.health().await.json();
    assert!(health["frames_delayed"].as_u64() > Some(0), "{health}");
    agent.register().await;
}
