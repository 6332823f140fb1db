//! PUT of application servers of SimplePush: the fields of the form, and the headers.

use super::ask;
use crate::harness::Server;
use crate::simplepush::SimpleAgent;

#[actix_web::test]
async fn each_field_of_a_simplepush_version_in_each_faulty_form_is_refused_and_named() {
    let server = Server::start_with(&["--simplepush=true"]);
    let mut agent = SimpleAgent::connect(&server, None).await;
    let (id, endpoint) = agent.register().await;
    agent.leave().await;
    let path = endpoint.strip_prefix(&server.origin()).expect("endpoints are ours").to_owned();
    let (digits, data) = ("1".repeat(3000), format!("version=5&data={}", "x".repeat(4097)));
    for (field, what, form, status, errno) in [
        ("version", "too long", format!("version={digits}"), 400, 999),
        ("version", "above 64 bits", "version=18446744073709551616".to_owned(), 400, 999),
        ("version", "another alphabet", "version=five".to_owned(), 400, 999),
        ("version", "not UTF-8", "version=%FF".to_owned(), 400, 999),
        ("version", "a control character", "version=5%00".to_owned(), 400, 999),
        ("version", "negative", "version=-1".to_owned(), 400, 999),
        ("version", "the first of two", "version=x&version=5".to_owned(), 400, 999),
        ("data", "too long", data, 413, 104),
        ("data", "not UTF-8", "version=5&data=%FF".to_owned(), 400, 999),
        ("data", "half a character", "version=5&data=a%C3".to_owned(), 400, 999),
    ] {
        let query = format!("PUT {path}?{form}");
        for (place, request, body) in
            [("body", format!("PUT {path}"), form.as_str()), ("query", query, "")]
        {
            let answer = ask(&server, &request, "", body).await;
            answer.assert_refused(&format!("{field}, {what}, {place}"), (status, errno), field);
        }
    }
    for (names, lines, body, status, errno) in [
        ("data", "", b"version=5&data=\xff".to_vec(), 400, 999),
        ("body", "", vec![b'x'; 3 * 4096 + 65], 413, 104),
        (
            "Content-Type",
            "Content-Type: application/json\r\n",
            b"{\"version\":5}".to_vec(),
            400,
            999,
        ),
        ("Content-Type", "Content-Type: \r\n", b"data=x".to_vec(), 400, 999),
        ("Authorization", "Authorization: \r\n", b"version=5".to_vec(), 401, 109),
        ("Authorization", "Authorization: vapid k=a\r\n", b"version=5".to_vec(), 401, 109),
    ] {
        let answer = ask(&server, &format!("PUT {path}"), lines, body).await;
        answer.assert_refused(&format!("{names}, {lines}"), (status, errno), names);
    }
    // Nothing of it was stored: lower versions are accepted. Of a field that is there twice, the first counts.
    for body in ["version=1&version=x", "version=2&data=%00%1F&data=x"] {
        let answer = ask(&server, &format!("PUT {path}"), "", body).await;
        assert_eq!(answer.status, 202, "{body}: {answer}");
    }
    let mut agent = agent.reconnect(&server).await;
    agent.gets(serde_json::json!({"channelID": id, "version": 2, "data": "\u{0}\u{1f}"})).await;
    agent.has_nothing_more().await;
}
