//! `kalends serve --ephemeral`: a push server for the tests of others.

mod clock;
mod samples;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{AT_ONCE, Sender, child, run, signal, until};

const KALENDS: &str = env!("CARGO_BIN_EXE_kalends");

/// A running server, which is killed when this is dropped.
struct Ephemeral {
    /// The server, or a program that has started it.
    process: Child,
    stdout: BufReader<ChildStdout>,
    line: Value,
}

fn serve(temp: &Path, arguments: &[&str]) -> Command {
    let mut command = child(KALENDS);
    command.args(["serve", "--ephemeral"]).args(arguments).env("TMPDIR", temp);
    command
}

/// Starts a server, whose temporary directory is `temp` if it has no other.
fn start(temp: &Path, arguments: &[&str]) -> Ephemeral {
    Ephemeral::launch(serve(temp, arguments))
}

impl Ephemeral {
    fn launch(mut command: Command) -> Self {
        Self::spawn(&mut command).served()
    }

    /// Does not wait for the line.
    fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("it can be started");
        let stdout = BufReader::new(process.stdout.take().expect("it is a pipe"));
        Self { process, stdout, line: Value::Null }
    }

    fn served(mut self) -> Self {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it prints text");
        self.line = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no line: {line:?}"));
        self
    }

    fn text(&self, field: &str) -> &str {
        self.line[field].as_str().unwrap_or_else(|| panic!("no {field}: {}", self.line))
    }

    fn directory(&self) -> PathBuf {
        self.text("directory").into()
    }

    /// Waits for the end. Returns what was printed behind the line, and the log.
    fn ended(&mut self) -> (String, String) {
        let (mut printed, mut logged) = (String::new(), String::new());
        self.stdout.read_to_string(&mut printed).expect("it prints text");
        let stderr = self.process.stderr.as_mut().expect("it is a pipe");
        stderr.read_to_string(&mut logged).expect("it logs text");
        self.process.wait().expect("a process can be waited for");
        (printed, logged)
    }
}

impl Drop for Ephemeral {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn temp() -> TempDir {
    TempDir::new().expect("a temporary directory can be made")
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).expect("it is there").count()
}

#[actix_web::test]
async fn it_prints_one_line_with_what_a_test_needs_and_is_silent_otherwise() {
    let temp = temp();
    let mut server = start(temp.path(), &[]);
    let address = server.text("http").trim_start_matches("http://").to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    assert_eq!(server.text("ws"), format!("ws://{address}/"));
    assert_eq!(server.text("clock"), format!("http://{address}/dev/clock"));
    assert_eq!(server.line["pid"], server.process.id());
    let directory = server.directory();
    let mode = fs::metadata(&directory).expect("it is there").permissions().mode();
    assert_eq!((directory.parent(), mode & 0o777), (Some(temp.path()), 0o700));
    assert!(Path::new(server.text("data_dir")).starts_with(&directory));

    let sender = Sender::new();
    let health = format!("{}/health", server.text("http"));
    // The operator's page asks for a link.
    for (url, status) in
        [(&*health, 200), (server.text("metrics"), 200), (server.text("admin"), 401)]
    {
        assert_eq!(sender.get(url).await.status, status, "{url}");
    }
    let key = run(&["keys", "vapid", server.text("vapid_key_file")]).await.succeeded();
    assert_eq!(key.trim(), server.text("vapid_public_key"));
    signal(server.process.id(), "TERM");
    assert_eq!(server.ended(), (String::new(), String::new()));
}

#[actix_web::test]
async fn a_body_that_no_user_agent_could_decrypt_is_refused() {
    let temp = temp();
    let server = start(temp.path(), &[]);
    let file = temp.path().join("sub.json");
    let mut agent = child(KALENDS);
    agent.args(["subscribe", server.text("ws"), "--json", "--subscription"]).arg(&file);
    let mut agent = Ephemeral::launch(agent);
    until(AT_ONCE, "it is subscribed", async || file.exists()).await;
    let subscription = fs::read(&file).expect("it is there");
    let subscription: Value = serde_json::from_slice(&subscription).expect("it is JSON");
    let endpoint = subscription["endpoint"].as_str().expect("it has an endpoint");
    let refused = Sender::new().post(endpoint).ttl(60).body("hello").send().await;
    refused.assert_refused("5 bytes", (400, 110), "aes128gcm");
    // The longest message of docs/senders.md, and one more byte.
    let push = async |bytes: usize| {
        let text = "x".repeat(bytes);
        run(&["push", "--subscription", file.to_str().expect("text"), "-m", &text]).await
    };
    assert!(push(3993).await.succeeded().starts_with("201"));
    push(3994).await.failed(1, "413");
    let message = loop {
        agent = agent.served();
        if agent.line["event"] == "message" {
            break agent.text("text");
        }
    };
    assert_eq!(message.len(), 3993);
}

#[test]
fn its_directory_goes_with_it_at_each_signal() {
    let temp = temp();
    for name in ["TERM", "INT", "HUP"] {
        let mut server = start(temp.path(), &[]);
        assert_eq!(entries(temp.path()), 1);
        signal(server.process.id(), name);
        server.ended();
        assert_eq!(entries(temp.path()), 0, "{name}");
    }
}

#[test]
fn it_ends_with_the_program_that_started_it_also_if_that_is_killed() {
    let temp = temp();
    for name in ["TERM", "KILL"] {
        let mut shell = child("sh");
        // The shell waits for the server, and is killed alone.
        let script = "\"$0\" serve --ephemeral & wait";
        shell.args(["-c", script, KALENDS]).env("TMPDIR", temp.path());
        let mut shell = Ephemeral::launch(shell);
        assert!(shell.directory().exists());
        assert_ne!(shell.line["pid"], shell.process.id());
        signal(shell.process.id(), name);
        // The pipes end with the server.
        shell.ended();
        assert_eq!(entries(temp.path()), 0, "{name}");
    }
}

#[test]
fn the_directory_of_a_killed_one_is_removed_by_the_next_and_that_of_a_running_one_is_not() {
    let temp = temp();
    let running = start(temp.path(), &[]);
    let mut killed = start(temp.path(), &[]);
    signal(killed.process.id(), "KILL");
    killed.ended();
    assert!(killed.directory().exists());
    let _next = start(temp.path(), &[]);
    assert!(!killed.directory().exists());
    assert!(running.directory().join("data/router.db").exists());
}

#[actix_web::test]
async fn twenty_run_at_once() {
    let temp = temp();
    let started: Vec<_> = (0..20).map(|_| Ephemeral::spawn(&mut serve(temp.path(), &[]))).collect();
    let mut servers: Vec<_> = started.into_iter().map(Ephemeral::served).collect();
    assert_eq!(entries(temp.path()), 20);
    for server in &servers {
        let health = Sender::new().get(&format!("{}/health", server.text("http"))).await;
        assert_eq!(health.status, 200, "{health}");
    }
    servers.iter().for_each(|server| signal(server.process.id(), "TERM"));
    for server in &mut servers {
        assert_eq!(server.ended(), (String::new(), String::new()));
    }
    assert_eq!(entries(temp.path()), 0);
}

#[actix_web::test]
async fn the_settings_of_a_real_server_are_ignored_and_flags_are_not() {
    let temp = temp();
    let (config, real) = (temp.path().join("kalends.toml"), temp.path().join("real"));
    fs::write(&config, "listen = \"127.0.0.1:1\"\naccess = \"token\"\n").expect("it is writable");
    let mut command = serve(temp.path(), &["--ttl-max-s", "60", "--log-level", "info"]);
    command.env("KALENDS_CONFIG", &config).env("KALENDS_DATA_DIR", &real);
    command.env("KALENDS_BACKUP_DIR", "/nowhere").env("KALENDS_STORE", "postgresql");
    command.env("KALENDS_LISTEN", "127.0.0.1:1").env("KALENDS_METRICS_LISTEN", "127.0.0.1:1");
    command.env("KALENDS_NO_SETTING", "x");
    let mut server = Ephemeral::launch(command);
    let (url, sender) = (server.text("http").to_owned(), Sender::new());
    assert_eq!(sender.get(&format!("{url}/health")).await.status, 200);
    signal(server.process.id(), "TERM");
    let (_, log) = server.ended();
    assert!(log.contains("\"listening\"") && !real.exists(), "{log}");
}

#[actix_web::test]
async fn a_contradiction_is_one_clear_error() {
    for words in [
        ["--data-dir", "/tmp/x"],
        ["--config", "/tmp/x"],
        ["--backup-dir", "/tmp/x"],
        ["--store", "embedded"],
        ["--role", "endpoint"],
        ["--domain", "push.example.net"],
    ] {
        let ended = run(&[&["serve", "--ephemeral"], words.as_slice()].concat()).await;
        let expected = format!("'--ephemeral' cannot be used with '{} ", words[0]);
        ended.failed(2, &expected);
        assert!(ended.stdout.is_empty(), "{ended:?}");
    }
    let wrong = run(&["serve", "--ephemeral", "--ttl-max-s", "x"]).await;
    wrong.failed(2, "ttl_max_s = `x` (flag --ttl-max-s)");
}

#[actix_web::test]
async fn the_help_of_serve_teaches_it() {
    let help = run(&["serve", "--help"]).await.succeeded();
    for taught in
        ["kalends serve --ephemeral", "KALENDS_DATA_DIR", "docs/for-tests.md", "/dev/clock"]
    {
        assert!(help.contains(taught), "{taught}");
    }
}

#[test]
fn the_page_has_each_field_of_the_line() {
    let temp = temp();
    let server = start(temp.path(), &[]);
    let page = samples::page();
    let fields = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut fields: Vec<_> = fields.collect();
    fields.sort_unstable();
    let mut found: Vec<_> = server.line.as_object().expect("it is an object").keys().collect();
    found.sort_unstable();
    assert_eq!(json!(fields), json!(found));
}
