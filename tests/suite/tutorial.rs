//! The tutorial of the README: start the server, subscribe, push, and see the message.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{AT_ONCE, Program, Server, kalends, run, until};

#[actix_web::test]
async fn a_message_pushed_on_the_command_line_is_printed_by_the_subscriber() {
    let server = Server::start();
    let home = TempDir::new().unwrap();
    let subscription = home.path().join("sub.json");
    let file = subscription.to_str().unwrap();
    let url = server.socket_url();
    let listen = ["subscribe", url.as_str(), "--subscription", file, "--count", "3"];
    let listener = Program::start(kalends(&listen));
    exists(&subscription).await;

    let vapid_key = home.path().join("vapid.pem");
    let vapid_key = vapid_key.to_str().unwrap();
    for more in [
        ["--message", "hello"].as_slice(),
        &["--message", "héllo again", "--vapid-key", vapid_key, "--sub", "mailto:a@b.example"],
        &["--message", "hello of old", "--encoding", "aesgcm", "--urgency", "high"],
    ] {
        let push = [&["push", "--subscription", file], more].concat();
        let pushed = run(&push).await.succeeded();
        assert!(pushed.starts_with("201"), "{pushed}");
    }
    let listened = listener.ended().await.succeeded();
    for message in ["\nhello\n", "\nhéllo again\n", "\nhello of old\n"] {
        assert!(listened.contains(message), "{listened}");
    }
}

#[actix_web::test]
async fn a_subscriber_with_a_state_file_receives_missed_messages() {
    let mut server = Server::start();
    let home = TempDir::new().unwrap();
    let (subscription, state) = (home.path().join("sub.json"), home.path().join("agent.json"));
    let file = subscription.to_str().unwrap().to_owned();
    let url = server.socket_url();
    let listen = || {
        let state = state.to_str().unwrap();
        let arguments =
            ["subscribe", &url, "--state", state, "--subscription", &file, "--count", "1"];
        kalends(&arguments)
    };
    let push = async |message: &str| {
        let arguments =
            ["push", "--subscription", &file, "--message", message, "--ttl", "1h", "--json"];
        let printed = run(&arguments).await.succeeded();
        let answer: Value = serde_json::from_str(&printed).expect("it prints JSON");
        assert_eq!((&answer["status"], &answer["ttl"]), (&json!(201), &json!(3600)));
        assert!(answer["location"].as_str().is_some_and(|url| url.contains("/m/")), "{answer}");
    };
    let listener = Program::start(listen());
    exists(&subscription).await;
    push("while it listens").await;
    assert!(listener.ended().await.stdout.ends_with("\nwhile it listens\n"));

    push("while it is away").await;
    server.crash();
    assert!(Program::run(listen()).await.stdout.ends_with("\nwhile it is away\n"));
}

#[actix_web::test]
async fn a_push_that_waits_for_its_receipt_prints_whether_it_was_delivered() {
    let server = Server::start();
    let home = TempDir::new().unwrap();
    let subscription = home.path().join("sub.json");
    let file = subscription.to_str().unwrap();
    let url = server.socket_url();
    let listener =
        Program::start(kalends(&["subscribe", &url, "--subscription", file, "--count", "1"]));
    exists(&subscription).await;
    let push = async |more: &[&str]| {
        let words = ["push", "--subscription", file, "--message", "hello", "--json"];
        let printed = run(&[&words, more].concat()).await.succeeded();
        serde_json::from_str::<Value>(&printed).expect("it prints JSON")
    };
    let delivered = push(&["--wait", "1m"]).await;
    assert_eq!(delivered["receipt"], json!({"status": "delivered", "code": 100}));
    listener.ended().await.succeeded();
    assert_eq!(push(&["--wait", "1s"]).await["receipt"], json!({"status": "stored"}));
    assert_eq!(push(&["--wait", "1s", "--ttl", "0"]).await["receipt"], json!({"status": "none"}));
    assert!(push(&[]).await.get("receipt").is_none());
}

#[actix_web::test]
async fn kalends_without_a_command_serves_in_the_current_directory() {
    let home = TempDir::new().expect("a temporary directory can be made");
    let mut command = kalends::<&str>(&[]);
    // The default port may be in use on this machine.
    command.current_dir(home.path()).env("KALENDS_LISTEN", "127.0.0.1:0");
    let server = Program::start(command);
    let socket = home.path().join("kalends-data/admin.sock");
    until(AT_ONCE, "it serves commands", async || socket.exists()).await;
    server.terminate();
    let printed = server.ended().await.succeeded();
    assert!(printed.starts_with("Kalends is listening on http://127.0.0.1:"), "{printed}");
    assert!(printed.contains("dom.push.serverURL = ws://127.0.0.1:"), "{printed}");
    assert!(printed.contains("kalends subscribe ws://127.0.0.1:"), "{printed}");
}

#[actix_web::test]
async fn a_rejected_push_fails_with_the_reason() {
    let server = Server::start();
    let endpoint = format!("{}/wpush/{}", server.origin(), "A".repeat(64));
    let pushed = run(&["push", &endpoint, "--message", ""]).await;
    for reason in ["404", "errno 102"] {
        pushed.failed(1, reason);
    }
}

async fn exists(file: &Path) {
    let what = format!("{} is written", file.display());
    let is_whole = async || fs::read_to_string(file).is_ok_and(|text| text.trim().ends_with('}'));
    until(AT_ONCE, &what, is_whole).await;
}
