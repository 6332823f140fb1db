//! Invalid requests: the status, errno and body of the answer are right, and nothing is written.

use hyper::Method;
use kalends::feeds::http::tokens::Scopes;
use state_machine::Time;

use super::client::token;
use super::{FeedClient, Replica};
use crate::harness::{AT_ONCE, Bystander, Raw, Server, oversized_bodies, unix_now_s};

const NO_BODY: &str = "";

#[actix_web::test]
async fn invalid_input_is_rejected_with_the_right_errno() {
    let server = Server::start_with(&["--feed-value-bytes-max=10", "--feed-keys-max=1"]);
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    client.page("wait=10").await;
    let (get, put, post, delete) = (Method::GET, Method::PUT, Method::POST, Method::DELETE);
    let long = format!("/{}", "k".repeat(257));
    for (method, path, body, status, errno) in [
        // Invalid cursors, and cursors from the future.
        (&get, "?after=x", NO_BODY, 400, 307),
        (&get, "?after=-1", NO_BODY, 400, 307),
        (&get, "?after=1.0&wait=60", NO_BODY, 400, 307),
        (&get, "?after=2", NO_BODY, 400, 308),
        (&get, "?after=2&wait=60", NO_BODY, 400, 308),
        (&get, "?after=18446744073709551615", NO_BODY, 400, 308),
        (&get, "?after=99999999999999999999999", NO_BODY, 400, 308),
        (&get, "?limit=0", NO_BODY, 400, 309),
        (&get, "?limit=-1", NO_BODY, 400, 309),
        (&get, "?wait=soon", NO_BODY, 400, 310),
        (&get, "?wait=1&wait=1", NO_BODY, 400, 306),
        (&get, "?since=1", NO_BODY, 400, 306),
        // Invalid keys and values.
        (&put, "/", "1", 400, 311),
        (&put, &long, "1", 400, 311),
        (&put, "/%ff", "1", 400, 311),
        (&put, "/a%0D%0Ab", "1", 400, 311),
        (&put, "/a?b", "1", 400, 306),
        (&put, "/a", "12345678901", 413, 104),
        (&put, "/b", "1", 507, 315),
        // Paths that do not exist.
        (&delete, "/b", NO_BODY, 404, 314),
        (&post, "/b/republish", NO_BODY, 404, 314),
        // Methods that are not allowed.
        (&post, "", "1", 405, 999),
        (&delete, "", NO_BODY, 405, 999),
        (&get, "/a", NO_BODY, 405, 999),
        (&post, "/a", "1", 405, 999),
        (&Method::PATCH, "/a", "1", 405, 999),
    ] {
        let answer = client.request(method.clone(), path, body).await;
        let message = answer.assert_error(status, errno);
        assert!(message.len() > 10, "{method} {path}: {message}");
        assert_eq!(answer.header("allow").is_some(), status == 405, "{method} {path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{method} {path}");
    }
    let copy = Replica::of(&client).await;
    assert_eq!((copy.cursor, copy.value("a")), (1, Some("1")), "nothing was written");
    let other = FeedClient::at(&server, "olds");
    other.get("?wait=60").await.assert_error(404, 313);
    other.request(delete, "/a", NO_BODY).await.assert_error(404, 314);
    other.request(post, "/a/republish", NO_BODY).await.assert_error(404, 314);
}

#[actix_web::test]
async fn only_a_valid_token_with_feed_and_scope_is_accepted() {
    let (server, elsewhere) = (Server::start(), Server::start());
    FeedClient::at(&server, "news").put("a", "1").await;
    let past = Some(Time((unix_now_s() - 1) * 1000));
    let mut changed = token(&server, "news", Scopes::Read, None).replacen(".r.", ".rw.", 1);
    for (what, token, read, write) in [
        ("nothing", String::new(), (401, 301), (401, 301)),
        ("garbage", "x".repeat(5000), (401, 302), (401, 302)),
        ("raised by hand", std::mem::take(&mut changed), (401, 302), (401, 302)),
        ("another server's", token(&elsewhere, "news", Scopes::Both, None), (401, 302), (401, 302)),
        ("expired", token(&server, "news", Scopes::Both, past), (401, 303), (401, 303)),
        ("another feed's", token(&server, "olds", Scopes::Both, None), (403, 304), (403, 304)),
        ("one to read", token(&server, "news", Scopes::Read, None), (200, 0), (403, 305)),
        ("one to write", token(&server, "news", Scopes::Write, None), (403, 305), (200, 0)),
    ] {
        let client = FeedClient::with(&server, "news", token);
        let answers = [
            (client.get("").await, read),
            (client.request(Method::PUT, "/a", "2").await, write),
            (client.request(Method::POST, "/a/republish", NO_BODY).await, write),
        ];
        for (answer, (status, errno)) in answers {
            assert_eq!(answer.status, status, "{what}: {answer}");
            let scheme = answer.header("www-authenticate").unwrap_or_default();
            assert_eq!(scheme.starts_with("Bearer "), status > 400, "{what}: {answer}");
            if status > 400 {
                answer.assert_error(status, errno);
            }
        }
    }
}

#[actix_web::test]
async fn answers_without_a_token_do_not_reveal_which_feeds_exist() {
    let server = Server::start();
    FeedClient::at(&server, "news").put("a", "1").await;
    let mut bodies = Vec::new();
    for request in [
        "GET /v1/feeds/news",
        "GET /v1/feeds/nowhere",
        "GET /v1/feeds/news?after=garbage",
        "DELETE /v1/feeds/news/a",
        "BREW /v1/feeds/%ff",
        "OPTIONS /v1/feeds/news",
        "GET /v1/feeds",
        // The server must answer before the body.
        "PUT /v1/feeds/news/a",
    ] {
        let mut raw = Raw::open(&server).await;
        let length = if request.starts_with("PUT") { "Content-Length: 9\r\n" } else { "" };
        raw.write(format!("{request} HTTP/1.1\r\nHost: a\r\n{length}\r\n")).await;
        let answer = raw.answer().await;
        answer.assert_error(401, 301);
        bodies.push(answer.body);
    }
    assert!(bodies.windows(2).all(|two| two[0] == two[1]));
}

#[actix_web::test]
async fn a_value_over_the_limit_is_rejected_before_its_body() {
    let server = Server::start_with(&["--feed-value-bytes-max=4096"]);
    let mut bystander = Bystander::connect(&server).await;
    let client = FeedClient::at(&server, "news");
    let head = format!(
        "PUT /v1/feeds/news/a HTTP/1.1\r\nHost: a\r\nAuthorization: {}\r\n",
        client.authorization()
    );
    for (what, rest) in oversized_bodies() {
        let mut raw = Raw::open(&server).await;
        raw.write(format!("{head}{rest}")).await;
        raw.answer().await.assert_refused(what, (413, 104), "4096");
        bystander.is_unaffected().await;
    }
    client.get("").await.assert_error(404, 313);
    assert_eq!(client.put("a", &"x".repeat(4096)).await, 1);
    let broadcasts = FeedClient::at(&server, "broadcasts");
    let large = broadcasts.request(Method::PUT, "/a/b", &"x".repeat(1025)).await;
    large.assert_error(413, 104);
    assert_eq!(broadcasts.put("a/b", &"x".repeat(1024)).await, 1);
}

#[actix_web::test]
async fn an_invalid_or_incomplete_value_is_not_written() {
    let server = Server::start_with(&["--request-body-timeout-ms=300"]);
    let client = FeedClient::at(&server, "news");
    let head = format!(
        "PUT /v1/feeds/news/a HTTP/1.1\r\nHost: a\r\nAuthorization: {}\r\nContent-Length: 4\r\n\r\n",
        client.authorization()
    );
    let mut raw = Raw::open(&server).await;
    raw.write([head.as_bytes(), b"\xff\xfe\0\xc3"].concat()).await;
    raw.answer().await.assert_error(400, 312);
    raw = Raw::open(&server).await;
    raw.write(format!("{head}hal")).await;
    raw.answer().await.assert_error(408, 999);
    client.get("").await.assert_error(404, 313);
}

#[actix_web::test]
async fn an_event_stream_that_asks_for_an_upgrade_is_refused() {
    let server = Server::start();
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    let mut raw = Raw::open(&server).await;
    raw.write(format!(
        "GET /v1/feeds/news HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Accept: text/event-stream\r\nAuthorization: {}\r\n\r\n",
        client.authorization()
    ))
    .await;
    assert_eq!(raw.answer().await.status, 400);
    assert_eq!(raw.rest(AT_ONCE).await, b"");
}
