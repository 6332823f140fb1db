//! Invalid requests of application servers: the status, errno and body of the answer are right, and
//! other connections are unaffected.

use hyper::Method;
use serde_json::json;

use crate::harness::{AT_ONCE, Agent, Bystander, Raw, Sender, Server, Signer, oversized_bodies};

const SALT: (&str, &str) = ("encryption", "salt=c2FsdHNhbHRzYWx0c2FsdA");
const DH: (&str, &str) = ("crypto-key", "dh=BGVuY3J5cHRlZA");

#[actix_web::test]
async fn a_push_with_invalid_headers_is_rejected_with_the_right_errno() {
    let (_server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let sender = Sender::new();
    let ttl = ("ttl", "60");
    let (long, many) = ("t".repeat(33), "x".repeat(3000));
    let encoding = |name| ("content-encoding", name);
    for (headers, body, errno) in [
        ([].as_slice(), "", 111),
        (&[("ttl", "")], "", 112),
        (&[("ttl", "soon")], "", 112),
        (&[("ttl", "1.5")], "", 112),
        (&[("ttl", "+5")], "", 112),
        (&[("ttl", "0x10")], "", 112),
        (&[ttl, ttl], "", 112),
        (&[("ttl", "-1")], "", 114),
        (&[ttl, ("topic", &long)], "", 113),
        (&[ttl, ("topic", "a b")], "", 113),
        (&[ttl, ("topic", "a/b")], "", 113),
        (&[ttl, ("topic", "a"), ("topic", "b")], "", 113),
        (&[ttl, ("urgency", "soon")], "", 115),
        (&[ttl], "body", 110),
        (&[ttl, encoding("gzip")], "body", 110),
        (&[ttl, encoding("aes128gcm"), encoding("aes128gcm")], "body", 110),
        (&[ttl, encoding("aes128gcm"), SALT], "body", 110),
        (&[ttl, encoding("aes128gcm"), DH], "body", 110),
        (&[ttl, encoding("aesgcm")], "body", 110),
        (&[ttl, encoding("aesgcm"), SALT], "body", 101),
        (&[ttl, encoding("aesgcm"), DH], "body", 110),
        (&[ttl, encoding("aesgcm"), DH, ("encryption", "salt=!")], "body", 110),
        (&[ttl, encoding("aesgcm"), DH, ("encryption", &many)], "body", 110),
    ] {
        let mut post = sender.post(&channel.endpoint).raw_body(body);
        for (name, value) in headers {
            post = post.header(name, value);
        }
        let answer = post.send().await;
        let message = answer.assert_error(400, errno);
        assert!(message.len() > 10, "{headers:?}: {message}");
    }
    sender.push_to(&mut agent, &channel, "the first to arrive").await;
}

#[actix_web::test]
async fn unusual_valid_requests_are_accepted() {
    let (server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let sender = Sender::new();
    let most = "2592000";
    let (largest, largest_aesgcm) = ("x".repeat(4096), "x".repeat(5630));
    for (ttl, headers, body, kept) in [
        ("0", [].as_slice(), "", "0"),
        (" 60 ", &[], "", "60"),
        ("007", &[], "", "7"),
        ("2592001", &[], "", most),
        ("99999999999999999999999999", &[], "", most),
        ("60", &[("topic", "dGVzdA==")], "", "60"),
        ("60", &[("urgency", "HIGH")], "", "60"),
        ("60", &[("content-encoding", "whatever")], "", "60"),
        ("60", &[("content-encoding", "AES128GCM")], "x", "60"),
        ("60", &[("content-encoding", "aes128gcm")], largest.as_str(), "60"),
        ("60", &[("content-encoding", "aesgcm"), SALT, DH], "x", "60"),
        ("60", &[("content-encoding", "aesgcm"), SALT, DH], largest_aesgcm.as_str(), "60"),
        ("60", &[("content-encoding", "AESGCM"), SALT, DH], largest_aesgcm.as_str(), "60"),
        ("60", &[("prefer", "nonsense"), ("x-unknown", "é")], "", "60"),
    ] {
        let mut post = sender.post(&channel.endpoint).raw_body(body).header("ttl", ttl);
        for (name, value) in headers {
            post = post.header(name, value);
        }
        let (answer, got) = tokio::join!(post.send(), agent.take(1));
        assert_eq!(answer.status, 201, "{answer}");
        assert_eq!(answer.header("ttl"), Some(kept));
        assert!(answer.location().starts_with(&format!("{}/m/", server.origin())));
        assert_eq!(got[0].body.as_deref().unwrap_or(""), body);
    }
}

#[actix_web::test]
async fn a_body_over_the_limit_is_rejected_in_every_transfer_form() {
    let server = Server::start();
    let mut bystander = Bystander::connect(&server).await;
    let (mut agent, channel) = Agent::subscribed(&server).await;
    let path = channel.path(&server);
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nTTL: 60\r\nContent-Encoding: aes128gcm\r\n");
    for (what, rest) in oversized_bodies() {
        let mut raw = Raw::open(&server).await;
        raw.write(format!("{head}{rest}")).await;
        raw.answer().await.assert_refused(what, (413, 104), "4096");
        bystander.is_unaffected().await;
    }
    let sender = Sender::new();
    let old = sender.post(&channel.endpoint).ttl(60).header("content-encoding", "aesgcm");
    let old = old.header(SALT.0, SALT.1).header(DH.0, DH.1).raw_body("x".repeat(5631));
    old.send().await.assert_refused("the old encoding", (413, 104), "5630");
    sender.push_to(&mut agent, &channel, "the first to arrive").await;
}

#[actix_web::test]
async fn unknown_paths_and_methods_get_the_common_error_body() {
    let (server, _agent, channel) = Server::with_subscribed(&[]).await;
    let (sender, origin) = (Sender::new(), server.origin());
    let long = format!("/wpush/{}", "A".repeat(7_000));
    for (errno, path) in [
        (117, "/nowhere"),
        (117, "/wpush"),
        (117, "/wpush/"),
        (102, "/wpush/abc"),
        (117, "/wpush/v1/"),
        (102, "/wpush/v1/abc"),
        (102, "/wpush/v2/abc"),
        (117, "/wpush/v3/abc"),
        (102, "/wpush/r/abc"),
        (102, &format!("/wpush/r/{}", "A".repeat(86))),
        (117, "/wpush/a/b/c/d"),
        (102, "/wpush/%ff"),
        (102, "/wpush/%00"),
        (102, "/wpush/..%2f..%2fkeys.toml"),
        (117, "/m"),
        (117, "/m/"),
        (117, "/m/a/b"),
        (117, "/keys.toml"),
        (102, &long),
    ] {
        let answer = sender.post(&format!("{origin}{path}")).ttl(60).send().await;
        answer.assert_error(404, errno);
    }
    for location in ["/m/garbage", "/m/%ff", &format!("/m/{}", "A".repeat(128))] {
        sender.delete(&format!("{origin}{location}")).await.assert_error(404, 102);
    }
    for (method, url) in [
        (Method::PUT, channel.endpoint.clone()),
        (Method::DELETE, channel.endpoint.clone()),
        (Method::GET, format!("{origin}/m/garbage")),
        (Method::POST, format!("{origin}/")),
        (Method::DELETE, format!("{origin}/")),
        (Method::POST, format!("{origin}/health")),
        (Method::DELETE, format!("{origin}/__heartbeat__")),
        (Method::PUT, format!("{origin}/__lbheartbeat__")),
        (Method::POST, format!("{origin}/__version__")),
        (Method::POST, format!("{origin}/status")),
    ] {
        let answer = sender.request(method, &url).send().await;
        answer.assert_error(405, 999);
        assert!(answer.header("allow").is_some(), "{answer}");
    }
}

#[actix_web::test]
async fn an_invalid_handshake_gets_the_common_error_body() {
    let server = Server::start();
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let valid =
        format!("Connection: upgrade\r\nSec-WebSocket-Version: 13\r\n{key}\r\nUpgrade: websocket");
    for (what, headers, status) in [
        ("no upgrade at all", "Accept: application/json".to_owned(), 426),
        ("another protocol", "Upgrade: h2c\r\nConnection: upgrade".to_owned(), 400),
        ("no Connection", "Upgrade: websocket".to_owned(), 400),
        ("no version", format!("Upgrade: websocket\r\nConnection: upgrade\r\n{key}"), 400),
        (
            "an old version",
            format!(
                "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 5\r\n{key}"
            ),
            426,
        ),
        (
            "no key",
            "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13".to_owned(),
            400,
        ),
        ("two protocols", format!("{valid}, x"), 400),
        ("a body", format!("{valid}\r\nContent-Length: 5"), 400),
        ("a body without an end", format!("{valid}\r\nTransfer-Encoding: chunked"), 400),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n")).await;
        let answer = raw.answer().await;
        assert_eq!(answer.status, status, "{what}: {answer}");
        answer.assert_error(status, 999);
        assert_eq!(answer.header("upgrade").is_some(), status == 426, "{what}: {answer}");
        assert_eq!(raw.rest(AT_ONCE).await, b"", "{what}");
    }
}

#[actix_web::test]
async fn invalid_http_closes_only_its_own_connection() {
    let server = Server::start();
    let mut bystander = Bystander::connect(&server).await;
    let endless = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(300_000));
    let lines = format!("GET / HTTP/1.1\r\nHost: a\r\n{}", "X: y\r\n".repeat(30_000));
    for bytes in [
        "hello\r\n\r\n",
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST /wpush/x HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        "POST /wpush/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /wpush/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        &endless,
        &lines,
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(bytes).await;
        raw.finish_writing().await;
        let answer = String::from_utf8(raw.rest(AT_ONCE).await).unwrap();
        let status = answer.split(' ').nth(1).unwrap_or("none");
        assert!(["none", "400", "404", "431"].contains(&status), "{answer}");
        bystander.is_unaffected().await;
    }
}

#[actix_web::test]
async fn pipelined_requests_and_expect_continue_are_answered_in_order() {
    const REQUESTS: usize = 40;
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let path = channel.path(&server);
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nTTL: 60\r\nContent-Encoding: aes128gcm\r\n");
    let mut raw = Raw::open(&server).await;
    let requests: String =
        (10..10 + REQUESTS).map(|n| format!("{head}Content-Length: 2\r\n\r\n{n}")).collect();
    raw.write(requests).await;
    for _ in 0..REQUESTS {
        assert_eq!(raw.answer().await.status, 201);
    }
    raw.write(format!("{head}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")).await;
    assert_eq!(raw.answer().await.status, 100);
    raw.write("last").await;
    assert_eq!(raw.answer().await.status, 201);

    let got = Agent::reconnect(&server, &uaid).await.take(REQUESTS + 1).await;
    let numbers = (10..10 + REQUESTS).map(|number| number.to_string());
    assert!(got.iter().map(|got| got.body().to_owned()).eq(numbers.chain(["last".to_owned()])));
}

#[actix_web::test]
async fn a_tampered_endpoint_token_is_rejected() {
    let (_server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let sender = Sender::new();
    let (start, token) = channel.endpoint.rsplit_once('/').unwrap();
    for at in [0, 1, token.len() / 2, token.len() - 2, token.len() - 1] {
        let mut changed = token.to_owned();
        changed.replace_range(at..=at, if token[at..].starts_with('A') { "B" } else { "A" });
        sender.post(&format!("{start}/{changed}")).ttl(60).send().await.assert_error(404, 102);
    }
    let (short, long) = (&token[1..], format!("{token}A"));
    let padded = format!("{token}=");
    let versions = ["v1", "v2"].map(|version| format!("{version}/{token}"));
    let wrong = [short, &token[..token.len() - 1], &long, &padded, &token.repeat(2)];
    for wrong in wrong.into_iter().chain(versions.iter().map(String::as_str)) {
        sender.post(&format!("{start}/{wrong}")).ttl(60).send().await.assert_error(404, 102);
    }
    // On another server the same token is restricted to a key, and this one is not.
    sender.post(&format!("{start}/r/{token}")).ttl(60).send().await.assert_error(401, 109);
    sender.push_to(&mut agent, &channel, "the first to arrive").await;
}

#[actix_web::test]
async fn an_endpoint_token_of_another_server_is_rejected() {
    let (server, other) = (Server::start(), Server::start());
    let (_agent, channel) = Agent::subscribed(&other).await;
    let elsewhere = channel.endpoint.replace(&other.origin(), &server.origin());
    let sender = Sender::new();
    sender.post(&elsewhere).ttl(60).send().await.assert_error(404, 102);
    let signer = Signer::new();
    let signed = sender.post(&elsewhere).ttl(60).signed(&signer, &server.origin());
    signed.send().await.assert_error(404, 102);
}

#[actix_web::test]
async fn a_push_to_an_agent_without_a_record_is_answered_410() {
    let (_server, mut agent, channel) = Server::with_subscribed(&[]).await;
    agent.unregister(&channel).await;
    let sender = Sender::new();
    for _ in 0..2 {
        let gone = sender.post(&channel.endpoint).ttl(60).send().await;
        gone.assert_error(410, 106);
        assert_eq!(gone.header("cache-control"), Some("max-age=86400"));
    }
}

#[actix_web::test]
async fn cors_allows_pushes_from_web_pages() {
    let (_server, _agent, channel) = Server::with_subscribed(&[]).await;
    let sender = Sender::new();
    let preflight = sender.request(Method::OPTIONS, &channel.endpoint);
    let preflight = preflight.header("origin", "https://a.example").send().await;
    assert_eq!(preflight.status, 204, "{preflight}");
    let allowed = preflight.header("access-control-allow-headers").unwrap();
    for header in ["ttl", "topic", "urgency", "authorization", "content-encoding"] {
        assert!(allowed.contains(header), "{allowed}");
    }
    let refused = sender.post(&channel.endpoint).send().await;
    refused.assert_error(400, 111);
    for answer in [preflight, refused] {
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{answer}");
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(exposed.contains("location") && exposed.contains("retry-after"), "{answer}");
    }
}

#[actix_web::test]
async fn a_web_page_of_another_site_opens_no_websocket() {
    let server = Server::start_with(&["--origins-allowed", "https://listed.example"]);
    let (own, firefox) = (server.origin(), server.socket_url());
    for (origin, is_refused) in [
        ("https://evil.example", true),
        ("null", true),
        ("https://listed.example", false),
        (&own, false),
        (&firefox, false),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(format!(
            "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: {origin}\r\n\r\n"
        ))
        .await;
        let answer = raw.answer().await;
        match is_refused {
            true => drop(answer.assert_error(403, 999)),
            false => assert_eq!(answer.status, 101, "{origin}"),
        }
    }
    server.logged("https://evil.example").await;
}

#[actix_web::test]
async fn requests_that_cannot_be_read_get_a_json_error_too() {
    let server = Server::start_with(&["--request-headers-timeout-ms=1500"]);
    let large = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(200_000));
    for (request, status, message) in [
        ("GARBAGE\r\n\r\n", 400, "the request is not valid HTTP/1.1"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400, "not valid HTTP/1.1"),
        ("GET / HTTP/1.1\r\nHost: x\r\n", 408, "did not arrive in time"),
        (&large, 431, "the headers of the request are too large"),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(request).await;
        raw.answer().await.assert_refused(message, (status, 999), message);
    }
}

#[actix_web::test]
async fn head_and_options_are_answered_and_every_answer_has_a_request_id() {
    let server = Server::start();
    let sender = Sender::new();
    let ask = async |method: Method, path: &str| {
        let url = format!("{}{path}", server.origin());
        sender.request(method, &url).header("x-request-id", "of.a_proxy-7").send().await
    };
    for path in ["/health", "/__version__", "/__lbheartbeat__", "/web/page.css"] {
        let head = ask(Method::HEAD, path).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}: {head}");
        let options = ask(Method::OPTIONS, path).await;
        assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
    }
    for path in ["/", "/nothing", "/wpush/x", "/v1/feeds/a"] {
        let kept = ask(Method::POST, path).await;
        assert_eq!(kept.header("x-request-id"), Some("of.a_proxy-7"), "{path}: {kept}");
    }
    let made = async || {
        let answer = sender.get(&server.origin()).await;
        answer.header("x-request-id").expect("it has one").to_owned()
    };
    assert_ne!(made().await, made().await);
}

#[actix_web::test]
async fn a_header_with_a_name_of_64_kib_is_answered_431_behind_any_request() {
    let server = Server::start();
    let long =
        format!("GET /__version__ HTTP/1.1\r\nHost: a\r\n{}: b\r\n\r\n", "x".repeat(1 << 16));
    let get = "GET /__version__ HTTP/1.1\r\nHost: a\r\n\r\n";
    // A route that reads its body: else the connection ends with the answer.
    let post = "POST /_matrix/push/v1/notify HTTP/1.1\r\nHost: a\r\n";
    let devices = json!([{"app_id": "a", "pushkey": "x"}]);
    let body = json!({"notification": {"event_id": "$e", "devices": devices}}).to_string();
    let length = body.len();
    for (before, answers) in [
        (String::new(), 0),
        (get.to_owned(), 1),
        (get.repeat(3), 3),
        (format!("{post}Content-Length: {length}\r\n\r\n{body}"), 1),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"), 1),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(format!("{before}{long}")).await;
        for _ in 0..answers {
            assert_eq!(raw.answer().await.status, 200, "{before}");
        }
        let message = "the headers of the request are too large";
        raw.answer().await.assert_refused(message, (431, 999), message);
        raw.rest(AT_ONCE).await;
    }
    // A name of a sixteenth of it is a header like any other.
    let mut raw = Raw::open(&server).await;
    raw.write(long.replacen(&"x".repeat(15 << 12), "", 1)).await;
    assert_eq!(raw.answer().await.status, 200);
}

#[actix_web::test]
async fn a_handshake_needs_a_key_of_16_bytes() {
    let server = Server::start();
    let wrong = "Sec-WebSocket-Key is not 16 bytes in base64";
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    let header = |key: &str| format!("Sec-WebSocket-Key: {key}\r\n");
    for (keys, refused) in [
        (header(key), None),
        (header("dGhlIHNhbXBsZSBub25jZR=="), None),
        (header("dGhlIHNhbXBsZSBub25jZQ"), Some(wrong)),
        (header("dGhlIHNhbXBsZSBub25j"), Some(wrong)),
        (header("dGhlIHNhbXBsZSBub25jZWFiYw=="), Some(wrong)),
        (header("AAAAAAAAAAAAAAAAAAAA_-=="), Some(wrong)),
        (header("x"), Some(wrong)),
        (header(""), Some(wrong)),
        (header("\u{e4}"), Some(wrong)),
        (header(key).repeat(2), Some(wrong)),
        (String::new(), Some("this is not a valid WebSocket handshake")),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\n{keys}\r\n"
        ))
        .await;
        let answer = raw.answer().await;
        match refused {
            None => assert_eq!(answer.status, 101, "{keys:?}"),
            Some(message) => answer.assert_refused(&keys, (400, 999), message),
        }
    }
}
