//! `kalends feed tail`, which goes on from where it was, whatever is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use awc::http::Method;
use state_machine::feed::FeedName;
use tempfile::TempDir;

use super::Place;
use super::tailing::Tailing;
use crate::harness::{AT_ONCE, Program, Sender, Server, kalends, until};
use crate::importer::Fake;

/// A cursor file in a directory of its own.
struct CursorFile(TempDir);

impl CursorFile {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory can be made"))
    }

    fn path(&self) -> String {
        self.0.path().join("cursor").display().to_string()
    }

    /// The files in its directory.
    fn names(&self) -> Vec<String> {
        let found = fs::read_dir(self.0.path()).expect("the directory is there");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("it can be read").file_name();
        found.map(|entry| name(entry).display().to_string()).collect()
    }

    /// The number in it.
    fn cursor(&self) -> Option<u64> {
        let text = fs::read_to_string(self.path()).ok()?;
        let contents: serde_json::Value =
            serde_json::from_str(&text).expect("a cursor file is whole at any time");
        contents["cursor"].as_u64()
    }

    /// Waits until it has this number.
    async fn has(&self, number: u64) {
        let has = async || self.cursor() == Some(number);
        until(AT_ONCE, "the cursor is kept", has).await;
    }
}

#[actix_web::test]
async fn updates_are_printed_as_they_come_and_an_interrupt_ends_it_well() {
    for place in [Place::embedded(&[]), Place::dynamo(&[])] {
        place.done("feed put f a 1").await;
        let (mut human, mut json) = (Tailing::at(&place, "f"), Tailing::at(&place, "f --json"));
        assert_eq!(human.line().await, "1 a = 1");
        for (words, printed) in [
            ("feed put f a/b x=y", "2 a/b = x=y"),
            ("feed delete f a", "3 a deleted"),
            ("feed republish f a/b", "4 a/b = x=y"),
        ] {
            place.done(words).await;
            assert_eq!(human.line().await, printed);
        }
        let first = r#"{"feed_sync_id":1,"key":"a","version":2,"value":"1"}"#;
        let third = r#"{"feed_sync_id":3,"key":"a","version":4,"deleted":true}"#;
        let lines = json.take(4).await;
        assert_eq!((&*lines[0], &*lines[2]), (first, third));
        for tail in [human, json] {
            let ended = tail.interrupt().await;
            assert_eq!((ended.code, &*ended.stdout), (Some(0), ""), "{ended:?}");
        }
    }
}

#[actix_web::test]
async fn a_tail_ends_after_as_many_as_were_wanted() {
    let place = Place::embedded(&[]);
    for key in ["a", "b", "c"] {
        place.done(&format!("feed put f {key} 1")).await;
    }
    let file = CursorFile::new();
    let words = format!("f --count 2 --cursor-file {}", file.path());
    let ended = Tailing::at(&place, &words).ended().await;
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "1 a = 1\n2 b = 1\n"), "{ended:?}");
    assert_eq!(ended.stderr, "kalends: 2 updates of f, up to number 2 of 3\n");
    assert_eq!(file.cursor(), Some(2));

    let mut rest = Tailing::at(&place, &words);
    assert_eq!(rest.line().await, "3 c = 1");
    place.done("feed put f d 1").await;
    let ended = rest.ended().await;
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "4 d = 1\n"), "{ended:?}");
}

#[actix_web::test]
async fn a_killed_tail_goes_on_behind_what_it_had_printed() {
    for place in [Place::embedded(&[]), Place::dynamo(&[])] {
        let file = CursorFile::new();
        let words = format!("f --cursor-file {}", file.path());
        place.done("feed put f k-0 x").await;
        let mut seen = Vec::new();
        for round in 1..6 {
            let mut tail = Tailing::at(&place, &words);
            place.done(&format!("feed put f k-{round} x")).await;
            // All rounds but the first find the last update of the round before already printed, or print it again.
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
async fn whenever_a_tail_is_killed_nothing_is_left_out() {
    const KEYS: u64 = 300;
    let place = Place::embedded(&[]);
    fill(&place, KEYS).await;
    for is_at_url in [false, true] {
        let (file, token) = (CursorFile::new(), place.done("feed token f --read").await);
        let words = format!("f --cursor-file {}", file.path());
        let (mut seen, mut runs) = (BTreeSet::new(), 0);
        while !seen.contains(&KEYS) {
            let mut tail = match is_at_url {
                true => tail_at(&place.server, token.trim_end(), &words),
                false => Tailing::at(&place, &words),
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
            assert!(runs < 1000, "it does not come on: {:?}", file.cursor());
        }
        assert!(seen.len() as u64 == KEYS && runs > 1, "{runs} runs saw {seen:?}");
        place.done(&format!("feed tail {words} --once")).await;
        assert_eq!(file.names(), ["cursor"], "what the killed ones left is gone");
    }
}

/// Writes so many keys, of which a few are handed on at once.
async fn fill(place: &Place, keys: u64) {
    let token = place.done("feed token f --write").await;
    let (sender, value) = (Sender::new(), "x".repeat(10_000));
    for key in 0..keys {
        let url = format!("{}/v1/feeds/f/{key}", place.server.origin());
        let put = sender.request(Method::PUT, &url);
        let put = put.header("authorization", &format!("Bearer {}", token.trim_end()));
        let answer = put.raw_body(&*value).send().await;
        assert_eq!(answer.status, 201, "{answer}");
    }
    let head = format!("\"head\":{keys},");
    let is_published = async || place.done("feed list --json").await.contains(&head);
    until(AT_ONCE, "all is published", is_published).await;
}

#[actix_web::test]
async fn a_tail_outlives_its_server() {
    let mut place = Place::embedded(&[]);
    let file = CursorFile::new();
    place.done("feed put f a 1").await;
    let mut tail = Tailing::at(&place, &format!("f --cursor-file {}", file.path()));
    assert_eq!(tail.line().await, "1 a = 1");
    file.has(1).await;

    place.server.kill();
    // Beside the tail, which does not keep the store: neither this nor the server is kept out.
    place.done("feed put f b 2").await;
    place.server.restart();
    place.done("feed put f c 3").await;
    assert_eq!(tail.take(2).await, ["2 b = 2", "3 c = 3"]);

    assert!(place.server.terminate().success());
    place.server.restart();
    place.done("feed put f a 4").await;
    assert_eq!(tail.line().await, "4 a = 4");
    file.has(4).await;
    let ended = tail.interrupt().await;
    assert_eq!((ended.code, &*ended.stdout), (Some(0), ""), "{ended:?}");
    assert!(ended.stderr.contains("the server is gone, waiting for it"), "{ended:?}");
    assert!(ended.stderr.ends_with("4 updates of f, up to its number 4\n"), "{ended:?}");
}

#[actix_web::test]
async fn a_tail_without_a_server_prints_what_is_there_and_waits_for_one() {
    let mut place = Place::embedded(&[]);
    place.done("feed put f a 1").await;
    assert!(place.server.terminate().success());
    let mut tail = Tailing::at(&place, "f");
    assert_eq!(tail.line().await, "1 a = 1");
    place.done("feed put f b 2").await;
    place.server.restart();
    assert_eq!(tail.line().await, "2 b = 2");
    let ended = tail.interrupt().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.starts_with("kalends: no server is running here: "), "{ended:?}");
}

#[actix_web::test]
async fn broadcasts_are_always_there() {
    for mut place in [Place::embedded(&[]), Place::dynamo(&[])] {
        let once = "feed tail broadcasts --once";
        assert_eq!(place.done(once).await, "");
        let why = place.refused(&format!("{once} --after 5")).await;
        assert!(why.contains("from the future, broadcasts has come to number 0"), "{why}");
        let why = place.refused("feed tail broadcasts --after 5").await;
        assert!(why.contains("from the future, broadcasts has come to number 0"), "{why}");
        let mut tail = Tailing::at(&place, "broadcasts");
        place.done("broadcast put a/b 1").await;
        assert_eq!(tail.line().await, "1 a/b = 1");
        place.done("broadcast put a/b 2").await;
        assert_eq!(tail.line().await, "2 a/b = 2");
        assert_eq!(tail.interrupt().await.code, Some(0));
        assert!(place.server.terminate().success());
        assert_eq!(place.done(once).await, "2 a/b = 2\n");
    }
}

#[actix_web::test]
async fn broadcasts_are_there_where_no_server_runs() {
    for mut place in [Place::embedded(&[]), Place::dynamo(&[])] {
        assert!(place.server.terminate().success());
        assert_eq!(place.done("feed tail broadcasts --once").await, "");
        let mut tail = Tailing::at(&place, "broadcasts");
        if place.is_embedded() {
            // Until it says so it has the store.
            let said = tail.complaint().await;
            assert!(said.starts_with("kalends: no server is running here: "), "{said}");
        }
        place.server.restart();
        place.done("broadcast put a/b 1").await;
        assert_eq!(tail.line().await, "1 a/b = 1");
    }
}

#[actix_web::test]
async fn a_tail_ends_when_nobody_reads_it_any_more() {
    for place in [Place::embedded(&[]), Place::dynamo(&[])] {
        place.done("feed put f a 1").await;
        let token = place.done("feed token f --read").await;
        for mut tail in [Tailing::at(&place, "f"), tail_at(&place.server, token.trim_end(), "f")] {
            assert_eq!(tail.line().await, "1 a = 1");
            let ended = tail.unread().await;
            assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        }
    }
}

#[actix_web::test]
async fn a_cursor_file_that_cannot_be_meant_is_refused_with_what_to_do() {
    let place = Place::embedded(&[]);
    for feed in ["f", "g"] {
        place.done(&format!("feed put {feed} a 1")).await;
    }
    let file = CursorFile::new();
    let (f, g) = (FeedName::parse("f").unwrap(), FeedName::parse("g").unwrap());
    let tail = |feed: &FeedName| format!("feed tail {feed} --once --cursor-file {}", file.path());
    until(AT_ONCE, "it is published", async || place.done(&tail(&f)).await == "1 a = 1\n").await;
    let kept = fs::read_to_string(file.path()).unwrap();
    assert_eq!(kept, "{\"feed\":\"f\",\"cursor\":1}\n");
    assert!(place.refused(&tail(&g)).await.contains("is the cursor of the feed f, not of g"));
    for (contents, expected) in [
        ("", "is not a cursor file: name another one, or remove it"),
        ("1", "is not a cursor file"),
        (&kept.replace('1', "-1"), "is not a cursor file"),
        (&kept.replace('1', "7"), "the cursor 7 is from the future, f has come to number 1"),
    ] {
        fs::write(file.path(), contents).unwrap();
        for words in [tail(&f), tail(&f).replace(" --once", "")] {
            let ended = place.run(&words).await;
            assert_eq!(ended.code, Some(1), "{contents}: {ended:?}");
            let is_said = ended.stderr.contains(expected) && ended.stderr.lines().count() == 1;
            assert!(is_said, "{contents}: {ended:?}");
        }
        assert_eq!(fs::read_to_string(file.path()).unwrap(), contents, "it is left as it was");
    }
    fs::remove_file(file.path()).unwrap();
    let absent = FeedName::parse("absent").unwrap();
    for words in [tail(&absent), tail(&absent).replace(" --once", "")] {
        let ended = place.run(&words).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.starts_with("kalends: there is no feed absent"), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
    let nowhere = "feed tail f --cursor-file /nowhere/at/all";
    assert!(place.refused(nowhere).await.contains("cannot keep the cursor in /nowhere/at/all"));
}

#[actix_web::test]
async fn a_second_tail_with_a_cursor_file_is_refused_until_the_first_is_killed() {
    let place = Place::embedded(&[]);
    let (file, token) = (CursorFile::new(), place.done("feed token f --read").await);
    let words = format!("f --cursor-file {}", file.path());
    let at_url = || tail_at(&place.server, token.trim_end(), &words);
    for (number, key) in [(1, "a"), (2, "b")] {
        place.done(&format!("feed put f {key} x")).await;
        let mut first = if number == 1 { Tailing::at(&place, &words) } else { at_url() };
        assert_eq!(first.line().await, format!("{number} {key} = x"));
        file.has(number).await;
        for second in [Tailing::at(&place, &words), at_url()] {
            let ended = second.ended().await;
            let is_said = ended.stderr.starts_with("kalends: another tail keeps its cursor in ");
            assert!(is_said && ended.code == Some(1) && ended.stdout.is_empty(), "{ended:?}");
        }
        first.kill().await;
    }
    assert_eq!(place.done(&format!("feed tail {words} --once")).await, "");
    assert_eq!(file.names(), ["cursor"]);
}

#[actix_web::test]
async fn a_cursor_file_may_be_a_link_but_no_pipe_or_directory() {
    let place = Place::embedded(&[]);
    place.done("feed put f a 1").await;
    let file = CursorFile::new();
    let tail = |path: &str| format!("feed tail f --once --cursor-file {path}");
    let (pipe, link) = (file.path() + "-pipe", file.path() + "-link");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo can be run").success());
    for wrong in [&*pipe, &file.0.path().display().to_string()] {
        let why = place.refused(&tail(wrong)).await;
        assert!(why.contains("is not a regular file: name one, or a name that is free"), "{why}");
    }
    symlink("cursor", &link).unwrap();
    until(AT_ONCE, "it is published", async || place.done(&tail(&link)).await == "1 a = 1\n").await;
    assert_eq!(file.cursor(), Some(1));
    assert_eq!(place.done(&tail(&link)).await, "");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "the link is still one");
}

#[actix_web::test]
async fn a_key_over_http_is_the_key_that_was_named() {
    const KEYS: [&str; 12] =
        ["a", "a#b", "a?b=c", "a%23b", "a%", "a b", "a+b", "ä/€", "..", "./a", "a;b&c", "a\\b\"<>"];
    let place = Place::embedded(&[]);
    let token = place.done("feed token f --read --write").await;
    let at_url = async |words: &[&str]| {
        let mut command = kalends(&[&["feed"], words].concat());
        command.arg("--url").arg(place.server.origin());
        command.env("KALENDS_FEED_TOKEN", token.trim_end());
        let ended = Program::run(command).await;
        assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
    };
    for key in KEYS {
        at_url(&["put", "f", key, &format!("of {key}")]).await;
        at_url(&["republish", "f", key]).await;
    }
    at_url(&["delete", "f", "a#b"]).await;
    let held = async || {
        let lines = place.done("feed tail f --once --json").await;
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
fn tail_at(server: &Server, token: &str, words: &str) -> Tailing {
    let words: Vec<_> = ["feed", "tail"].into_iter().chain(words.split(' ')).collect();
    let mut command = kalends(&words);
    command.arg("--url").arg(server.origin()).env("KALENDS_FEED_TOKEN", token);
    Tailing::start(command)
}

#[actix_web::test]
async fn a_tail_over_http_goes_on_whatever_is_killed() {
    let mut place = Place::embedded(&[]);
    let token = place.done("feed token f --read").await.trim_end().to_owned();
    let file = CursorFile::new();
    let words = format!("f --cursor-file {}", file.path());
    place.done("feed put f a 1").await;
    let mut tail = tail_at(&place.server, &token, &words);
    assert_eq!(tail.line().await, "1 a = 1");
    place.done("feed put f b 2").await;
    assert_eq!(tail.line().await, "2 b = 2");

    place.server.kill();
    place.server.restart();
    place.done("feed put f c 3").await;
    assert_eq!(tail.line().await, "3 c = 3");
    file.has(3).await;
    tail.kill().await;

    place.done("feed put f d 4").await;
    let mut tail = tail_at(&place.server, &token, &words);
    assert_eq!(tail.line().await, "4 d = 4");
    file.has(4).await;
    let ended = tail.interrupt().await;
    assert_eq!((ended.code, &*ended.stdout), (Some(0), ""), "{ended:?}");

    let counted = tail_at(&place.server, &token, "f --count 3 --after 1").ended().await;
    assert_eq!((counted.code, &*counted.stdout), (Some(0), "2 b = 2\n3 c = 3\n4 d = 4\n"));
}

#[actix_web::test]
async fn a_server_that_lets_nobody_wait_is_not_asked_without_a_pause() {
    let fake = Fake::start();
    fake.answers(200, r#"{"updates": [], "cursor": 7, "head": 7}"#);
    let mut command = kalends(&["feed", "tail", "f", "--after=7", "--url", &fake.origin()]);
    command.env("KALENDS_FEED_TOKEN", "kf1.r.f.0.x");
    let (began, tail) = (Instant::now(), Tailing::start(command));
    fake.is_asked(3).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(fake.heads()[2].starts_with("get /v1/feeds/f?after=7&wait=30 http/1.1\r\n"));
    assert_eq!(tail.interrupt().await.code, Some(0));
}

#[actix_web::test]
async fn what_is_no_kalends_server_is_told_from_one() {
    let fake = Fake::start();
    for (status, body, expected) in [
        (200, "<html>", "the server answers something else: is that a Kalends server?"),
        (404, "<html>", "the server answers 404 Not Found: is that the URL of a Kalends server?"),
        (301, "", "the server answers 301 Moved Permanently: name the URL that it redirects to"),
        (503, "", "cannot reach "),
    ] {
        fake.answers(status, body);
        let mut command = kalends(&["feed", "tail", "f", "--url", &fake.origin()]);
        command.env("KALENDS_FEED_TOKEN", "kf1.r.f.0.x");
        let ended = Tailing::start(command).ended().await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(expected), "{ended:?}");
    }
}
