//! Answers to requests that no route reads: actix-http gives those that it cannot read a status and no body.

use serde_json::json;

use super::errno::Errno;

/// The answer with a body that says what is wrong. None unless `answer` is a whole answer of actix-http itself.
pub(crate) fn with_body(answer: &[u8]) -> Option<Vec<u8>> {
    if !answer.starts_with(b"HTTP/1.1 4") {
        return None;
    }
    let head = str::from_utf8(answer).ok()?.strip_suffix("\r\n\r\n")?;
    let (status_line, headers) = head.split_once("\r\n")?;
    let headers = headers.strip_prefix("content-length: 0\r\n")?;
    // It is not there behind an answer that keeps the connection.
    let date = headers.strip_prefix("connection: close\r\n").unwrap_or(headers);
    if !date.starts_with("date: ") || date.contains("\r\n") {
        return None;
    }
    let (code, error) = status_line.strip_prefix("HTTP/1.1 ")?.split_once(' ')?;
    let message = match code {
        "400" => "the request is not valid HTTP/1.1",
        "408" => "the headers of the request did not arrive in time",
        "431" => "the headers of the request are too large",
        _ => return None,
    };
    let code: u16 = code.parse().ok()?;
    let body = body(code, error, message);
    let length = body.len();
    let text = format!(
        "{status_line}\r\ncontent-length: {length}\r\nconnection: close\r\ncontent-type: application/json\r\n{date}\
         \r\n\r\n{body}"
    );
    Some(text.into_bytes())
}

/// The body of a 400.
pub(crate) fn bad_request(message: &str) -> String {
    body(400, "Bad Request", message)
}

/// A whole answer to a peer of which nothing was read.
pub(crate) fn refusal(code: u16, message: &str, retry_after_s: u32) -> String {
    let error = if code == 429 { "Too Many Requests" } else { "Service Unavailable" };
    let body = of(Errno::TryLater, code, error, message);
    format!(
        "HTTP/1.1 {code} {error}\r\ncontent-length: {}\r\nconnection: close\r\nretry-after: {retry_after_s}\r\n\
         content-type: application/json\r\n\r\n{body}",
        body.len()
    )
}

fn body(code: u16, error: &str, message: &str) -> String {
    of(Errno::Other, code, error, message)
}

fn of(errno: Errno, code: u16, error: &str, message: &str) -> String {
    let json = json!({"code": code, "errno": errno, "error": error, "message": message,
        "more_info": errno.more_info()});
    json.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_answer_without_a_body_gets_one() {
        let date = "date: Tue, 24 Nov 2026 12:14:17 GMT\r\n\r\n";
        let of = |line: &str, length: &str| {
            format!("HTTP/1.1 {line}\r\ncontent-length: {length}\r\nconnection: close\r\n{date}")
        };
        for (line, expected) in [
            ("400 Bad Request", Some("the request is not valid HTTP/1.1")),
            ("408 Request Timeout", Some("did not arrive in time")),
            ("431 Request Header Fields Too Large", Some("are too large")),
            ("404 Not Found", None),
            ("200 OK", None),
        ] {
            let answer = with_body(of(line, "0").as_bytes());
            let answer = answer.map(|answer| String::from_utf8(answer).unwrap());
            assert_eq!(answer.is_some(), expected.is_some(), "{line}");
            let Some((answer, expected)) = answer.zip(expected) else { continue };
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert!(body["message"].as_str().unwrap().contains(expected), "{body}");
        }
        let behind = of("431 Large", "0").replace("connection: close\r\n", "");
        let answer = String::from_utf8(with_body(behind.as_bytes()).unwrap()).unwrap();
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        let of_a_route = behind.replace("date: ", "x-request-id: 1\r\ndate: ");
        assert_eq!(with_body(of_a_route.as_bytes()), None);
        assert_eq!(with_body(of("400 Bad Request", "5").as_bytes()), None);
        let more = of("400 Bad Request", "0") + "x";
        assert_eq!(with_body(more.as_bytes()), None);
    }
}
