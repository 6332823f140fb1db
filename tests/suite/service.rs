//! A server as a service of its host: systemd's notifications and sockets, health, completions and manual pages.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Stdio;

use rustix::io::{FdFlags, fcntl_setfd};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::Command;

use crate::harness::{AT_ONCE, Launch, Program, Server, child, kalends, run, within};
use crate::importer::StaticServer;

const VERSION: &str = "GET /__version__ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Starts a server as systemd does for `kalends.socket`: the socket is its file 3.
fn with_socket(listener: impl AsFd, listen: &str, data_dir: &Path) -> Program {
    fcntl_setfd(&listener, FdFlags::empty()).expect("it is an open file");
    let mut shell = Command::from(child("bash"));
    let fd = listener.as_fd().as_raw_fd();
    let variables = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=kalends.socket";
    let script = format!("exec env {variables} \"$0\" \"$@\" 3<&{fd}");
    shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_kalends"));
    shell
        .args(["serve", "--listen", listen, "--public-url", "http://a", "--data-dir"])
        .arg(data_dir);
    shell.env("KALENDS_METRICS_LISTEN", "off").kill_on_drop(true);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Program::start(shell)
}

/// A request on a connection of its own.
async fn asked(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("the kernel accepts it");
    stream.write_all(request.as_bytes()).await.expect("the connection is open");
    stream
}

async fn answer(mut stream: impl AsyncRead + Unpin) -> String {
    let mut answer = String::new();
    let read = within(AT_ONCE, "the answer ends", stream.read_to_string(&mut answer)).await;
    read.expect("the connection is not reset");
    answer
}

#[actix_web::test]
async fn a_restart_with_a_socket_of_systemd_refuses_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, data) = (listener.local_addr().unwrap(), TempDir::new().unwrap());
    // It would be bound without the socket, and is not.
    let listen = "192.0.2.1:1";
    let first = with_socket(&listener, listen, data.path());
    assert!(answer(asked(address, VERSION).await).await.starts_with("HTTP/1.1 200"));
    first.terminate();
    first.ended().await.succeeded();
    let waiting = asked(address, VERSION).await;
    let second = with_socket(&listener, listen, data.path());
    assert!(answer(waiting).await.starts_with("HTTP/1.1 200"));
    second.kill().await;
}

#[actix_web::test]
async fn a_restart_with_a_unix_socket_of_systemd_refuses_no_connection() {
    let dir = TempDir::new().unwrap();
    let (path, data) = (dir.path().join("http.sock"), dir.path().join("data"));
    let listener = UnixListener::bind(&path).unwrap();
    let listen = format!("unix:{}", path.display());
    let asked = async || {
        let mut stream = UnixStream::connect(&path).await.expect("the kernel accepts it");
        stream.write_all(VERSION.as_bytes()).await.expect("the connection is open");
        stream
    };
    let first = with_socket(&listener, &listen, &data);
    assert!(answer(asked().await).await.starts_with("HTTP/1.1 200"));
    first.terminate();
    first.ended().await.succeeded();
    let waiting = asked().await;
    let second = with_socket(&listener, &listen, &data);
    assert!(answer(waiting).await.starts_with("HTTP/1.1 200"));
    second.kill().await;

    for other in ["unix:/run/other.sock", "127.0.0.1:0"] {
        let refused = with_socket(&listener, other, &data).ended().await;
        refused.refused_start(2, &["is not that of listen = ", other]);
    }
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = with_socket(&tcp, &listen, &data).ended().await;
    refused.refused_start(2, &["is not that of listen = ", &listen]);
}

#[actix_web::test]
async fn systemd_learns_that_the_server_is_ready_alive_and_stopping() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(AT_ONCE)).unwrap();
    let next = || {
        let mut message = [0; 256];
        let bytes = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..bytes]).into_owned()
    };
    let mut launch = Launch::default();
    launch.variables.push(("NOTIFY_SOCKET", path.display().to_string()));
    launch.variables.push(("WATCHDOG_USEC", "200000".to_owned()));
    let mut server = Server::launch(launch);
    assert_eq!(next(), "READY=1\n");
    assert_eq!(next(), "WATCHDOG=1\n");
    assert!(server.terminate().success());
    let rest = std::iter::repeat_with(next).find(|message| message != "WATCHDOG=1\n");
    assert_eq!(rest.unwrap(), "STOPPING=1\n");
}

#[actix_web::test]
async fn health_tells_a_healthy_server_from_an_unhealthy_a_missing_and_a_foreign_one() {
    let health = async |server: &Server| {
        let listen = server.address().to_string();
        run(&["health", "--listen", &listen]).await
    };
    let (mut server, _agent) = Server::with_agent(&[]).await;
    assert_eq!(health(&server).await.succeeded(), "healthy, user agents: 1\n");
    let full = Server::start_with(&["--disk-free-min=1000000000000"]);
    health(&full).await.failed(1, "answers 503: space");
    server.kill();
    health(&server).await.failed(1, "does not answer: ");

    let foreign = StaticServer::start();
    foreign.answers(200, "{}");
    run(&["health", "--url", &foreign.origin()]).await.failed(1, "is not a Kalends server");
    run(&["health", "--url", "x"]).await.failed(2, "");
}

#[actix_web::test]
async fn bash_completes_commands_and_flags() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("kalends");
    fs::write(&file, run(&["completions", "bash"]).await.succeeded()).unwrap();
    for (words, expected) in
        [("acc", "access"), ("access re", "revoke"), ("serve --role conn", "connection")]
    {
        let script = format!(
            "source {} && COMP_WORDS=(kalends {words}) && COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) \
             && _kalends kalends \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\" && echo \"${{COMPREPLY[@]}}\"",
            file.display()
        );
        let output =
            Command::from(child("bash")).args(["--norc", "-c", &script]).output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{output:?}");
    }
    for shell in ["fish", "zsh"] {
        let completions = run(&["completions", shell]).await.succeeded();
        assert!(completions.contains("inspect"), "{shell}");
    }
}

#[actix_web::test]
async fn each_command_has_a_manual_page() {
    let dir = TempDir::new().unwrap();
    let pages = dir.path().join("man1");
    run(&["dev", "man", &pages.display().to_string()]).await.succeeded();
    for (page, text) in [
        ("kalends.1", "kalends\\-inspect(1)"),
        ("kalends-serve.1", "public\\-url"),
        ("kalends-status.1", concat!("\"kalends ", env!("CARGO_PKG_VERSION"), "\"")),
        ("kalends-status.1", "\nExamples:\n.nf\n  kalends status \\-\\-config"),
        ("kalends-status.1", "/var/lib/kalends\n.fi\n\nExit codes"),
        ("kalends-access-revoke.1", "NAME"),
    ] {
        let written = fs::read_to_string(pages.join(page)).unwrap();
        assert!(written.contains(text), "{page}: {written}");
    }
}

#[actix_web::test]
async fn init_writes_a_file_with_which_a_server_starts_and_replaces_none() {
    let dir = TempDir::new().unwrap();
    let (file, data) = (dir.path().join("kalends.toml"), dir.path().join("a \"quoted\" name"));
    let init = async |more: &[&str]| {
        let path = file.display().to_string();
        run(&[&["init", &path, "--yes"], more].concat()).await
    };
    let data_dir = data.display().to_string();
    let given = ["--data-dir", &data_dir, "--access", "token"];
    init(&given).await.succeeded();
    let config = file.display().to_string();
    let server = Server::try_launch(Launch::default().with(&["--config", &config])).unwrap();
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let refused = answer(asked(server.address(), upgrade).await).await;
    assert!(refused.starts_with("HTTP/1.1 401"), "the server is closed: {refused}");
    let added = run(&["access", "list", "--config", &config]).await;
    assert!(added.stderr.contains("quoted"), "the directory of the file: {added:?}");

    init(&["--access", "open"]).await.failed(1, "exists: name another file, or add --force");
    init(&["--force", "--access", "closed"]).await.failed(2, "");
    init(&["--force", "--config", &config]).await.failed(2, "");
    assert!(fs::read_to_string(&file).unwrap().contains("access = \"token\""));
    init(&["--force", "--access", "open"]).await.succeeded();
    assert!(fs::read_to_string(&file).unwrap().contains("access = \"open\""));
}

/// A program in place of systemd's, as no test may change the units of its machine.
#[actix_web::test]
async fn init_starts_the_unit_that_reads_its_file() {
    let dir = TempDir::new().unwrap();
    let (file, calls) = (dir.path().join("kalends.toml"), dir.path().join("calls"));
    let script = dir.path().join("systemctl");
    let unit = format!("ExecStart=/usr/bin/kalends serve --config {}", file.display());
    let text = format!(
        "#!/bin/sh\nif [ $1 = cat ]; then echo '{unit}'; else echo $* >> {}; [ $1 != $FAILS ]; fi\n",
        calls.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let init = async |path: &Path, more: &[&str], fails: &str| {
        let path = path.display().to_string();
        let mut command = kalends(&[&["init", &path, "--yes"], more].concat());
        let paths = format!("{}:/usr/bin:/bin", dir.path().display());
        command.env("PATH", paths).env("FAILS", fails);
        Program::run(command).await
    };
    init(&file, &[], "none").await.succeeded();
    assert!(!calls.exists(), "the unit is left alone");
    let started = init(&file, &["--force", "--start"], "none").await;
    started.succeeded();
    assert_eq!(
        fs::read_to_string(&calls).unwrap(),
        "enable kalends.service\nrestart kalends.service\n"
    );
    let failed = init(&file, &["--force", "--start"], "restart").await;
    failed
        .failed(1, "`systemctl restart kalends.service` failed: `journalctl -u kalends` says why");
    let other = dir.path().join("other.toml");
    init(&other, &["--start"], "none").await.failed(1, "no kalends.service reads ");
    assert!(!other.exists());
}
