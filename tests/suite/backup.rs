//! `kalends backup` and `kalends restore`, with servers, agents and senders.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::{Agent, ExitOutput, Program, Sender, Server, child, kalends};

async fn command(name: &str, file: &Path, arguments: &[&str], data_dir: &Path) -> ExitOutput {
    let mut command = kalends(&[name]);
    command.arg(file).args(arguments).arg("--data-dir").arg(data_dir);
    Program::run(command).await
}

async fn back_up(server: &Server, file: &Path) {
    command("backup", file, &[], &server.data_dir()).await.succeeded();
}

/// Replaces the data directory of a stopped server by the archive.
async fn restore(server: &Server, file: &Path) {
    fs::remove_dir_all(server.data_dir()).expect("the server has it");
    command("restore", file, &[], &server.data_dir()).await.succeeded();
}

/// The archive of a server with one agent and one message, and a directory for what a test makes of it.
async fn archive() -> (TempDir, Vec<u8>) {
    let server = Server::start();
    Agent::offline_with(&server, "kept").await;
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let file = home.path().join("a.tar");
    back_up(&server, &file).await;
    let archive = fs::read(&file).expect("the backup wrote it");
    (home, archive)
}

async fn assert_refused(home: &TempDir, archive: &[u8], reason: &str) {
    let (file, target) = (home.path().join("wrong.tar"), home.path().join("restored"));
    fs::write(&file, archive).expect("a file can be written");
    for arguments in [&["--check"][..], &[]] {
        command("restore", &file, arguments, &target).await.failed(1, reason);
    }
    assert!(!target.exists());
    let left = fs::read_dir(home.path()).expect("it exists").count();
    assert_eq!(left, 2, "both archives and nothing else");
}

#[actix_web::test]
async fn a_message_accepted_before_the_backup_is_delivered_after_a_restore() {
    let mut server = Server::start();
    let (uaid, channel) = Agent::offline_with(&server, "before").await;
    let sender = Sender::new();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.tar");
    back_up(&server, &file).await;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(!server.data_dir().join("backup.partial").exists());

    let mut agent = Agent::reconnect(&server, &uaid).await;
    let delivered = agent.take(1).await;
    agent.ack_all(&delivered).await;
    agent.leave().await;
    sender.push(&channel.endpoint, "after").await;
    let (newcomer, lost) = Agent::offline(&server).await;

    server.terminate();
    restore(&server, &file).await;
    server.restart();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.take(1).await, delivered, "acked since, so delivered again, and once");
    agent.ack_all(&delivered).await;
    sender.push_to(&mut agent, &channel, "again").await;

    assert_eq!(sender.post(&lost.endpoint).ttl(60).send().await.status, 410);
    let newcomer_now = Agent::uaid_for(&server, &newcomer).await;
    assert_ne!(newcomer_now, newcomer, "it registered after the backup");
}

#[actix_web::test]
async fn every_push_accepted_before_a_backup_under_load_is_in_it() {
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    let (sender, home) = (Sender::new(), tempfile::tempdir().unwrap());
    let file = home.path().join("a.tar");
    let before: Vec<_> = (0..50).map(|number| format!("before {number}")).collect();
    join_all(before.iter().map(|body| sender.push(&channel.endpoint, body))).await;
    let meanwhile: Vec<_> = (0..100).map(|number| format!("meanwhile {number}")).collect();
    let pushes = join_all(meanwhile.iter().map(|body| sender.push(&channel.endpoint, body)));
    tokio::join!(pushes, back_up(&server, &file));
    server.kill();
    restore(&server, &file).await;
    server.restart();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let mut delivered = agent.take(before.len()).await;
    agent.ack_all(&delivered).await;
    let known = |body: &str| before.iter().chain(&meanwhile).any(|pushed| pushed == body);
    delivered.extend(agent.pending_notifications().await);
    assert!(delivered.iter().all(|notification| known(notification.body())));
    for body in &before {
        assert!(delivered.iter().any(|notification| notification.body() == body), "{body}");
    }
}

#[actix_web::test]
async fn a_stopped_server_is_backed_up_through_standard_output() {
    let mut server = Server::start();
    let (uaid, _) = Agent::offline_with(&server, "kept").await;
    server.terminate();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.tar");
    let mut backup = kalends(&["backup", "-", "--data-dir"]);
    backup.arg(server.data_dir()).stdout(fs::File::create(&file).unwrap());
    Program::run(backup).await.succeeded();
    fs::remove_dir_all(server.data_dir()).unwrap();
    let mut restore = kalends(&["restore", "-", "--data-dir"]);
    restore.arg(server.data_dir()).stdin(fs::File::open(&file).unwrap());
    Program::run(restore).await.succeeded();
    server.restart();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.notification().await.body(), "kept");
}

#[actix_web::test]
async fn a_wrong_archive_is_refused_before_anything_is_changed() {
    let (home, archive) = archive().await;
    let find = |text: &str| {
        let found = archive.windows(text.len()).position(|bytes| bytes == text.as_bytes());
        found.expect("the archive has it")
    };
    let changed = |at: usize, to: &[u8]| {
        let mut archive = archive.clone();
        archive[at..at + to.len()].copy_from_slice(to);
        archive
    };
    assert_refused(&home, b"", "no archive of `kalends backup`").await;
    assert_refused(&home, "uaid,node\n".repeat(1000).as_bytes(), "no archive").await;
    assert_refused(&home, &archive[..archive.len() / 2], "truncated").await;
    let format = find("\"format\": 1") + "\"format\": ".len();
    assert_refused(&home, &changed(format, b"7"), "use the newer kalends").await;
    let fingerprint = find("\"crypto:") + "\"crypto:".len();
    let other: &[u8] = if archive[fingerprint] == b'0' { b"1" } else { b"0" };
    assert_refused(&home, &changed(fingerprint, other), "keys in the archive are not").await;
    let listed = find("\"name\": \"router.db\"") + "\"name\": \"".len();
    assert_refused(&home, &changed(listed, b"../r/a.db"), "its manifest lists").await;
    let database = find("SQLite format 3\0") + 200;
    let other = [!archive[database]];
    assert_refused(&home, &changed(database, &other), "another SHA-256").await;
    assert_refused(&home, &[&archive, &b"junk"[..]].concat(), "something else follows").await;
}

#[actix_web::test]
async fn nothing_that_exists_is_overwritten() {
    let (home, archive) = archive().await;
    let (file, server) = (home.path().join("a.tar"), Server::start());
    let router = server.data_dir().join("router.db");
    for (name, path, arguments, reason) in [
        ("backup", &*file, &[][..], "--force"),
        ("restore", &file, &[], "is not empty"),
        ("backup", &router, &["--force"], "elsewhere"),
        ("backup", home.path(), &["--force"], "is not a file"),
    ] {
        command(name, path, arguments, &server.data_dir()).await.failed(1, reason);
    }
    assert_eq!(fs::read(&file).unwrap(), archive);
    command("backup", &file, &["--force"], &server.data_dir()).await.succeeded();
    assert_ne!(fs::read(&file).unwrap(), archive);
    command("restore", &file, &["--check"], &server.data_dir()).await.succeeded();
}

/// Makes an identity of age. Returns its recipient.
async fn identity(home: &TempDir, name: &str) -> String {
    let path = home.path().join(name);
    let made = Command::from(child("age-keygen")).arg("-o").arg(&path).output().await;
    assert!(made.expect("age-keygen is installed").status.success());
    let text = fs::read_to_string(path).expect("age-keygen wrote it");
    let line = text.lines().find_map(|line| line.strip_prefix("# public key: "));
    line.expect("an identity names its recipient").to_owned()
}

#[actix_web::test]
async fn an_archive_for_a_recipient_of_age_is_restored_with_its_identity_only() {
    let mut server = Server::start();
    let (uaid, _) = Agent::offline_with(&server, "kept").await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.age");
    let recipient = identity(&home, "own.key").await;
    identity(&home, "other.key").await;

    let wrong = command("backup", &file, &["--encrypt-to=age1wrong"], &server.data_dir()).await;
    wrong.failed(1, "malformed recipient");
    assert!(!file.exists());
    let to = format!("--encrypt-to={recipient}");
    command("backup", &file, &[&to], &server.data_dir()).await.succeeded();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let encrypted = fs::read(&file).unwrap();
    assert!(encrypted.starts_with(b"age-encryption.org/v1"));

    server.terminate();
    fs::remove_dir_all(server.data_dir()).unwrap();
    let with = |name: &str| format!("--identity={}", home.path().join(name).display());
    let cut = home.path().join("cut.age");
    fs::write(&cut, &encrypted[..encrypted.len() - 1]).unwrap();
    for (file, key, reason) in
        [(&file, "other.key", "no identity matched"), (&cut, "own.key", "age failed")]
    {
        command("restore", file, &[&with(key)], &server.data_dir()).await.failed(1, reason);
    }
    assert!(!server.data_dir().exists());
    command("restore", &file, &[&with("own.key")], &server.data_dir()).await.succeeded();
    server.restart();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.notification().await.body(), "kept");
}

#[actix_web::test]
async fn encryption_without_the_program_fails_before_anything_is_read() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let file = home.path().join("a.age");
    let mut backup = kalends(&["backup", "--passphrase"]);
    backup.arg(&file).arg("--data-dir").arg(server.data_dir()).env("PATH", home.path());
    Program::run(backup).await.failed(1, "age is not installed");
    assert!(!file.exists());
}

/// Answers each question about a passphrase on a terminal of its own.
const TERMINAL: &str = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
text = b""
try:
    while data := os.read(terminal, 1024):
        text += data
        if b"passphrase" in text and text.rstrip().endswith(b":"):
            text = b""
            os.write(terminal, sys.argv[1].encode() + b"\n")
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[actix_web::test]
async fn an_archive_with_a_passphrase_is_restored_with_it_only() {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let file = home.path().join("a.age");
    let run = async |passphrase: &str, arguments: &[&str], dir: &Path| -> Output {
        let mut command = Command::from(child("python3"));
        command.args(["-c", TERMINAL, passphrase, env!("CARGO_BIN_EXE_kalends")]).args(arguments);
        command.arg(&file).arg("--data-dir").arg(dir);
        command.output().await.unwrap()
    };
    let made = run("a long secret", &["backup", "--passphrase"], &server.data_dir()).await;
    assert!(made.status.success(), "{made:?}");
    assert!(fs::read(&file).unwrap().starts_with(b"age-encryption.org/v1"));
    let target = home.path().join("restored");
    let wrong = run("another secret", &["restore"], &target).await;
    assert!(!wrong.status.success() && !target.exists(), "{wrong:?}");
    let restored = run("a long secret", &["restore"], &target).await;
    assert!(restored.status.success() && target.join("keys.toml").exists(), "{restored:?}");
}
