//! Broadcasts that are taken over from another service.

mod fake;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

pub(crate) use fake::Fake;

use crate::harness::{AT_ONCE, Program, Server, kalends, until};

const SECRET: &str = "a-secret-of-the-source";

/// A source and a server that asks it every second.
struct Scene {
    source: Fake,
    server: Server,
    _home: TempDir,
}

impl Scene {
    fn start(arguments: &[&str]) -> Self {
        Self::beside(Fake::start(), arguments)
    }

    fn beside(source: Fake, arguments: &[&str]) -> Self {
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

    /// From now on the source has these.
    fn has(&self, broadcasts: &[(&str, &str)]) {
        let broadcasts: serde_json::Map<_, _> =
            broadcasts.iter().map(|(id, version)| ((*id).to_owned(), (*version).into())).collect();
        let body = serde_json::json!({ "code": 200, "broadcasts": broadcasts });
        self.source.answers(200, &body.to_string());
    }

    /// What a command says.
    async fn said(&self, words: &str) -> String {
        let mut command = kalends(&words.split(' ').collect::<Vec<_>>());
        command.arg("--data-dir").arg(self.server.data_dir());
        let ended = Program::run(command).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    }

    /// Waits until these are the broadcasts.
    async fn broadcasts(&self, expected: &str) {
        let mut listed = String::new();
        until(3 * AT_ONCE, "the broadcasts are taken over", async || {
            listed = self.said("broadcast list").await;
            listed == expected
        })
        .await;
    }

    /// How often anything was written to the feed.
    async fn head(&self) -> u64 {
        let listed = self.said("feed list --json").await;
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
async fn what_a_source_has_is_taken_over_and_what_did_not_change_is_not_written_again() {
    let source = Fake::start();
    source.answers(200, r#"{"broadcasts": {"a": "1", "b/c": "\"2\""}}"#);
    let mut scene = Scene::beside(source, &[]);
    scene.broadcasts("a = 1\nb/c = \"2\"\n").await;
    let head = scene.source.heads().remove(0);
    assert!(head.starts_with("get /v1/broadcasts http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nauthorization: bearer {SECRET}\r\n")), "{head}");

    scene.source.is_asked(2).await;
    assert_eq!(scene.head().await, 2);
    scene.has(&[("a", "3"), ("b/c", "\"2\"")]);
    scene.broadcasts("a = 3\nb/c = \"2\"\n").await;
    scene.source.is_asked(2).await;
    assert_eq!(scene.head().await, 3);
    // What is gone there stays here.
    scene.has(&[("a", "3")]);
    scene.source.is_asked(2).await;
    scene.server.kill();
    scene.server.restart();
    scene.source.is_asked(3).await;
    scene.broadcasts("a = 3\nb/c = \"2\"\n").await;
    assert_eq!(scene.head().await, 3);
    assert!(!scene.server.log().contains(SECRET));
}

#[actix_web::test]
async fn a_source_that_fails_is_logged_once_and_taken_from_when_it_is_back() {
    let elsewhere = Fake::start();
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
        let source = Fake::start();
        source.answers_with(status, headers, body);
        let scene = Scene::beside(source, &["--log-format=human"]);
        scene.logged(expected).await;
        scene.source.is_asked(1).await;
        assert_eq!(scene.said("broadcast list").await, "");
        scene.has(&[("a", "1")]);
        scene.broadcasts("a = 1\n").await;
        scene.logged("broadcasts are taken over again").await;
        assert_eq!(scene.count("cannot take over broadcasts"), 1, "{}", scene.server.log());
        assert!(!scene.server.log().contains(SECRET));
    }
    assert_eq!(elsewhere.heads().len(), 0, "the token is sent nowhere else");
}

#[actix_web::test]
async fn a_source_that_says_nothing_holds_nothing_up() {
    let mut scene = Scene::start(&[]);
    scene.source.is_asked(1).await;
    scene.said("broadcast put a 1").await;
    scene.broadcasts("a = 1\n").await;
    let began = Instant::now();
    assert!(scene.server.terminate().success());
    assert!(began.elapsed() < AT_ONCE / 2, "{:?}", began.elapsed());

    scene.server.restart();
    scene.logged("cannot take over broadcasts, will try again").await;
    scene.has(&[("a", "2")]);
    scene.broadcasts("a = 2\n").await;
}

#[actix_web::test]
async fn what_cannot_be_taken_over_keeps_nothing_else_out() {
    let source = Fake::start();
    source.answers(200, r#"{"broadcasts": {"": "1", "a": "1", "b": "123456", "c": "12345"}}"#);
    let scene = Scene::beside(source, &["--feed-value-bytes-max=5", "--feed-keys-max=2"]);
    scene.logged("2 of its broadcasts have an id that is no key of a feed").await;
    scene.broadcasts("a = 1\nc = 12345\n").await;
    scene.has(&[("a", "2"), ("b", "1"), ("c", "3")]);
    scene.broadcasts("a = 2\nc = 3\n").await;
    scene.source.is_asked(2).await;
    assert_eq!(scene.count("cannot take over all broadcasts"), 1, "{}", scene.server.log());
    scene.has(&[("a", "2")]);
    scene.logged("broadcasts are taken over again").await;
}

#[actix_web::test]
async fn a_token_that_cannot_be_used_is_told_at_the_start() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let (url, token) = ("--broadcast-source-url=http://127.0.0.1:1", token_file(&home, 0o640));
    let token = format!("--broadcast-source-token-file={token}");
    let missing = "--broadcast-source-token-file=/nowhere/at/all";
    for (arguments, expected) in [
        (&[&*token][..], "broadcast_source_url is not: set both or none"),
        (&[url, missing], "broadcast_source_token_file: cannot read /nowhere/at/all: "),
        (&[url, &token], "has mode 0640, so others can get at the token: run `chmod 600 "),
    ] {
        let mut serve = kalends(&["serve", "--listen=127.0.0.1:0"]);
        serve.arg("--data-dir").arg(&data).args(arguments);
        let ended = Program::run(serve).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(expected) && !ended.stderr.contains(SECRET), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "nothing else is said: {ended:?}");
    }
}
