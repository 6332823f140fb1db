//! `kalends feed` and `kalends broadcast`, with and without a running server, on both storage
//! engines.

use serde_json::Value;
use state_machine::feed::FeedValue;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::AdminFixture;
use crate::harness::{AT_ONCE, ExitOutput, Launch, Program, Server, kalends, run, until, within};

/// Runs a command with this standard input, and returns how it ended.
async fn run_with_input(mut command: Command, input: &[u8]) -> ExitOutput {
    command.stdin(std::process::Stdio::piped());
    let mut process = command.spawn().expect("kalends can be started");
    let mut stdin = process.stdin.take().expect("standard input is a pipe");
    // A rejected input may not be read to its end.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    let output = within(AT_ONCE, "it ends", process.wait_with_output()).await;
    output.expect("a process can be waited for").into()
}

/// Waits until the feed has reached a number, and returns its updates as JSON.
async fn updates(fixture: &AdminFixture, feed: &str, head: u64) -> Vec<Value> {
    let mut updates = Vec::new();
    until(AT_ONCE, "all is published", async || {
        let printed = fixture.stdout_of(&format!("feed tail {feed} --once --json")).await;
        let update = |line| serde_json::from_str(line).expect("each line is an object");
        updates = printed.lines().map(update).collect();
        updates.last().is_some_and(|last: &Value| last["feed_sync_id"] == head)
    })
    .await;
    updates
}

#[actix_web::test]
async fn a_feed_is_written_and_read_with_and_without_a_running_server() {
    for mut fixture in AdminFixture::engines(&[]) {
        assert_eq!(fixture.stdout_of("feed list").await, "FEED  HEAD  KEYS\n");
        let (mut version, mut head) = (0, 0);
        for is_alive in [true, false] {
            if !is_alive {
                assert!(fixture.server.terminate().success());
            }
            let is_published_by_it = !is_alive || !fixture.is_embedded();
            for (words, output) in [
                ("feed put prices eur 1.08", "wrote eur of prices"),
                ("feed put prices eur -5", "wrote eur of prices"),
                ("feed republish prices eur", "eur of prices gets a new number"),
                ("feed delete prices eur", "deleted eur of prices"),
            ] {
                let printed = fixture.stdout_of(words).await;
                head += 1;
                let published = match is_published_by_it {
                    true => format!("published, the last number of prices is {head}"),
                    false => "the server publishes it".to_owned(),
                };
                let expected = format!("{output}, its version is {}\n{published}\n", version + 1);
                assert_eq!(printed, expected, "{words}");
                // The publication has a number of its own.
                version += 2;
                updates(&fixture, "prices", head).await;
            }
        }
        let updates = updates(&fixture, "prices", 8).await;
        assert_eq!(updates.len(), 1);
        assert_eq!((&updates[0]["deleted"], &updates[0]["version"]), (&true.into(), &16.into()));
        let printed = fixture.stdout_of("feed tail prices --once --after 3").await;
        assert_eq!(printed, "8 eur deleted\n");
        assert_eq!(fixture.stdout_of("feed tail prices --once --after 8").await, "");
        let listed = fixture.stdout_of("feed list --json").await;
        assert_eq!(listed, "{\"feed\":\"prices\",\"head\":8,\"keys\":1}\n");
        fixture.server.restart();
        assert_eq!(fixture.stdout_of("feed tail prices --once").await, "8 eur deleted\n");
    }
}

#[actix_web::test]
async fn broadcasts_are_set_and_listed() {
    for fixture in AdminFixture::engines(&[]) {
        assert_eq!(fixture.stdout_of("broadcast list").await, "");
        for words in ["a/b \"1\"", "c 7", "a/b \"2\"", "d x"] {
            fixture.stdout_of(&format!("broadcast put {words}")).await;
        }
        fixture.stdout_of("feed delete broadcasts d").await;
        until(AT_ONCE, "all is published", async || {
            fixture.stdout_of("broadcast list").await == "a/b = \"2\"\nc = 7\n"
        })
        .await;
        let json = fixture.stdout_of("broadcast list --json").await;
        assert_eq!(json.lines().nth(1), Some("{\"id\":\"c\",\"version\":\"7\"}"));
    }
}

#[actix_web::test]
async fn the_largest_value_is_stored_unchanged() {
    let most = FeedValue::BYTES_MAX;
    let mut fixture = AdminFixture::embedded(&[&format!("--feed-value-bytes-max={most}")]);
    // Each character needs six bytes in JSON.
    let value = "\u{1}".repeat(most);
    for (at, is_alive) in [true, false].into_iter().enumerate() {
        if !is_alive {
            assert!(fixture.server.terminate().success());
        }
        let mut put = fixture.command(&["feed", "put", "f", "k", "-"]);
        put.arg(format!("--feed-value-bytes-max={most}"));
        run_with_input(put, value.as_bytes()).await.succeeded();
        let updates = updates(&fixture, "f", at as u64 + 1).await;
        assert_eq!(updates[0]["value"].as_str().unwrap().len(), most);
        assert_eq!(updates[0]["value"], value);
    }
    for (value, reason) in [
        (&b"\xff"[..], "a value is text in UTF-8"),
        (&vec![b'x'; most + 1], "a value has at most 262144 bytes"),
    ] {
        let put = fixture.command(&["feed", "put", "f", "k"]);
        run_with_input(put, value).await.failed(1, reason);
    }
    fixture.server.restart();
}

#[actix_web::test]
async fn invalid_feed_writes_are_rejected_with_a_remedy() {
    let fixture = AdminFixture::embedded(&["--feed-keys-max=2", "--feed-value-bytes-max=3"]);
    for words in ["feed put f a 1", "feed put f b 123"] {
        fixture.stdout_of(words).await;
    }
    updates(&fixture, "f", 2).await;
    let too_many = "f has 2 keys, with those that were deleted, and takes no other (feed_keys_max)";
    let future = "the cursor 3 is from the future, the last number of f is 2";
    for (words, expected) in [
        ("feed put f a 1234", "the value has 4 bytes, and f takes 3 (feed_value_bytes_max)"),
        ("feed put f c 1", too_many),
        ("feed delete f c", "there is no c in f: nothing to delete"),
        ("feed delete g a", "there is no a in g: nothing to delete"),
        ("feed republish f c", "c of f was never written: nothing to publish again"),
        ("feed tail g --once", "there is no feed g: it begins with its first write"),
        ("feed tail g", "there is no feed g: it begins with its first write"),
        ("feed tail f --after 3 --once", future),
        ("feed tail f --after 3", future),
        ("feed put f a 1 --url http://127.0.0.1:1", "set KALENDS_FEED_TOKEN to a token"),
        ("feed tail f --url http://127.0.0.1:1", "set KALENDS_FEED_TOKEN to a token"),
    ] {
        fixture.refuses(words, expected).await;
    }
    let wrong = [
        "feed",
        "feed mend f",
        "feed put F a 1",
        "feed put f",
        "feed tail f --count 0",
        "feed tail f --after x",
        "feed token f",
        "feed token f --read --days 0",
        "feed tail f --url http://127.0.0.1:1/v1/feeds",
        "feed list --log-level loud",
        "broadcast",
        "broadcast put a/b",
        "broadcast put a/b 1 --url http://127.0.0.1:1",
    ];
    fixture.rejects(&wrong).await;
}

#[actix_web::test]
async fn a_token_without_keys_is_rejected_with_a_remedy() {
    let home = TempDir::new().unwrap();
    let mut command = kalends(&["feed", "token", "f", "--read", "--store=dynamodb"]);
    command.arg("--data-dir").arg(home.path());
    let ended = Program::run(command).await;
    for expected in ["keys.toml does not exist", "start one, which makes it", "copy the keys.toml"]
    {
        ended.failed(1, expected);
    }

    let fixture = AdminFixture::embedded(&[]);
    std::fs::remove_file(fixture.server.data_dir().join("keys.toml")).unwrap();
    let why = fixture.stderr_of("feed token f --read").await;
    assert!(why.ends_with("keys.toml does not exist: restore it from a backup"), "{why}");
}

#[actix_web::test]
async fn a_token_has_the_epoch_of_its_server() {
    let fixture = AdminFixture::embedded(&["--feed-tokens-epoch=2"]);
    fixture.stdout_of("feed put f k v").await;
    for (words, code) in [("f --read", 1), ("f --read --feed-tokens-epoch=2", 0)] {
        let token = fixture.token(words).await;
        let ended = fixture.run_at_url(&token, "feed tail f --once").await;
        assert_eq!(ended.code, Some(code), "{words}: {ended:?}");
    }
}

#[actix_web::test]
async fn help_contains_examples() {
    let of_feed = ["", " put", " delete", " republish", " list", " tail", " token"];
    let lines = of_feed.map(|word| format!("feed{word}"));
    let of_broadcast = ["", " put", " list"].map(|word| format!("broadcast{word}"));
    for line in lines.iter().chain(&of_broadcast) {
        let words: Vec<_> = line.split(' ').chain(["--help"]).collect();
        let help = run(&words).await.succeeded();
        let examples = help.split("Examples:\n").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("  kalends {line}")), "{line}: {help}");
    }
}

#[actix_web::test]
async fn a_feed_is_written_and_read_over_http() {
    let fixture = AdminFixture::embedded(&[]);
    let both = fixture.token("prices --read --write --days 1").await;
    let run = async |words: &str| fixture.run_at_url(&both, words).await;
    for (words, output) in [
        ("feed put prices a/../b 1", "wrote a/../b of prices, its version is 1\n"),
        ("feed put prices .. 2", "wrote .. of prices, its version is 1\n"),
        ("feed put prices c ", "wrote c of prices, its version is 1\n"),
        ("feed delete prices c", "deleted c of prices, its version is"),
        ("feed republish prices a/../b", "a/../b of prices gets a new number, its version is"),
    ] {
        let ended = run(words).await;
        assert!(ended.code == Some(0) && ended.stdout.starts_with(output), "{words}: {ended:?}");
    }
    let mut printed = String::new();
    until(AT_ONCE, "all is published", async || {
        printed = run("feed tail prices --once").await.stdout;
        printed.contains("c deleted")
            && printed.contains("a/../b = 1")
            && printed.contains(".. = 2")
    })
    .await;
    assert_eq!(printed, fixture.stdout_of("feed tail prices --once").await);
    let json = run("feed tail prices --once --json").await.stdout;
    assert_eq!(json, fixture.stdout_of("feed tail prices --once --json").await);
}

#[actix_web::test]
async fn an_action_outside_a_tokens_scope_is_rejected_with_the_reason() {
    let fixture = AdminFixture::embedded(&[]);
    let (read, write) = (fixture.token("f --read").await, fixture.token("f --write").await);
    fixture.run_at_url(&write, "feed put f k v").await.succeeded();
    for (token, words, expected) in [
        (&*read, "feed put f k v", "403 Forbidden: this token does not have the scope w"),
        (&write, "feed tail f --once", "403 Forbidden: this token does not have the scope r"),
        (&read, "feed tail g", "403 Forbidden: this token is for another feed"),
        ("nonsense", "feed tail f", "401 Unauthorized: this token is not one of this server's"),
        (&read, "feed tail f --after 99", "the cursor is from the future"),
    ] {
        let ended = fixture.run_at_url(token, words).await;
        println!("{words}");
        ended.failed(1, expected);
        assert!(!ended.stderr.contains(token), "{ended:?}");
    }
    let g = fixture.token("g --read").await;
    let no_feed = "404 Not Found: there is no such feed";
    fixture.run_at_url(&g, "feed tail g").await.failed(1, no_feed);
    let mut nowhere = kalends(&["feed", "tail", "f", "--url", "http://127.0.0.1:1"]);
    nowhere.env("KALENDS_FEED_TOKEN", &read);
    Program::run(nowhere).await.failed(1, "cannot reach http://127.0.0.1:1");
}

#[actix_web::test]
async fn a_server_starts_with_a_token_in_its_environment() {
    let variables = vec![("KALENDS_FEED_TOKEN", "kf1.r.f.0.x".to_owned())];
    drop(Server::launch(Launch { variables, ..Launch::default() }));
}
