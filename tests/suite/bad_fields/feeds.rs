//! Feeds over HTTP: the token, the parameters of a read, keys and values. Receipts have the same parameters.

use kalends::feeds::http::tokens::Scopes;

use super::ask;
use crate::feeds::{FeedClient, token};
use crate::harness::{Agent, Sender, Server};

/// The path below the feed and its parameters, the further lines of the head, and what the message names.
type Fault = (&'static str, String, String, u16, &'static str);

fn parameter_faults() -> Vec<Fault> {
    let long = "1".repeat(3000);
    let query =
        |what, query: &str, errno, names| (what, format!("?{query}"), String::new(), errno, names);
    let last = |what, value: &str, names| {
        let lines = format!("Accept: text/event-stream\r\nLast-Event-ID: {value}\r\n");
        (what, String::new(), lines, 307, names)
    };
    vec![
        query("another alphabet", "after=x", 307, "after"),
        query("negative", "after=-1", 307, "after"),
        query("a control character", "after=1%00", 307, "after"),
        query("not UTF-8", "after=%FF", 307, "after"),
        query("twice", "after=0&after=0", 306, "after"),
        query("too long", &format!("after={long}"), 308, "cursor"),
        query("empty", "limit=", 309, "limit"),
        query("zero", "limit=0", 309, "limit"),
        query("another alphabet", "limit=many", 309, "limit"),
        query("a control character", "limit=1%00", 309, "limit"),
        query("twice", "limit=1&limit=1", 306, "limit"),
        query("empty", "wait=", 310, "wait"),
        query("another alphabet", "wait=1s", 310, "wait"),
        query("a control character", "wait=1%00", 310, "wait"),
        query("twice", "wait=0&after=0&wait=0", 306, "wait"),
        query("unknown", "since=1", 306, "after, limit and wait"),
        query("without a name", "=1", 306, "after, limit and wait"),
        last("another alphabet", "x", "Last-Event-ID"),
        last("not ASCII", "é", "Last-Event-ID"),
        last("a control character", "1\t2", "Last-Event-ID"),
        last("twice", "1\r\nLast-Event-ID: 1", "Last-Event-ID"),
    ]
}

#[actix_web::test]
async fn each_parameter_of_feeds_and_receipts_in_each_faulty_form_is_refused_and_named() {
    let server = Server::start();
    let client = FeedClient::at(&server, "news");
    client.put("a", "1").await;
    client.page("wait=10").await;
    let (_, channel) = Agent::offline(&server).await;
    let sender = Sender::new();
    let push = sender.post(&channel.endpoint).ttl(60).header("prefer", "respond-async");
    let answer = push.send().await;
    let link = answer.header("link").expect("a 202 has a Link");
    let receipts = link.split(['<', '>']).nth(1).expect("it has a URL");
    let receipts = receipts.strip_prefix(&server.origin()).expect("it is ours");
    let authorized = format!("Authorization: {}\r\n", client.authorization());
    for (path, authorization) in [("/v1/feeds/news", &*authorized), (receipts, "")] {
        for (what, query, lines, errno, names) in parameter_faults() {
            let lines = format!("{authorization}{lines}");
            let answer = ask(&server, &format!("GET {path}{query}"), &lines, "").await;
            answer.assert_refused(&format!("{names}, {what}"), (400, errno), names);
        }
    }
}

#[actix_web::test]
async fn each_token_key_and_value_of_a_feed_in_each_faulty_form_is_refused_and_named() {
    let server = Server::start_with(&["--feed-value-bytes-max=10"]);
    let client = FeedClient::at(&server, "news");
    let right = format!("Authorization: {}\r\n", client.authorization());
    let (long, twice) =
        (format!("Authorization: Bearer kf1.{}\r\n", "r".repeat(5000)), right.repeat(2));
    let tab = right.replace("kf1", "k\tf1");
    for (what, lines, errno, names) in [
        ("missing", "", 301, "Authorization"),
        ("empty", "Authorization: \r\n", 301, "Authorization"),
        ("another scheme", "Authorization: Basic a2Yx\r\n", 301, "Authorization"),
        ("twice", &twice, 301, "Authorization"),
        ("another alphabet", "Authorization: Bearer kfé\r\n", 301, "Authorization"),
        ("a control character", &tab, 302, "token"),
        ("too long", &long, 302, "token"),
    ] {
        for request in ["GET /v1/feeds/news", "PUT /v1/feeds/news/a"] {
            let answer = ask(&server, request, lines, "").await;
            answer.assert_refused(&format!("{request}, {what}"), (401, errno), names);
        }
    }
    let long = "k".repeat(257);
    for (what, path, value, error, names) in [
        ("an empty feed", "", &b"1"[..], (403, 304), "feed"),
        ("a feed that is not UTF-8", "%ff/a", b"1", (403, 304), "feed"),
        ("a feed of another alphabet", "NEWS/a", b"1", (403, 304), "feed"),
        ("an empty key", "news/", b"1", (400, 311), "key"),
        ("a key that is too long", &format!("news/{long}"), b"1", (400, 311), "key"),
        ("a key that is not UTF-8", "news/%ff", b"1", (400, 311), "key"),
        ("half an encoding", "news/%4", b"1", (400, 311), "key"),
        ("a control character in a key", "news/a%0D", b"1", (400, 311), "key"),
        ("a bare question mark", "news/a?b", b"1", (400, 306), "key"),
        ("a value that is too long", "news/a", b"12345678901", (413, 104), "value"),
        ("a value that is not UTF-8", "news/a", b"\xff", (400, 312), "value"),
    ] {
        let answer = ask(&server, &format!("PUT /v1/feeds/{path}"), &right, value).await;
        answer.assert_refused(what, error, names);
    }
    let reserved = token(&server, "broadcasts", Scopes::Both, None);
    let reserved = format!("Authorization: Bearer {reserved}\r\n");
    let answer = ask(&server, "PUT /v1/feeds/broadcasts/errors", &reserved, "1").await;
    assert!(answer.assert_error(400, 317).contains("broadcast"), "{answer}");
    client.get("").await.assert_error(404, 313);
}
