//! Broadcasts that are imported from another service.

mod static_server;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub(crate) use static_server::StaticServer;

use crate::harness::{AT_ONCE, Program, Server, kalends, until};

const SECRET: &str = "a-secret-of-the-source";

/// How long the server waits for an answer of its source.
const SOURCE_WAIT: Duration = Duration::from_secs(30);

/// A source, and a server that requests it every second.
struct ImportFixture {
    source: StaticServer,
    server: Server,
    _home: TempDir,
}

impl ImportFixture {
    fn start(arguments: &[&str]) -> Self {
        Self::beside(StaticServer::start(), arguments)
    }

    fn beside(source: StaticServer, arguments: &[&str]) -> Self {
        let home = TempDir::new().expect("a temporary directory can be made");
        let token = token_file(&home, 0o600);
        let (url, token) = (
            format!("--broadcast-source-url={}", source.origin()),
            format!("--broadcast-source-token-file={token}"),
        );
        let own = [&*url, &token, "--broadcast-source-poll-s=1"];
        let server = Server::start_with(&[&own, arguments].concat());
        Self { source, server, _home: home }
    }

    /// Sets the broadcasts of the source.
    fn set_source(&self, broadcasts: &[(&str, &str)]) {
        let broadcasts: serde_json::Map<_, _> =
            broadcasts.iter().map(|(id, version)| ((*id).to_owned(), (*version).into())).collect();
        let body = serde_json::json!({ "code": 200, "broadcasts": broadcasts });
        self.source.answers(200, &body.to_string());
    }

    /// The output of a command.
    async fn stdout(&self, words: &str) -> String {
        self.server.run(&words.split(' ').collect::<Vec<_>>()).await.succeeded()
    }

    /// Waits until the server has these broadcasts.
    async fn broadcasts(&self, expected: &str) {
        let mut listed = String::new();
        until(3 * AT_ONCE, "the broadcasts are taken over", async || {
            listed = self.stdout("broadcast list").await;
            listed == expected
        })
        .await;
    }

    /// The number of the last change of the feed.
    async fn head(&self) -> u64 {
        let listed = self.stdout("feed list --json").await;
        let feed: Value = serde_json::from_str(&listed).expect("there is one feed");
        feed["head"].as_u64().expect("the head is a number")
    }

    async fn logged(&self, text: &str) {
        until(3 * AT_ONCE, text, async || self.server.log().contains(text)).await;
    }

    fn count(&self, text: &str) -> usize {
        self.server.log().matches(text).count()
    }
}

fn token_file(home: &TempDir, mode: u32) -> String {
    let path = home.path().join("token");
    fs::write(&path, format!("{SECRET}\n")).expect("the directory is ours");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("the file is ours");
    path.display().to_string()
}

#[actix_web::test]
async fn changed_broadcasts_are_imported_and_unchanged_ones_are_not_rewritten() {
    let source = StaticServer::start();
    source.answers(200, r#"{"broadcasts": {"a": "1", "b/c": "\"2\""}}"#);
    let mut fixture = ImportFixture::beside(source, &[]);
    fixture.broadcasts("a = 1\nb/c = \"2\"\n").await;
    let head = fixture.source.heads().remove(0);
    assert!(head.starts_with("get /v1/broadcasts http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nauthorization: bearer {SECRET}\r\n")), "{head}");

    fixture.source.wait_for_requests(2).await;
    assert_eq!(fixture.head().await, 2);
    fixture.set_source(&[("a", "3"), ("b/c", "\"2\"")]);
    fixture.broadcasts("a = 3\nb/c = \"2\"\n").await;
    fixture.source.wait_for_requests(2).await;
    assert_eq!(fixture.head().await, 3);
    // A broadcast that is missing at the source is kept.
    fixture.set_source(&[("a", "3")]);
    fixture.source.wait_for_requests(2).await;
    fixture.server.crash();
    fixture.source.wait_for_requests(3).await;
    fixture.broadcasts("a = 3\nb/c = \"2\"\n").await;
    assert_eq!(fixture.head().await, 3);
    assert!(!fixture.server.log().contains(SECRET));
}

#[actix_web::test]
async fn a_failing_source_is_logged_once_and_imported_when_it_recovers() {
    let elsewhere = StaticServer::start();
    let location = format!("location: {}/v1/broadcasts\r\n", elsewhere.origin());
    let large = format!(r#"{{"broadcasts": {{"a": "{}"}}}}"#, "x".repeat(2 * 1024 * 1024));
    for (status, headers, body, expected) in [
        ("500 Down", "", "", "it answers 500"),
        ("401 Unauthorized", "", "", "it answers 401"),
        ("200 OK", "", "<html>", "its answer is not {"),
        ("200 OK", "", r#"{"broadcasts": {"a": 1}}"#, "its answer is not {"),
        ("200 OK", "", &*large, "its answer has more than 1048576 bytes"),
        ("302 Found", &*location, "", "it answers 302: set broadcast_source_url"),
    ] {
        let source = StaticServer::start();
        source.answers_with(status, headers, body);
        let fixture = ImportFixture::beside(source, &["--log-format=human"]);
        fixture.logged(expected).await;
        fixture.source.wait_for_requests(1).await;
        assert_eq!(fixture.stdout("broadcast list").await, "");
        fixture.set_source(&[("a", "1")]);
        fixture.broadcasts("a = 1\n").await;
        fixture.logged("the import of broadcasts works again").await;
        assert_eq!(fixture.count("cannot import broadcasts"), 1, "{}", fixture.server.log());
        assert!(!fixture.server.log().contains(SECRET));
    }
    assert_eq!(elsewhere.heads().len(), 0, "the token is sent nowhere else");
}

#[actix_web::test]
async fn a_silent_source_delays_nothing() {
    let mut fixture = ImportFixture::start(&["--shutdown-wait-ms=600000"]);
    fixture.source.wait_for_requests(1).await;
    fixture.stdout("broadcast put a 1").await;
    fixture.broadcasts("a = 1\n").await;
    fixture.server.signal("TERM");
    assert!(fixture.server.ended_within(SOURCE_WAIT * 5 / 6).await.success());

    fixture.server.restart();
    fixture.logged("cannot import broadcasts, will try again").await;
    fixture.set_source(&[("a", "2")]);
    fixture.broadcasts("a = 2\n").await;
}

#[actix_web::test]
async fn an_invalid_broadcast_does_not_block_the_others() {
    let source = StaticServer::start();
    source.answers(200, r#"{"broadcasts": {"": "1", "a": "1", "b": "123456", "c": "12345"}}"#);
    let fixture = ImportFixture::beside(source, &["--feed-value-bytes-max=5", "--feed-keys-max=2"]);
    fixture.logged("2 of its broadcasts have an id that is no key of a feed").await;
    fixture.broadcasts("a = 1\nc = 12345\n").await;
    fixture.set_source(&[("a", "2"), ("b", "1"), ("c", "3")]);
    fixture.broadcasts("a = 2\nc = 3\n").await;
    fixture.source.wait_for_requests(2).await;
    assert_eq!(fixture.count("cannot import all broadcasts"), 1, "{}", fixture.server.log());
    fixture.set_source(&[("a", "2")]);
    fixture.logged("the import of broadcasts works again").await;
}

#[actix_web::test]
async fn an_unusable_token_is_reported_at_the_start() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let (url, token) = ("--broadcast-source-url=http://127.0.0.1:1", token_file(&home, 0o640));
    let token = format!("--broadcast-source-token-file={token}");
    let missing = "--broadcast-source-token-file=/nowhere/at/all";
    for (arguments, expected) in [
        (&[&*token][..], "broadcast_source_url is not: set both or none"),
        (&["--broadcast-source-url=http://10.0.0.1:1", &token], "is not encrypted"),
        (&[url, missing], "broadcast_source_token_file: cannot read /nowhere/at/all: "),
        (&[url, &token], "has mode 0640, so other users can read the token: run `chmod 600 "),
    ] {
        let mut serve = kalends(&["serve", "--listen=127.0.0.1:0", "--metrics-listen=off"]);
        serve.arg("--data-dir").arg(&data).args(arguments);
        let ended = Program::run(serve).await;
        ended.failed(1, expected);
        assert!(!ended.stderr.contains(SECRET), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "nothing else is printed: {ended:?}");
    }
}
