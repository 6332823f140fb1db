//! The id of a request, in its answer and in the lines of the log that it causes.

use hyper::Method;
use serde_json::Value;

use crate::harness::{AT_ONCE, Answer, Raw, Sender, Server, until};

fn id(answer: &Answer) -> &str {
    answer.header("x-request-id").unwrap_or_else(|| panic!("no id: {answer}"))
}

/// Waits until lines with each of these texts have the id.
async fn are_logged(server: &Server, id: &str, texts: &[&str]) {
    let is_logged = |text: &str| {
        let log = server.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.any(|line| line["msg"] == text && line["request"] == id)
    };
    until(AT_ONCE, "the request is logged", async || texts.iter().all(|text| is_logged(text)))
        .await;
}

#[actix_web::test]
async fn the_lines_of_a_request_have_the_id_of_its_answer() {
    let server = Server::start_with(&["--log-level=debug"]);
    let sender = Sender::new();
    for (method, path, text) in [
        (Method::POST, "/wpush/x", "refused a push"),
        (Method::GET, "/v1/feeds/prices", "refused a request for a feed"),
        (Method::GET, "/receipts/x", "refused a request for receipts"),
        (Method::GET, "/nothing", "answered a request"),
    ] {
        let url = format!("{}{path}", server.origin());
        let ask = || sender.request(method.clone(), &url);
        let made = ask().send().await;
        are_logged(&server, id(&made), &[text, "answered a request"]).await;
        let given = ask().header("x-request-id", "of.a_proxy-7").send().await;
        assert_eq!(id(&given), "of.a_proxy-7");
        are_logged(&server, "of.a_proxy-7", &[text]).await;
    }
}

#[actix_web::test]
async fn the_warning_of_an_unhealthy_server_has_the_id_of_its_answer() {
    let server = Server::start_with(&["--disk-free-min=1000000000000"]);
    let health = Sender::new().get(&format!("{}/__heartbeat__", server.origin())).await;
    health.assert_error(503, 201);
    are_logged(&server, id(&health), &["the server is unhealthy"]).await;
}

#[actix_web::test]
async fn an_id_that_is_not_safe_is_replaced_in_the_answer_and_in_the_log() {
    let server = Server::start_with(&["--log-level=debug"]);
    let (longest, longer) = ("a".repeat(64), "a".repeat(65));
    for (given, is_kept) in [
        (longest.as_str(), true),
        (&longer, false),
        ("", false),
        ("two words", false),
        ("quoted\"", false),
        ("forged\\nline", false),
        ("{\"msg\":1}", false),
        ("ä", false),
    ] {
        let mut raw = Raw::open(&server).await;
        let request = format!("GET /nothing HTTP/1.1\r\nHost: a\r\nX-Request-Id: {given}\r\n\r\n");
        raw.write(request).await;
        let answer = raw.answer().await;
        assert_eq!(id(&answer) == given, is_kept, "{given:?}: {answer}");
        are_logged(&server, id(&answer), &["answered a request"]).await;
        let ids = answer.headers.iter().filter(|(name, _)| name == "x-request-id");
        assert_eq!(ids.count(), 1, "{answer}");
    }
    let log = server.log();
    for text in [&longer, "two words", "quoted", "forged"] {
        assert!(!log.contains(text), "{text}");
    }
}
