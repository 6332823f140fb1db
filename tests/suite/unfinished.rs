//! Requests whose body never ends: they are answered, and their connection does not stay.

use std::time::Duration;

use crate::harness::{Agent, Neighbour, Raw, Server};

/// Answered at once, the connection is read on for up to a second; a busy machine may take its time.
const SOON: Duration = Duration::from_secs(10);

/// A part of a body that is to come in chunks.
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n5\r\nab";

/// A part of a body of known length.
const OF_LENGTH: &str = "Content-Length: 100\r\n\r\nab";

#[actix_web::test]
async fn a_body_that_is_not_ended_holds_no_connection() {
    let server = Server::start();
    let mut neighbour = Neighbour::beside(&server).await;
    for (line, status) in [
        ("PUT /v1/feeds/f/x", "401"),
        ("GET /v1/feeds/f", "401"),
        ("POST /wpush/x", "404"),
        ("OPTIONS /wpush/x", "204"),
        ("DELETE /m/x", "404"),
        ("GET /nothing", "404"),
        ("GET /__lbheartbeat__", "200"),
        ("GET /", "426"),
    ] {
        for body in [CHUNKED, OF_LENGTH, "Transfer-Encoding: chunked\r\n\r\n"] {
            let answer =
                answer_and_end(&server, &format!("{line} HTTP/1.1\r\nHost: x\r\n{body}")).await;
            let expected = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&expected), "{line}, {body}: {answer}");
        }
    }
    neighbour.notices_nothing().await;
}

#[actix_web::test]
async fn a_body_that_does_not_come_in_time_ends_its_connection() {
    let server = Server::start_with(&["--request-body-timeout-ms=300"]);
    let (_, channel) = Agent::absent(&server).await;
    let path = channel.endpoint.strip_prefix(&server.origin()).expect("an endpoint of ours");
    for body in [CHUNKED, OF_LENGTH] {
        let push = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nTTL: 60\r\nContent-Encoding: aes128gcm\r\n{body}"
        );
        let answer = answer_and_end(&server, &push).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}

#[actix_web::test]
async fn a_body_in_chunks_that_ends_keeps_its_connection() {
    let server = Server::start();
    let (_, channel) = Agent::absent(&server).await;
    let path = channel.endpoint.strip_prefix(&server.origin()).expect("an endpoint of ours");
    let push = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nTTL: 60\r\nContent-Encoding: aes128gcm\r\n\
         Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    );
    let mut raw = Raw::open(&server).await;
    for _ in 0..2 {
        raw.write(&push).await;
        assert_eq!(raw.answer().await.status, 201);
    }
}

/// What a request is told before its connection ends, which the server sees to.
async fn answer_and_end(server: &Server, request: &str) -> String {
    let mut raw = Raw::open(server).await;
    raw.write(request).await;
    String::from_utf8(raw.rest(SOON).await).expect("answers are text")
}
