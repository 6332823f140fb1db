//! Requests of libraries that the tests do not run: their headers, claims and sizes. To verify a later version:
//!
//! - webpush-go: read `webpush.go` and `vapid.go` of its source.
//! - web-push-php: read `src/WebPush.php`, `src/VAPID.php` and `src/Encryption.php` of its source.
//! - web-push of crates.io: in a package of its own, print the headers of `request_builder::build_request` for a message
//!   with a payload and `VapidSignatureBuilder`. The requests below were recorded so. The crate needs OpenSSL, which this
//!   workspace does not have.

use serde_json::{Value, json};

use crate::harness::{Sender, Server, Signer, unix_now_s};

/// A server for the libraries that write an `aud` without a port has the port of its scheme.
const ORIGIN: &str = "https://push.example.net";

const SALT: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// What a library sends, with a payload and with VAPID.
struct Recorded {
    library: &'static str,
    /// With {jwt}, {key}, {dh} and {salt} for what is new in each request.
    headers: &'static [(&'static str, &'static str)],
    /// Whether the token has `iat` and `nbf` beside the three claims that all have.
    has_times: bool,
    /// The size of a body, to which the library pads short messages.
    body_bytes: usize,
}

const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");
const FOUR_WEEKS: (&str, &str) = ("ttl", "2419200");
const VAPID: (&str, &str) = ("authorization", "vapid t={jwt}, k={key}");
const WEB_PUSH: (&str, &str) = ("authorization", "WebPush {jwt}");
const AES128GCM: (&str, &str) = ("content-encoding", "aes128gcm");
const AESGCM: (&str, &str) = ("content-encoding", "aesgcm");

const REQUESTS: [Recorded; 6] = [
    Recorded {
        library: "webpush-go 1.4.0",
        headers: &[
            AES128GCM,
            OCTETS,
            ("ttl", "30"),
            ("topic", "news"),
            ("urgency", "high"),
            VAPID,
            ("user-agent", "Go-http-client/1.1"),
            ("accept-encoding", "gzip"),
        ],
        has_times: false,
        body_bytes: 4096,
    },
    Recorded {
        library: "webpush-go 76cc00f with AuthScheme WebPush",
        headers: &[AES128GCM, OCTETS, ("ttl", "30"), WEB_PUSH, ("crypto-key", "p256ecdsa={key}")],
        has_times: false,
        body_bytes: 4096,
    },
    Recorded {
        library: "web-push-php 11.0.0",
        headers: &[OCTETS, AES128GCM, FOUR_WEEKS, ("urgency", "low"), ("topic", "news"), VAPID],
        has_times: false,
        body_bytes: 86 + 2820 + 16,
    },
    Recorded {
        library: "web-push-php 11.0.0, its default aesgcm",
        headers: &[
            OCTETS,
            AESGCM,
            ("encryption", "salt={salt}"),
            ("crypto-key", "dh={dh};p256ecdsa={key}"),
            FOUR_WEEKS,
            WEB_PUSH,
        ],
        has_times: false,
        body_bytes: 2 + 2820 + 16,
    },
    Recorded {
        library: "web-push 0.11.0 of crates.io",
        headers: &[
            FOUR_WEEKS,
            ("urgency", "very-low"),
            ("topic", "news"),
            AES128GCM,
            OCTETS,
            VAPID,
        ],
        has_times: true,
        body_bytes: 230,
    },
    Recorded {
        library: "web-push 0.11.0 of crates.io, aesgcm",
        headers: &[
            FOUR_WEEKS,
            AESGCM,
            OCTETS,
            ("crypto-key", "dh={dh}; p256ecdsa={key}"),
            ("encryption", "salt={salt};rs=4096"),
            VAPID,
        ],
        has_times: true,
        body_bytes: 144,
    },
];

impl Recorded {
    fn claims(&self) -> Value {
        let now = unix_now_s();
        let claims = json!({"aud": ORIGIN, "exp": now + 43_200, "sub": "mailto:a@b.example"});
        match self.has_times {
            true => {
                json!({"iat": now, "exp": now + 43_200, "nbf": now, "aud": ORIGIN, "sub": claims["sub"]})
            }
            false => claims,
        }
    }

    /// A body that begins as RFC 8291 requires, of bytes that are text.
    fn body(&self) -> String {
        let header = format!("{}\0\0\u{10}\0A\u{4}{}", "s".repeat(16), "k".repeat(64));
        let header = if self.headers.contains(&AES128GCM) { header } else { String::new() };
        let record = "r".repeat(self.body_bytes - header.len());
        header + &record
    }
}

#[actix_web::test]
async fn requests_in_the_form_of_the_go_php_and_rust_libraries_are_accepted() {
    let (server, mut agent) =
        Server::with_agent(&["--public-url", ORIGIN, "--payload-header-required=true"]).await;
    let (signer, sender) = (Signer::new(), Sender::new());
    let channel = agent.register_for(&signer.key()).await;
    let endpoint = channel.endpoint.replace(ORIGIN, &server.origin());
    for recorded in REQUESTS {
        let (library, body) = (recorded.library, recorded.body());
        let (token, key) = (signer.token_with_claims(&recorded.claims()), signer.key());
        let dh = Signer::new().key();
        let mut post = sender.post(&endpoint).raw_body(body.clone());
        for (name, value) in recorded.headers {
            let value = value.replace("{jwt}", &token).replace("{key}", &key);
            post = post.header(name, &value.replace("{dh}", &dh).replace("{salt}", SALT));
        }
        let (answer, got) = tokio::join!(post.send(), agent.take(1));
        assert_eq!(answer.status, 201, "{library}: {answer}");
        assert_eq!(got[0].body(), body, "{library}");
    }
}
