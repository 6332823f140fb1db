//! Each field of a request in every faulty form: the status, the errno, and the field's name in the message. The header
//! fields of a push are here, and each other interface has a file.

mod feeds;
mod matrix;
mod registration;
mod simplepush;

use crate::harness::{Answer, Raw, Server};

const OLD: &str = "Content-Encoding: aesgcm\r\n";
const SALT: &str = "Encryption: salt=c2FsdA\r\n";
const DH: &str = "Crypto-Key: dh=ZGg\r\n";
const TTL: &str = "TTL: 60\r\n";

/// A field, the lines that are valid beside it, its values, and what the message names.
struct Case {
    field: &'static str,
    beside: String,
    faults: Vec<(&'static str, String, u16, u16)>,
    names: &'static str,
}

/// `missing` is the errno without the field, or none if it may be missing.
fn case(
    field: &'static str,
    beside: &[&str],
    missing: Option<u16>,
    faults: &[(&'static str, &str, u16, u16)],
) -> Case {
    let line = |value: &str| format!("{field}: {value}\r\n");
    let mut lines: Vec<_> = faults
        .iter()
        .map(|(what, value, status, errno)| (*what, line(value), *status, *errno))
        .collect();
    lines.extend(missing.map(|errno| ("missing", String::new(), 400, errno)));
    Case { field, beside: beside.concat(), faults: lines, names: field }
}

fn link(token: &str) -> String {
    format!("</receipts/{token}>; rel=\"urn:ietf:params:push:receipt\"")
}

/// Sends a request of this method and path, with these lines and this body.
async fn ask(server: &Server, request: &str, lines: &str, body: impl AsRef<[u8]>) -> Answer {
    let (mut raw, body) = (Raw::open(server).await, body.as_ref());
    let head = format!("{request} HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: {}", body.len());
    raw.write([head.as_bytes(), b"\r\n\r\n", body].concat()).await;
    raw.answer().await
}

#[expect(clippy::too_many_lines, reason = "a table of all faults, without any logic")]
fn cases() -> Vec<Case> {
    let (ttl, topic) = (format!("{}x", "1".repeat(3000)), "t".repeat(33));
    let (urgency, list) = ("high".repeat(1000), format!("salt=c2FsdA;x={}", "a".repeat(2048)));
    let keys = format!("dh=ZGg;x={}", "a".repeat(2048));
    let token = format!("vapid t={},k=AAAA", "a".repeat(5000));
    vec![
        case(
            "TTL",
            &[],
            Some(111),
            &[
                ("empty", "", 400, 112),
                ("twice", "60\r\nTTL: 60", 400, 112),
                ("too long", &ttl, 400, 112),
                ("another alphabet", "soon", 400, 112),
                ("a control character", "6\t0", 400, 112),
                ("negative", "-1", 400, 114),
            ],
        ),
        case(
            "Topic",
            &[TTL],
            None,
            &[
                ("empty", "", 400, 113),
                ("twice", "a\r\nTopic: a", 400, 113),
                ("too long", &topic, 400, 113),
                ("another alphabet", "a/b", 400, 113),
                ("a control character", "a\tb", 400, 113),
            ],
        ),
        case(
            "Urgency",
            &[TTL],
            None,
            &[
                ("empty", "", 400, 115),
                ("twice", "high\r\nUrgency: high", 400, 115),
                ("too long", &urgency, 400, 115),
                ("another alphabet", "höch", 400, 115),
                ("a control character", "hi\tgh", 400, 115),
            ],
        ),
        case(
            "Content-Encoding",
            &[TTL],
            Some(110),
            &[
                ("empty", "", 400, 110),
                ("twice", "aes128gcm\r\nContent-Encoding: aes128gcm", 400, 110),
                ("too long", &urgency, 400, 110),
                ("another alphabet", "aes128gcm, gzip", 400, 110),
                ("a control character", "aes128\tgcm", 400, 110),
            ],
        ),
        case(
            "Encryption",
            &[TTL, OLD, DH],
            Some(110),
            &[
                ("empty", "", 400, 110),
                ("too long", &list, 400, 110),
                ("another alphabet", "salt=a+b", 400, 110),
                ("a control character", "salt=a\tb", 400, 110),
                ("an empty salt", "salt=", 400, 110),
                ("twice", "salt=c2FsdA\r\nEncryption: salt=c2FsdA", 400, 110),
                ("two salts", "salt=c2FsdA, salt=YWx0", 400, 110),
            ],
        ),
        case(
            "Crypto-Key",
            &[TTL, OLD, SALT],
            Some(101),
            &[
                ("empty", "", 400, 101),
                ("too long", &keys, 400, 110),
                ("another alphabet", "dh=a/b", 400, 110),
                ("a control character", "dh=a\tb", 400, 110),
                ("an empty key", "dh=", 400, 110),
                ("twice", "dh=ZGg\r\nCrypto-Key: dh=ZGg", 400, 110),
                ("two keys", "keyid=a;dh=ZGg,keyid=b;dh=ZGg", 400, 110),
            ],
        ),
        case(
            "Encryption-Key",
            &[TTL, OLD, SALT, DH],
            None,
            &[("empty", "", 400, 110), ("there", "dh=ZGg", 400, 110)],
        ),
        case(
            "Link",
            &[TTL, "Content-Encoding: aes128gcm\r\nPrefer: respond-async\r\n"],
            None,
            &[
                ("without a token", &link(""), 400, 116),
                ("twice", &format!("{0}\r\nLink: {0}", link("a")), 400, 116),
                ("too long", &link(&"a".repeat(4096)), 400, 116),
                ("another alphabet", &link("é"), 400, 116),
                ("a control character", &link("a\tb"), 400, 116),
            ],
        ),
        case(
            "Authorization",
            &[TTL],
            None,
            &[
                ("empty", "", 401, 109),
                ("twice", "vapid t=a,k=b\r\nAuthorization: vapid t=a,k=b", 401, 109),
                ("another alphabet", "vapid t=é", 401, 109),
                ("no token", "vapid k=a", 401, 109),
                ("no key", "vapid t=a", 401, 109),
            ],
        ),
        Case {
            names: "VAPID public key",
            ..case(
                "Authorization",
                &[TTL],
                None,
                &[
                    ("an empty point", "vapid t=a,k=AAAA", 401, 109),
                    ("too long", &token, 401, 109),
                    ("a control character", "vapid t=a,k=A\tA", 401, 109),
                ],
            )
        },
    ]
}

#[actix_web::test]
async fn each_field_of_a_push_in_each_faulty_form_is_refused_and_named() {
    let (server, _, channel) = Server::with_offline(&[]).await;
    let path = channel.path(&server);
    for Case { field, beside, faults, names } in cases() {
        for (what, lines, status, errno) in faults {
            let lines = format!("{beside}{lines}");
            let answer = ask(&server, &format!("POST {path}"), &lines, "x").await;
            answer.assert_refused(&format!("{field}, {what}"), (status, errno), names);
        }
        // HTTP forbids other control characters (RFC 9110 §5.5), so the request is not read at all.
        let lines = format!("{field}: a\u{1}b\r\n");
        let answer = ask(&server, &format!("POST {path}"), &lines, "x").await;
        answer.assert_refused(field, (400, 999), "not valid HTTP/1.1");
    }
}
