//! The errors that no handler writes: of the parser, of the router, and of what stands before both. All have the common
//! body, and web pages can read them.

use hyper::Method;

use crate::harness::{AT_ONCE, Agent, Answer, Raw, Sender, Server};
use crate::openapi::{World, described, with_parameters};

/// Headers that a web page reads without being allowed to (Fetch §2.2.2), and those that are not about the answer.
const ALWAYS_READ: [&str; 10] = [
    "cache-control",
    "content-length",
    "content-type",
    "connection",
    "date",
    "transfer-encoding",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-max-age",
];

#[actix_web::test]
async fn each_error_that_no_handler_writes_has_the_common_body() {
    let (server, _, channel) = Server::with_offline(&[]).await;
    let push = format!("POST {} HTTP/1.1\r\nHost: a\r\nTTL: 60\r\n", channel.path(&server));
    let many = (0..120).map(|number| format!("X{number}: y\r\n")).collect::<String>();
    let socket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (request, status, errno) in [
        // The parser.
        ("GARBAGE\r\n\r\n".to_owned(), 400, 999),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, 999),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n".to_owned(), 400, 999),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400, 999),
        ("GET /nothing HTTP/1.1\r\n\r\n".to_owned(), 400, 999),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000)), 431, 999),
        (format!("{push}Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), 400, 999),
        (format!("{push}Transfer-Encoding: gzip\r\n\r\n"), 400, 999),
        (
            format!("{push}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
            400,
            999,
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431, 999),
        // Its body.
        (format!("{push}Transfer-Encoding: chunked\r\n\r\nzzz\r\n"), 400, 999),
        (format!("{push}Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n"), 400, 999),
        // The upgrade.
        (format!("{push}{socket}\r\n"), 400, 999),
        (format!("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n{socket}\r\n"), 400, 999),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, 999),
        // The router.
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404, 117),
        ("OPTIONS /nothing HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404, 117),
        ("GET nothing HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404, 117),
        ("GET http://a/nothing HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404, 117),
        ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404, 117),
        ("GET /nothing HTTP/1.0\r\n\r\n".to_owned(), 404, 117),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405, 999),
        ("get /health HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405, 999),
        ("BREW /health HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405, 999),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(&request).await;
        let answer = raw.answer().await;
        let line = request.lines().next().unwrap_or_default();
        assert_eq!(answer.status, status, "{line:.100}: {answer}");
        answer.assert_error(status, errno);
        assert_eq!(answer.header("allow").is_some(), status == 405, "{answer}");
    }
}

#[actix_web::test]
async fn an_error_for_head_has_its_headers_and_no_body() {
    let server = Server::start();
    for (path, status) in [("/nothing", 404), ("/m/x", 405), ("/receipts/x", 404), ("/", 426)] {
        let mut raw = Raw::open(&server).await;
        raw.write(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        raw.finish_writing().await;
        let answer = String::from_utf8(raw.rest(AT_ONCE).await).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head ends");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(head.contains("\r\ncontent-type: application/json"), "{answer}");
        assert!(!head.contains("\r\ncontent-length: 0\r\n"), "{answer}");
        assert_eq!(body, "", "{answer}");
    }
}

/// The status and the headers of an answer without those that differ with each request, and those of a body without a
/// length.
fn head_of(answer: &str) -> Vec<String> {
    let (head, _) = answer.split_once("\r\n\r\n").expect("a head ends");
    let differ = ["date: ", "x-request-id: ", "connection: ", "transfer-encoding: "];
    let lines = head.lines().filter(|line| !differ.iter().any(|start| line.starts_with(start)));
    let mut lines: Vec<_> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

#[actix_web::test]
async fn head_has_the_headers_of_get_and_no_body_on_each_url_that_can_be_read() {
    let world = World::start().await;
    let (server, sender) = (&world.server, Sender::new());
    let (_, channel) = Agent::offline(server).await;
    let asked = sender.post(&channel.endpoint).ttl(60).header("prefer", "respond-async");
    let asked = asked.send().await;
    let receipts = asked.header("link").and_then(|link| link.split(['<', '>']).nth(1));
    let receipts = receipts.expect("a 202 has a Link").replace(&server.origin(), "");
    let token = format!("authorization: Bearer {}\r\n", world.feed_token);
    for key in ["a", "b"] {
        // Both together are a large page, which is sent in parts.
        let written = format!("{}/v1/feeds/prices/{key}", server.origin());
        let put = sender.request(Method::PUT, &written).raw_body("x".repeat(60_000));
        let put = put.header("authorization", &format!("Bearer {}", world.feed_token));
        assert_eq!(put.send().await.status, 201);
    }
    let mut asks: Vec<(String, String)> = Vec::new();
    for (path, methods) in described() {
        assert_eq!(methods.contains("HEAD"), methods.contains("GET"), "{path}");
        if methods.contains("GET") {
            let value = |name: &str| if name == "file" { "page.css" } else { "x" }.to_owned();
            asks.push((with_parameters(&path, value), String::new()));
        }
    }
    for (path, headers) in [
        ("/", "accept: text/html\r\n"),
        (&receipts, ""),
        (&receipts, "accept: text/event-stream\r\n"),
        ("/v1/feeds/prices", &token),
        ("/v1/feeds/prices?wait=60&after=2", &token),
        ("/v1/feeds/prices", &format!("accept: text/event-stream\r\n{token}")),
    ] {
        asks.push((path.to_owned(), headers.to_owned()));
    }
    for (path, headers) in asks {
        let ask = |method: &str| format!("{method} {path} HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
        let mut raw = Raw::open(server).await;
        raw.write(ask("HEAD")).await;
        raw.finish_writing().await;
        let head = String::from_utf8(raw.rest(AT_ONCE).await).unwrap();
        assert!(head.ends_with("\r\n\r\n"), "HEAD {path}: {head}");
        if path.contains("wait=") {
            assert!(head.starts_with("HTTP/1.1 200 "), "HEAD waits for nothing: {head}");
            continue;
        }
        let mut raw = Raw::open(server).await;
        raw.write(ask("GET")).await;
        let get = raw.until(AT_ONCE, "\r\n\r\n").await;
        assert_eq!(head_of(&head), head_of(&get), "{path}");
    }
}

#[actix_web::test]
async fn an_error_leads_to_its_section_on_a_page_of_this_server() {
    let server = Server::start();
    let (sender, origin) = (Sender::new(), server.origin());
    let page = sender.get(&format!("{origin}/errors")).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{page}");
    assert!(page.header("content-security-policy").is_some(), "{page}");
    let page = String::from_utf8(page.body).unwrap();
    for (path, errno) in [("/wpush/x", 102), ("/mytopic", 117), ("/push/x", 117)] {
        let answer = sender.post(&format!("{origin}{path}")).ttl(60).send().await;
        let message = answer.assert_error(404, errno);
        assert_eq!(message.contains("begins with /wpush/"), errno == 117, "{message}");
        let more = answer.json()["more_info"].as_str().unwrap().to_owned();
        let anchor = more.strip_prefix("/errors#").expect("it is a path of this server");
        assert!(page.contains(&format!("<section id=\"{anchor}\"")), "{more}");
    }
}

/// Checks that a web page of any origin can read the answer and each of its headers.
fn is_exposed(answer: &Answer) {
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{answer}");
    let exposed = answer.header("access-control-expose-headers").expect("headers are exposed");
    let exposed: Vec<_> = exposed.split(", ").collect();
    for (name, _) in &answer.headers {
        let is_listed = exposed.contains(&name.as_str()) || name == "access-control-expose-headers";
        assert!(is_listed || ALWAYS_READ.contains(&name.as_str()), "{name}: {answer}");
    }
}

#[actix_web::test]
async fn a_web_page_reads_each_answer_to_a_sender_and_all_its_headers() {
    let (server, mut agent) = Server::with_agent(&["--subscription-pushes-per-minute-max=3"]).await;
    let (channel, gone) = (agent.register().await, agent.register().await);
    agent.unregister(&gone).await;
    agent.leave().await;
    let sender = Sender::new();
    let post = |endpoint: &str| sender.post(endpoint).ttl(60);
    let stored = post(&channel.endpoint).send().await;
    let asked = post(&channel.endpoint).header("prefer", "respond-async").send().await;
    let receipts = asked.header("link").expect("a 202 has a Link");
    let receipts = receipts.trim_start_matches('<').split('>').next().unwrap_or_default();
    let at_origin = |path: &str| format!("{}{path}", server.origin());
    let large = "x".repeat(10_000);
    let mut limited = post(&channel.endpoint).send().await;
    while limited.status == 201 {
        limited = post(&channel.endpoint).send().await;
    }
    let wrong_method = sender.request(Method::DELETE, &channel.endpoint).send().await;
    for (answer, status) in [
        (sender.request(Method::OPTIONS, &channel.endpoint).send().await, 204),
        (sender.request(Method::OPTIONS, &stored.location()).send().await, 204),
        (sender.request(Method::OPTIONS, receipts).send().await, 204),
        (sender.get(receipts).await, 200),
        (sender.get(&at_origin("/receipts/x")).await, 404),
        (sender.delete(&stored.location()).await, 204),
        (sender.delete(&stored.location()).await, 404),
        (stored, 201),
        (asked, 202),
        (sender.post(&channel.endpoint).send().await, 400),
        (post(&channel.endpoint).header("authorization", "vapid x").send().await, 401),
        (post(&at_origin("/wpush/x")).send().await, 404),
        (post(&at_origin("/wpush/a/b/c")).send().await, 404),
        (sender.get(&at_origin("/m/x/y")).await, 404),
        (wrong_method, 405),
        (post(&gone.endpoint).send().await, 410),
        (post(&channel.endpoint).body(large).send().await, 413),
        (limited, 429),
    ] {
        assert_eq!(answer.status, status, "{answer}");
        is_exposed(&answer);
        if status >= 400 {
            assert_eq!(answer.header("content-type"), Some("application/json"), "{answer}");
        }
    }
}
