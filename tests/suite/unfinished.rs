//! Requests whose body is never completed: they are answered, and their connection is closed.

use crate::harness::{AT_ONCE, Bystander, Raw, Server};

/// The first part of a chunked body.
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n5\r\nab";

/// The first part of a body with a Content-Length.
const OF_LENGTH: &str = "Content-Length: 100\r\n\r\nab";

#[actix_web::test]
async fn an_unfinished_body_keeps_no_connection_open() {
    let server = Server::start();
    let mut bystander = Bystander::connect(&server).await;
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
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn a_late_body_closes_its_connection() {
    let (server, _, channel) = Server::with_offline(&["--request-body-timeout-ms=300"]).await;
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
async fn a_finished_chunked_body_keeps_its_connection() {
    let (server, _, channel) = Server::with_offline(&[]).await;
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

/// Sends a request and returns the answer that precedes the server's close of the connection.
async fn answer_and_end(server: &Server, request: &str) -> String {
    let mut raw = Raw::open(server).await;
    raw.write(request).await;
    String::from_utf8(raw.rest(AT_ONCE).await).expect("answers are text")
}
