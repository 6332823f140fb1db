//! A server whose public port is a Unix socket, behind nginx and Caddy.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::proxy_process::{self, Backends, Kind, ProxyProcess};
use super::server::strangers_are_limited_by;
use crate::harness::{
    AT_ONCE, Agent, Program, Sender, Socket, free_port, kalends, run, until, within,
};
use crate::judgement::metric;
use crate::metrics::scrape_at;

/// The directory of a server: its socket and its data.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory can be made"))
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("http.sock")
    }

    fn listen(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    fn data_dir(&self) -> String {
        self.0.path().join("data").display().to_string()
    }

    /// Starts a server that listens here, without metrics unless `more` has their port.
    fn begin(&self, data_dir: &str, public_url: &str, more: &[&str]) -> Program {
        let listen = self.listen();
        let first = ["serve", "--listen", &listen, "--public-url", public_url];
        let mut command = kalends(&[&first[..], &["--data-dir", data_dir], more].concat());
        command.env("KALENDS_METRICS_LISTEN", "off");
        Program::start(command)
    }

    /// Starts a server, and waits until it answers: it listens before it opens its store.
    async fn start(&self, public_url: &str, more: &[&str]) -> Program {
        let server = self.begin(&self.data_dir(), public_url, more);
        let accepts = async || UnixStream::connect(self.socket()).await.is_ok();
        until(AT_ONCE, "the server listens", accepts).await;
        assert_eq!(status(&self.socket(), VERSION).await, "HTTP/1.1 200");
        server
    }

    /// The statuses of as many pushes to no subscription, each over a connection of its own.
    async fn statuses(&self, pushes: usize, header: &str) -> Vec<String> {
        let request = format!(
            "POST /wpush/nowhere HTTP/1.1\r\nHost: a\r\nTTL: 60\r\n{header}Content-Length: 0\r\n\r\n"
        );
        let mut statuses = Vec::new();
        for _ in 0..pushes {
            statuses.push(status(&self.socket(), &request).await);
        }
        statuses
    }
}

const URL: &str = "http://push.example.net";

const VERSION: &str = "GET /__version__ HTTP/1.1\r\nHost: a\r\n\r\n";

async fn status(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.expect("the server accepts");
    stream.write_all(request.as_bytes()).await.expect("the connection is open");
    let mut head = [0; 12];
    let read = within(AT_ONCE, "an answer arrives", stream.read_exact(&mut head)).await;
    read.expect("the connection is open until the answer");
    String::from_utf8_lossy(&head).into_owned()
}

/// The name of the socket in the sample of a proxy, in place of an address.
fn upstream(kind: Kind, socket: &Path) -> String {
    match kind {
        Kind::Nginx | Kind::OneServerNginx => format!("unix:{}", socket.display()),
        Kind::Caddy | Kind::OneServerCaddy => format!("unix/{}", socket.display()),
    }
}

/// A server behind a proxy.
async fn proxied(kind: Kind, home: &Home, more: &[&str]) -> (ProxyProcess, Program) {
    let reserved = proxy_process::reserve();
    let public_url = proxy_process::origin(proxy_process::address(&reserved));
    let server = home.start(&public_url, more).await;
    let node = vec![upstream(kind, &home.socket())];
    let backends = Backends { connection_nodes: node.clone(), endpoint_nodes: node };
    (ProxyProcess::start(kind, reserved, &backends).await, server)
}

#[actix_web::test]
async fn pushes_pass_through_nginx_and_caddy_over_a_unix_socket() {
    for kind in [Kind::OneServerNginx, Kind::OneServerCaddy] {
        println!("{kind:?}");
        let home = Home::new();
        let (proxy_process, server) = proxied(kind, &home, &[]).await;
        let sender = Sender::new();
        let mut agent = proxy_process.agent().await;
        let channel = agent.register().await;
        assert!(channel.endpoint.starts_with(&proxy_process.origin()), "{}", channel.endpoint);
        sender.push_to(&mut agent, &channel, "over the socket").await;
        sender.push_to(&mut agent, &channel, &"x".repeat(4096)).await;
        let uaid = agent.leave().await;
        sender.push(&channel.endpoint, "stored").await;

        // The file of a killed server is replaced.
        server.kill().await;
        assert!(home.socket().exists());
        let server = home.start(&proxy_process.origin(), &[]).await;
        let socket = Socket::open_untimed(proxy_process.address()).await.unwrap();
        let mut agent = Agent::hello(socket, Some(&uaid)).await.unwrap();
        assert_eq!(agent.take(1).await[0].body(), "stored");

        server.terminate();
        let ended = server.ended().await;
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
        ended.succeeded();
        assert!(!home.socket().exists(), "the file ends with the server");
    }
}

#[actix_web::test]
async fn an_address_behind_nginx_is_limited_over_a_unix_socket() {
    let home = Home::new();
    let limit = ["--address-pushes-per-minute-max=3"];
    let (proxy_process, _server) = proxied(Kind::OneServerNginx, &home, &limit).await;
    strangers_are_limited_by(&proxy_process).await;
}

#[actix_web::test]
async fn a_peer_on_the_unix_socket_has_the_address_that_it_names_and_is_no_operator() {
    let home = Home::new();
    let limit = ["--address-pushes-per-minute-max=3", "--dev"];
    let server = home.start(URL, &limit).await;
    let (unknown, limited) = ("HTTP/1.1 404", "HTTP/1.1 429");
    let of = async |header: &str| home.statuses(4, header).await;
    assert_eq!(of("").await, [unknown; 4], "without the header there is no limit");
    for address in ["192.0.2.1", "192.0.2.2"] {
        let statuses = of(&format!("X-Forwarded-For: 192.0.2.9, {address}\r\n")).await;
        assert_eq!(statuses, [unknown, unknown, unknown, limited], "{address}");
    }
    let clock = "GET /dev/clock HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(status(&home.socket(), clock).await, "HTTP/1.1 403");
    server.kill().await;

    let limit = [limit[0], "--loopback-limited"];
    let _server = home.start(URL, &limit).await;
    assert_eq!(of("").await, [unknown, unknown, unknown, limited]);
}

#[actix_web::test]
async fn a_server_on_a_unix_socket_answers_health_status_and_the_doctor() {
    let home = Home::new();
    let (proxy_process, server) = proxied(Kind::OneServerNginx, &home, &[]).await;
    let _agent = proxy_process.agent().await;
    let (listen, data_dir) = (home.listen(), home.data_dir());
    let health = async || run(&["health", "--listen", &listen]).await;
    assert_eq!(health().await.succeeded(), "healthy, user agents: 1\n");
    // A running server names its socket.
    let of_data_dir = run(&["health", "--data-dir", &data_dir]).await;
    assert_eq!(of_data_dir.succeeded(), "healthy, user agents: 1\n");
    let status = run(&["status", "--json", "--data-dir", &data_dir]).await.succeeded();
    let status: Value = serde_json::from_str(&status).expect("it is JSON");
    assert_eq!(status["own_origin"].as_str(), Some(&*listen));
    assert_eq!(status["origin"].as_str(), Some(&*proxy_process.origin()));
    let doctor = run(&["doctor", "--idle-s", "0", "--data-dir", &data_dir]).await.succeeded();
    assert!(doctor.contains("by the proxy's X-Forwarded-For"), "{doctor}");

    server.kill().await;
    health().await.failed(1, &format!("{listen} does not answer: "));
    let doctor = run(&["doctor", "--listen", &listen, "--data-dir", &data_dir]).await;
    doctor.failed(2, "public_url is not set, and listen is a Unix socket");
}

#[actix_web::test]
async fn a_file_that_is_in_use_or_no_socket_is_refused_and_stays() {
    let (home, second) = (Home::new(), Home::new());
    let _server = home.start(URL, &[]).await;
    let data_dir = second.data_dir();
    let refused = async |listen: &str, code, expected: &str| {
        let url = "--public-url=http://push.example.net";
        let metrics = "--metrics-listen=off";
        let ended =
            run(&["serve", "--listen", listen, "--data-dir", &data_dir, url, metrics]).await;
        ended.refused_start(code, &[&format!("cannot listen on {listen}: "), expected]);
        assert!(!Path::new(&data_dir).exists());
    };
    refused(&home.listen(), 1, "another process listens there").await;
    run(&["health", "--listen", &home.listen()]).await.succeeded();
    let mode = fs::metadata(home.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o666);

    fs::write(second.socket(), "a text").unwrap();
    refused(&second.listen(), 1, "no socket: remove it").await;
    assert_eq!(fs::read_to_string(second.socket()).unwrap(), "a text");
    let missing = format!("unix:{}", second.0.path().join("missing/http.sock").display());
    refused(&missing, 2, "RuntimeDirectory=kalends").await;
}

#[actix_web::test]
async fn of_two_starts_at_once_on_the_socket_of_a_killed_server_one_serves() {
    let home = Home::new();
    let data_dirs = [home.data_dir(), format!("{}-2", home.data_dir())];
    home.start(URL, &[]).await.kill().await;
    for _ in 0..8 {
        assert!(home.socket().exists(), "a killed server leaves its socket");
        let [mut first, mut second] = data_dirs.each_ref().map(|dir| home.begin(dir, URL, &[]));
        until(AT_ONCE, "one of them ends", async || first.has_ended() || second.has_ended()).await;
        let (ended, serves) = if first.has_ended() { (first, second) } else { (second, first) };
        ended.ended().await.refused_start(1, &["another process listens there", "http.sock.lock"]);
        let accepts = async || UnixStream::connect(home.socket()).await.is_ok();
        until(AT_ONCE, "the other listens", accepts).await;
        assert_eq!(status(&home.socket(), VERSION).await, "HTTP/1.1 200");
        serves.kill().await;
    }
}

#[actix_web::test]
async fn a_socket_that_was_removed_or_replaced_is_an_outage_until_it_is_back() {
    let home = Home::new();
    let metrics = free_port().to_string();
    let server = home.start(URL, &["--metrics-listen", &metrics]).await;
    let url = format!("http://{metrics}/metrics");
    let value = async || scrape_at(&url).await[&metric("socket", "outage")];
    let data_dir = home.data_dir();
    let told = async || run(&["status", "--data-dir", &data_dir]).await;
    assert!(told().await.succeeded().starts_with("Everything works.\n"));
    assert_eq!(value().await, 1.0);

    let aside = home.0.path().join("aside.sock");
    fs::rename(home.socket(), &aside).expect("it is there");
    let is_told = async |lost: &str, remedy: &str| {
        let told = told().await;
        let found = format!("the socket {} was {lost}", home.socket().display());
        let texts = ["OUTAGE socket, since ", &found, "No proxy can connect", remedy];
        assert_eq!(told.code, Some(1), "{told:?}");
        assert!(texts.iter().all(|text| told.stdout.contains(text)), "{told:?}");
        assert_eq!(value().await, 0.0);
    };
    is_told("removed", "Restart the server.").await;
    let other = UnixListener::bind(home.socket()).expect("the name is free");
    is_told("replaced by another file", "Remove that file, then restart the server.").await;
    drop(other);
    fs::rename(&aside, home.socket()).expect("it is replaced");
    told().await.succeeded();
    assert_eq!(value().await, 1.0);
    server.terminate();
    server.ended().await.succeeded();
    assert!(!home.socket().exists(), "it is the one that the server made");
}

#[actix_web::test]
async fn a_unix_socket_is_refused_without_a_public_url_and_for_a_test() {
    let home = Home::new();
    let (listen, data_dir) = (home.listen(), home.data_dir());
    let file = home.0.path().join("kalends.toml").display().to_string();
    let no_url = "public_url is not set, and listen is a Unix socket";
    let serve = run(&["serve", "--listen", &listen, "--data-dir", &data_dir]).await;
    serve.refused_start(2, &[no_url]);
    run(&["init", &file, "--yes", "--listen", &listen]).await.failed(2, no_url);
    assert!(!Path::new(&file).exists() && !Path::new(&data_dir).exists());
    let ephemeral = ["serve", "--ephemeral", "--listen", &listen, "--public-url", "http://a"];
    run(&ephemeral).await.refused_start(2, &["a server for a test listens on an address"]);
}

#[actix_web::test]
async fn a_peer_on_the_unix_socket_that_reads_nothing_is_disconnected() {
    let home = Home::new();
    let server = home.start("https://push.example.net", &["--tcp-user-timeout-ms=1000"]).await;
    let peer = UnixStream::connect(home.socket()).await.expect("the server accepts");
    let requests = "GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50);
    let is_gone = async || match peer.try_write(requests.as_bytes()) {
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    until(AT_ONCE, "the peer is disconnected", is_gone).await;
    let answer = status(&home.socket(), VERSION).await;
    assert_eq!(answer, "HTTP/1.1 200");
    server.kill().await;
}
