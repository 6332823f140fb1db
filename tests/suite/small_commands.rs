//! The version, the check of the settings, and commands whose output is not read to its end.

use std::fs;
use std::io::{Read, pipe};
use std::process::Stdio;

use tempfile::TempDir;

use crate::harness::{AT_ONCE, Program, Sender, Server, kalends, run};

#[actix_web::test]
async fn a_version_has_its_commit_and_the_day_of_that() {
    let server = Server::start();
    let url = format!("{}/__version__", server.origin());
    let version = Sender::new().get(&url).await.json();
    let field = |name: &str| version[name].as_str().expect("it is a text").to_owned();
    let (number, commit, date) = (field("version"), field("commit"), field("date"));
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    // The sources of a release archive have no history.
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_date = date.len() == 10 && date.split('-').all(|part| part.parse::<u16>().is_ok());
    let is_unknown = (&*commit, &*date) == ("unknown", "unknown");
    assert!((is_commit && is_date) || is_unknown, "{commit} {date}");
    let printed = run(&["--version"]).await.succeeded();
    assert_eq!(printed, format!("kalends {number} ({commit}, {date})\n"));
}

#[actix_web::test]
async fn settings_are_checked_without_a_start() {
    let folder = TempDir::new().expect("a temporary directory can be made");
    let file = folder.path().join("kalends.toml");
    let path = file.to_str().expect("the path is text");
    let check = async |arguments: &[&str]| {
        run(&[&["check-config", "--config", path], arguments].concat()).await
    };
    fs::write(&file, "listen = \"127.0.0.1:1\"\n").expect("a file can be written");
    let valid = check(&[]).await.succeeded();
    assert_eq!(valid, format!("the settings are valid: {path}\n"));
    check(&["--ttl-max-s=x"]).await.failed(2, "ttl_max_s = `x` (flag --ttl-max-s)");
    check(&["--role=connection"]).await.failed(2, "store");
    check(&["--listen=unix:/run/a.sock"]).await.failed(2, "public_url is not set");
    let behind_proxy = ["--listen=unix:/run/a.sock", "--public-url=https://push.example.net"];
    check(&behind_proxy).await.succeeded();
    fs::write(&file, "listen = 1\nlisten_adress = \"x\"\n").expect("a file can be written");
    let wrong = check(&[]).await;
    assert!(wrong.stderr.contains("`listen_adress` is not a setting"), "{}", wrong.stderr);
    wrong.failed(2, "listen = `1`");
    assert!(fs::read_dir(folder.path()).expect("it is there").count() == 1, "nothing was made");

    // The environment names the file, and an empty variable none.
    let mut named = kalends(&["check-config"]);
    named.env("KALENDS_CONFIG", path);
    Program::run(named).await.failed(2, "listen = `1`");
    let none = run(&["check-config"]).await.succeeded();
    assert_eq!(none, "the settings are valid: no file, environment and flags only\n");
}

#[actix_web::test]
async fn an_output_whose_reader_is_gone_ends_quietly() {
    for arguments in [
        &["completions", "bash"][..],
        &["dev", "states"],
        &["dev", "replay", "fixtures/sessions/acks_in_a_group.session", "--trace"],
        &["dev", "view", "fixtures/sessions/acks_in_a_group.session"],
        &["serve", "--help"],
    ] {
        let (mut reader, writer) = pipe().expect("a pipe can be made");
        let mut command = kalends(arguments);
        command.current_dir(env!("CARGO_MANIFEST_DIR")).stdout(Stdio::from(writer));
        let ended = tokio::spawn(async move { Program::run(command).await });
        // As `head -c 1`.
        let read = tokio::task::spawn_blocking(move || reader.read(&mut [0]).map(|_| drop(reader)));
        tokio::time::timeout(AT_ONCE, read).await.expect("it writes").unwrap().unwrap();
        let ended = ended.await.expect("it runs");
        assert_eq!(ended.stderr, "", "{arguments:?}");
        ended.succeeded();
    }
}
