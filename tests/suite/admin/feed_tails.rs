//! `kalends feed tail`, which continues from its last position after a kill of the tail or of the
//! server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use hyper::Method;
use state_machine::feed::FeedName;
use tempfile::TempDir;

use super::AdminFixture;
use super::fixture::at_url;
use super::tail_process::TailProcess;
use crate::harness::{AT_ONCE, Program, Sender, Server, child, kalends, until};
use crate::importer::StaticServer;

/// A cursor file in its own directory.
struct CursorFile(TempDir);

impl CursorFile {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory can be made"))
    }

    fn path(&self) -> String {
        self.0.path().join("cursor").display().to_string()
    }

    /// The words of a tail of the feed `f` that keeps its cursor here.
    fn words(&self) -> String {
        format!("f --cursor-file {}", self.path())
    }

    /// The names of all files in the directory.
    fn names(&self) -> Vec<String> {
        let found = fs::read_dir(self.0.path()).expect("the directory is there");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("it can be read").file_name();
        let mut names: Vec<_> = found.map(|entry| name(entry).display().to_string()).collect();
        names.sort();
        names
    }

    /// The cursor, or `None` if there is no file.
    fn cursor(&self) -> Option<u64> {
        let text = fs::read_to_string(self.path()).ok()?;
        let contents: serde_json::Value =
            serde_json::from_str(&text).expect("a cursor file is whole at any time");
        contents["cursor"].as_u64()
    }

    /// Waits until the file contains this cursor.
    async fn has(&self, number: u64) {
        let has = async || self.cursor() == Some(number);
        until(AT_ONCE, "the cursor is kept", has).await;
    }
}

#[actix_web::test]
async fn a_tail_prints_updates_and_exits_with_0_on_interrupt() {
    for fixture in AdminFixture::engines(&[]) {
        fixture.stdout_of("feed put f a 1").await;
        let (mut human, mut json) =
            (TailProcess::at(&fixture, "f"), TailProcess::at(&fixture, "f --json"));
        assert_eq!(human.line().await, "1 a = 1");
        for (words, printed) in [
            ("feed put f a/b x=y", "2 a/b = x=y"),
            ("feed delete f a", "3 a deleted"),
            ("feed republish f a/b", "4 a/b = x=y"),
        ] {
            fixture.stdout_of(words).await;
            assert_eq!(human.line().await, printed);
        }
        let first = r#"{"feed_sync_id":1,"key":"a","version":2,"value":"1"}"#;
        let third = r#"{"feed_sync_id":3,"key":"a","version":4,"deleted":true}"#;
        let lines = json.take(4).await;
        assert_eq!((&*lines[0], &*lines[2]), (first, third));
        for tail in [human, json] {
            tail.interrupt().await.printed("");
        }
    }
}

#[actix_web::test]
async fn a_tail_ends_after_the_requested_number_of_updates() {
    let fixture = AdminFixture::embedded(&[]);
    for key in ["a", "b", "c"] {
        fixture.stdout_of(&format!("feed put f {key} 1")).await;
    }
    let file = CursorFile::new();
    let words = format!("{} --count 2", file.words());
    let ended = TailProcess::at(&fixture, &words).ended().await;
    ended.printed("1 a = 1\n2 b = 1\n");
    assert_eq!(ended.stderr, "kalends: 2 updates of f, up to number 2 of 3\n");
    assert_eq!(file.cursor(), Some(2));

    let mut rest = TailProcess::at(&fixture, &words);
    assert_eq!(rest.line().await, "3 c = 1");
    fixture.stdout_of("feed put f d 1").await;
    rest.ended().await.printed("4 d = 1\n");
}

#[actix_web::test]
async fn a_killed_tail_continues_after_the_last_printed_update() {
    for fixture in AdminFixture::engines(&[]) {
        let file = CursorFile::new();
        let words = file.words();
        fixture.stdout_of("feed put f k-0 x").await;
        let mut seen = Vec::new();
        for round in 1..6 {
            let mut tail = TailProcess::at(&fixture, &words);
            fixture.stdout_of(&format!("feed put f k-{round} x")).await;
            // Every round but the first may print the last update of the previous round again.
            let new = format!("{} k-{round} = x", round + 1);
            loop {
                let line = tail.line().await;
                let is_new = line == new;
                seen.push(line);
                if is_new {
                    break;
                }
            }
            if round % 2 == 0 {
                file.has(round + 1).await;
            }
            tail.kill().await;
            assert!(file.cursor().is_none_or(|cursor| cursor <= round + 1));
        }
        for number in 0..6 {
            let expected = format!("{} k-{number} = x", number + 1);
            assert!(seen.contains(&expected), "{expected} is not in {seen:?}");
        }
        assert!(seen.len() < 6 * 2, "{seen:?}");
    }
}

#[actix_web::test]
async fn a_tail_killed_at_any_time_skips_no_update() {
    const KEYS: u64 = 300;
    let fixture = AdminFixture::embedded(&[]);
    fill(&fixture, KEYS).await;
    for is_at_url in [false, true] {
        let (file, token) = (CursorFile::new(), fixture.token("f --read").await);
        let words = file.words();
        let (mut seen, mut runs) = (BTreeSet::new(), 0);
        while !seen.contains(&KEYS) {
            let mut tail = match is_at_url {
                true => tail_at(&fixture.server, &token, &words),
                false => TailProcess::at(&fixture, &words),
            };
            let wanted = fastrand::u64(1..60).min(KEYS - file.cursor().unwrap_or(0));
            let mut lines = tail.take(usize::try_from(wanted).unwrap()).await;
            lines.extend(tail.kill().await);
            let numbers = lines.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap());
            let numbers: Vec<u64> = numbers.collect();
            assert!(numbers.is_sorted(), "{numbers:?}");
            seen.extend(numbers);
            let is_true =
                file.cursor().is_none_or(|cursor| (1..=cursor).all(|n| seen.contains(&n)));
            assert!(is_true, "the cursor {:?} is behind {seen:?}", file.cursor());
            runs += 1;
            assert!(runs < 1000, "the cursor does not advance: {:?}", file.cursor());
        }
        assert!(seen.len() as u64 == KEYS && runs > 1, "{runs} runs saw {seen:?}");
        fixture.stdout_of(&format!("feed tail {words} --once")).await;
        assert_eq!(file.names(), ["cursor", "cursor.lock"], "what the killed ones left is gone");
    }
}

/// Writes this many keys; the feed hands on a few at a time.
async fn fill(fixture: &AdminFixture, keys: u64) {
    let token = fixture.token("f --write").await;
    let (sender, value) = (Sender::new(), "x".repeat(10_000));
    for key in 0..keys {
        let url = format!("{}/v1/feeds/f/{key}", fixture.server.origin());
        let put = sender.request(Method::PUT, &url);
        let put = put.header("authorization", &format!("Bearer {token}"));
        let answer = put.raw_body(&*value).send().await;
        assert_eq!(answer.status, 201, "{answer}");
    }
    let head = format!("\"head\":{keys},");
    let is_published = async || fixture.stdout_of("feed list --json").await.contains(&head);
    until(AT_ONCE, "all is published", is_published).await;
}

#[actix_web::test]
async fn a_tail_survives_a_restart_of_its_server() {
    let mut fixture = AdminFixture::embedded(&[]);
    let file = CursorFile::new();
    fixture.stdout_of("feed put f a 1").await;
    let mut tail = TailProcess::at(&fixture, &file.words());
    assert_eq!(tail.line().await, "1 a = 1");
    file.has(1).await;

    fixture.server.kill();
    // A tail does not hold the store: this command and a server can open it as well.
    fixture.stdout_of("feed put f b 2").await;
    fixture.server.restart();
    fixture.stdout_of("feed put f c 3").await;
    assert_eq!(tail.take(2).await, ["2 b = 2", "3 c = 3"]);

    assert!(fixture.server.terminate().success());
    fixture.server.restart();
    fixture.stdout_of("feed put f a 4").await;
    assert_eq!(tail.line().await, "4 a = 4");
    file.has(4).await;
    let ended = tail.interrupt().await;
    ended.printed("");
    assert!(ended.stderr.contains("the server is gone, waiting for it"), "{ended:?}");
    assert!(ended.stderr.ends_with("4 updates of f, up to its number 4\n"), "{ended:?}");
}

#[actix_web::test]
async fn a_tail_without_a_server_prints_stored_updates_and_waits() {
    let mut fixture = AdminFixture::embedded(&[]);
    fixture.stdout_of("feed put f a 1").await;
    assert!(fixture.server.terminate().success());
    let mut tail = TailProcess::at(&fixture, "f");
    assert_eq!(tail.line().await, "1 a = 1");
    fixture.stdout_of("feed put f b 2").await;
    fixture.server.restart();
    assert_eq!(tail.line().await, "2 b = 2");
    let ended = tail.interrupt().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.starts_with("kalends: no server is running here: "), "{ended:?}");
}

#[actix_web::test]
async fn a_tail_of_broadcasts_works_before_the_first_broadcast() {
    for mut fixture in AdminFixture::engines(&[]) {
        let once = "feed tail broadcasts --once";
        assert_eq!(fixture.stdout_of(once).await, "");
        for more in [" --once", ""] {
            let words = format!("feed tail broadcasts --after 5{more}");
            fixture.refuses(&words, "from the future, the last number of broadcasts is 0").await;
        }
        let mut tail = TailProcess::at(&fixture, "broadcasts");
        fixture.stdout_of("broadcast put a/b 1").await;
        assert_eq!(tail.line().await, "1 a/b = 1");
        fixture.stdout_of("broadcast put a/b 2").await;
        assert_eq!(tail.line().await, "2 a/b = 2");
        assert_eq!(tail.interrupt().await.code, Some(0));
        assert!(fixture.server.terminate().success());
        assert_eq!(fixture.stdout_of(once).await, "2 a/b = 2\n");
    }
}

#[actix_web::test]
async fn a_tail_of_broadcasts_works_without_a_server() {
    for mut fixture in AdminFixture::engines(&[]) {
        assert!(fixture.server.terminate().success());
        assert_eq!(fixture.stdout_of("feed tail broadcasts --once").await, "");
        let mut tail = TailProcess::at(&fixture, "broadcasts");
        if fixture.is_embedded() {
            // The tail holds the store until it prints this.
            let output = tail.stderr_line().await;
            assert!(output.starts_with("kalends: no server is running here: "), "{output}");
        }
        fixture.server.restart();
        fixture.stdout_of("broadcast put a/b 1").await;
        assert_eq!(tail.line().await, "1 a/b = 1");
    }
}

#[actix_web::test]
async fn a_tail_ends_when_its_output_is_closed() {
    for fixture in AdminFixture::engines(&[]) {
        fixture.stdout_of("feed put f a 1").await;
        let token = fixture.token("f --read").await;
        for mut tail in [TailProcess::at(&fixture, "f"), tail_at(&fixture.server, &token, "f")] {
            assert_eq!(tail.line().await, "1 a = 1");
            let ended = tail.unread().await;
            assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        }
    }
}

#[actix_web::test]
async fn an_invalid_cursor_file_is_rejected_with_a_remedy() {
    let fixture = AdminFixture::embedded(&[]);
    for feed in ["f", "g"] {
        fixture.stdout_of(&format!("feed put {feed} a 1")).await;
    }
    let file = CursorFile::new();
    let (f, g) = (FeedName::parse("f").unwrap(), FeedName::parse("g").unwrap());
    let tail = |feed: &FeedName| format!("feed tail {feed} --once --cursor-file {}", file.path());
    until(AT_ONCE, "it is published", async || fixture.stdout_of(&tail(&f)).await == "1 a = 1\n")
        .await;
    let kept = fs::read_to_string(file.path()).unwrap();
    assert_eq!(kept, "{\"feed\":\"f\",\"cursor\":1}\n");
    fixture.refuses(&tail(&g), "is the cursor of the feed f, not of g").await;
    for (contents, expected) in [
        ("", "is not a cursor file: name another one, or remove it"),
        ("1", "is not a cursor file"),
        (&kept.replace('1', "-1"), "is not a cursor file"),
        (&kept.replace('1', "7"), "the cursor 7 is from the future, the last number of f is 1"),
    ] {
        fs::write(file.path(), contents).unwrap();
        for words in [tail(&f), tail(&f).replace(" --once", "")] {
            let ended = fixture.run(&words).await;
            ended.failed(1, expected);
            assert_eq!(ended.stderr.lines().count(), 1, "{contents}: {ended:?}");
        }
        assert_eq!(fs::read_to_string(file.path()).unwrap(), contents, "it is left as it was");
    }
    fs::remove_file(file.path()).unwrap();
    let absent = FeedName::parse("absent").unwrap();
    for words in [tail(&absent), tail(&absent).replace(" --once", "")] {
        let ended = fixture.run(&words).await;
        ended.refused_start(1, &["kalends: there is no feed absent"]);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
    let nowhere = "feed tail f --cursor-file /nowhere/at/all";
    fixture.refuses(nowhere, "cannot keep the cursor in /nowhere/at/all").await;
}

#[actix_web::test]
async fn a_second_tail_with_a_cursor_file_is_rejected_until_the_first_is_killed() {
    let fixture = AdminFixture::embedded(&[]);
    let (file, token) = (CursorFile::new(), fixture.token("f --read").await);
    let words = file.words();
    let at_url = || tail_at(&fixture.server, &token, &words);
    for (number, key) in [(1, "a"), (2, "b")] {
        fixture.stdout_of(&format!("feed put f {key} x")).await;
        let mut first = if number == 1 { TailProcess::at(&fixture, &words) } else { at_url() };
        assert_eq!(first.line().await, format!("{number} {key} = x"));
        file.has(number).await;
        for second in [TailProcess::at(&fixture, &words), at_url()] {
            let ended = second.ended().await;
            let is_said = ended.stderr.starts_with("kalends: another tail keeps its cursor in ");
            assert!(is_said && ended.code == Some(1) && ended.stdout.is_empty(), "{ended:?}");
        }
        first.kill().await;
    }
    assert_eq!(fixture.stdout_of(&format!("feed tail {words} --once")).await, "");
    assert_eq!(file.names(), ["cursor", "cursor.lock"]);
}

#[actix_web::test]
async fn a_cursor_file_that_is_a_link_a_pipe_or_a_directory_is_refused() {
    let fixture = AdminFixture::embedded(&[]);
    fixture.stdout_of("feed put f a 1").await;
    let file = CursorFile::new();
    let tail = |path: &str| format!("feed tail f --once --cursor-file {path}");
    let (pipe, link) = (file.path() + "-pipe", file.path() + "-link");
    let made = child("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo can be run").success());
    symlink("cursor", &link).unwrap();
    for wrong in [&*pipe, &*link, &file.0.path().display().to_string()] {
        let reason = "is not a regular file: name one, or a name that is free";
        fixture.refuses(&tail(wrong), reason).await;
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "the link is still one");
}

#[actix_web::test]
async fn a_key_over_http_is_decoded_to_the_given_key() {
    const KEYS: [&str; 12] =
        ["a", "a#b", "a?b=c", "a%23b", "a%", "a b", "a+b", "ä/€", "..", "./a", "a;b&c", "a\\b\"<>"];
    let fixture = AdminFixture::embedded(&[]);
    let token = fixture.token("f --read --write").await;
    let at_url = async |words: &[&str]| {
        println!("{words:?}");
        let command = at_url(&fixture.server, &token, &[&["feed"], words].concat());
        Program::run(command).await.succeeded();
    };
    for key in KEYS {
        at_url(&["put", "f", key, &format!("of {key}")]).await;
        at_url(&["republish", "f", key]).await;
    }
    at_url(&["delete", "f", "a#b"]).await;
    let held = async || {
        let lines = fixture.stdout_of("feed tail f --once --json").await;
        let updates = lines.lines().map(|line| serde_json::from_str(line).unwrap());
        let held = updates.map(|update: serde_json::Value| {
            (
                update["key"].as_str().unwrap().to_owned(),
                update["value"].as_str().map(str::to_owned),
            )
        });
        held.collect::<BTreeMap<_, _>>()
    };
    let expected = KEYS.map(|key| (key.to_owned(), (key != "a#b").then(|| format!("of {key}"))));
    let expected = BTreeMap::from(expected);
    until(AT_ONCE, "these are the keys, and no others", async || held().await == expected).await;
}

/// A tail over HTTP.
fn tail_at(server: &Server, token: &str, words: &str) -> TailProcess {
    let words: Vec<_> = ["feed", "tail"].into_iter().chain(words.split(' ')).collect();
    TailProcess::start(at_url(server, token, &words))
}

#[actix_web::test]
async fn a_tail_over_http_survives_kills_of_tail_and_server() {
    let mut fixture = AdminFixture::embedded(&[]);
    let token = fixture.token("f --read").await;
    let file = CursorFile::new();
    let words = file.words();
    fixture.stdout_of("feed put f a 1").await;
    let mut tail = tail_at(&fixture.server, &token, &words);
    assert_eq!(tail.line().await, "1 a = 1");
    fixture.stdout_of("feed put f b 2").await;
    assert_eq!(tail.line().await, "2 b = 2");

    fixture.server.crash();
    fixture.stdout_of("feed put f c 3").await;
    assert_eq!(tail.line().await, "3 c = 3");
    file.has(3).await;
    tail.kill().await;

    fixture.stdout_of("feed put f d 4").await;
    let mut tail = tail_at(&fixture.server, &token, &words);
    assert_eq!(tail.line().await, "4 d = 4");
    file.has(4).await;
    tail.interrupt().await.printed("");

    let counted = tail_at(&fixture.server, &token, "f --count 3 --after 1").ended().await;
    counted.printed("2 b = 2\n3 c = 3\n4 d = 4\n");
}

#[actix_web::test]
async fn a_tail_polls_at_intervals_if_the_server_answers_at_once() {
    let server = StaticServer::start();
    server.answers(200, r#"{"updates": [], "cursor": 7, "head": 7}"#);
    let mut command = kalends(&["feed", "tail", "f", "--after=7", "--url", &server.origin()]);
    command.env("KALENDS_FEED_TOKEN", "kf1.r.f.0.x");
    let (began, tail) = (Instant::now(), TailProcess::start(command));
    server.wait_for_requests(3).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(server.heads()[2].starts_with("get /v1/feeds/f?after=7&wait=30 http/1.1\r\n"));
    assert_eq!(tail.interrupt().await.code, Some(0));
}

#[actix_web::test]
async fn a_tail_rejects_a_server_that_is_not_kalends() {
    let server = StaticServer::start();
    for (status, body, expected) in [
        (200, "<html>", "the server answers something else: is that a Kalends server?"),
        (404, "<html>", "the server answers 404 Not Found: is that the URL of a Kalends server?"),
        (301, "", "the server answers 301 Moved Permanently: name the URL that it redirects to"),
        (503, "", "cannot reach "),
    ] {
        server.answers(status, body);
        let mut command = kalends(&["feed", "tail", "f", "--url", &server.origin()]);
        command.env("KALENDS_FEED_TOKEN", "kf1.r.f.0.x");
        TailProcess::start(command).ended().await.failed(1, expected);
    }
}

#[actix_web::test]
async fn a_tail_that_may_restart_begins_again_where_deletions_are_forgotten() {
    let server = Server::start_with(&["--feed-sweep-s=1", "--feed-tombstones-keep-s=1"]);
    for words in [
        &["put", "f", "a", "1"][..],
        &["put", "f", "b", "2"],
        &["delete", "f", "a"],
        &["put", "f", "c", "3"],
    ] {
        server.run(&[&["feed"], words].concat()).await.succeeded();
    }
    let tail = async |more: &[&str]| {
        server.run(&[&["feed", "tail", "f", "--after=1"], more].concat()).await
    };
    until(AT_ONCE, "the deletion is forgotten", async || tail(&["--once"]).await.code == Some(1))
        .await;
    for more in [["--once"].as_slice(), &["--count=2"]] {
        let printed = tail(&[&["--restart-if-gone"], more].concat()).await.succeeded();
        // Forgetting deletions gives older keys new numbers.
        let states = printed.lines().filter_map(|line| Some(line.split_once(' ')?.1));
        assert_eq!(states.collect::<BTreeSet<_>>(), ["b = 2", "c = 3"].into(), "{printed}");
    }
}

#[actix_web::test]
async fn a_tail_over_http_that_may_restart_begins_again_once() {
    let server = StaticServer::start();
    server.answers(410, r#"{"errno": 318, "message": "the cursor is too old"}"#);
    let words = ["feed", "tail", "f", "--after=7", "--restart-if-gone", "--url", &server.origin()];
    let mut command = kalends(&words);
    command.env("KALENDS_FEED_TOKEN", "kf1.r.f.0.x");
    TailProcess::start(command).ended().await.failed(1, "starting over");
    let heads = server.heads();
    assert_eq!(heads.len(), 2, "{heads:?}");
    for (head, after) in heads.iter().zip([7, 0]) {
        assert!(head.starts_with(&format!("get /v1/feeds/f?after={after}&")), "{head}");
    }
}
