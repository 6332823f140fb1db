//! Certificates by ACME, from Pebble, the test authority of Let's Encrypt.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, DEFAULT_VERSIONS, RootCertStore};
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;

use crate::harness::{AT_ONCE, Authority, Launch, Program, Server, child, free_port, until};
use crate::judgement::findings;
use crate::metrics::scrape;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A Pebble, and the ports at which it expects the server.
pub(crate) struct Pebble {
    process: Child,
    /// Its files, with the certificate of its own port.
    files: Authority,
    api: SocketAddr,
    management: SocketAddr,
    http: SocketAddr,
    tls: SocketAddr,
}

impl Pebble {
    /// Starts a Pebble that refuses so many percent of nonces.
    pub(crate) async fn start(nonces_refused: u8) -> Self {
        let (files, [api, management, http, tls]) =
            (Authority::new(), [(); 4].map(|()| free_port()));
        let config = json!({"pebble": {
            "listenAddress": api, "managementListenAddress": management,
            "certificate": files.path("pair.pem"), "privateKey": files.path("pair.key"),
            "httpPort": http.port(), "tlsPort": tls.port(),
        }});
        fs::write(files.path("pebble.json"), config.to_string()).expect("a file can be written");
        let process = pebble(&files, nonces_refused);
        let authority = Self { process, files, api, management, http, tls };
        authority.answers().await;
        authority
    }

    /// Starts it again, without the accounts, the orders and the root that it had.
    async fn start_again(&mut self) {
        self.stop();
        self.process = pebble(&self.files, 0);
        self.answers().await;
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Waits until it answers, and stores its root.
    async fn answers(&self) {
        let url = format!("https://{}/roots/0", self.management);
        until(AT_ONCE, "Pebble answers", async || {
            let root = self.curl("ca.pem", &[&url]);
            let Some(root) = root.filter(|_| TcpStream::connect(self.api).is_ok()) else {
                return false;
            };
            fs::write(self.files.path("root.pem"), root).expect("a file can be written");
            true
        })
        .await;
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.files.path("log")).expect("Pebble has a log")
    }

    /// Runs curl with these roots, and returns what it printed if it succeeded.
    fn curl(&self, roots: &str, arguments: &[&str]) -> Option<String> {
        let mut curl = child("curl");
        curl.args(["--silent", "--show-error", "--max-time", "5", "--cacert"])
            .arg(self.files.path(roots));
        let output = curl.args(arguments).output().expect("curl is installed");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A server of this authority's.
    pub(crate) fn launch(&self, http: bool) -> Launch {
        let listen = if http { self.http.to_string() } else { "off".to_owned() };
        self.launch_on(&listen)
    }

    /// A server with this `http_listen`.
    fn launch_on(&self, listen: &str) -> Launch {
        let directory = format!("https://{}/dir", self.api);
        let mut launch = Launch::default().with(&[
            "--domain=localhost",
            &format!("--acme-directory-url={directory}"),
            &format!("--http-listen={listen}"),
        ]);
        launch.port = Some(self.tls);
        launch.variables.push(("SSL_CERT_FILE", self.files.path("ca.pem").display().to_string()));
        launch
    }

    /// The certificate that the server presents, if it is one of this authority's.
    fn presented(&self) -> Option<String> {
        let connect = format!("localhost:443:{}", self.tls);
        let arguments =
            ["--connect-to", &connect, "--output", "/dev/null", "--write-out", "%{certs}"];
        self.curl("root.pem", &[&arguments[..], &["https://localhost/health"]].concat())
    }

    /// Whether the server presents a certificate as a proof (RFC 8737).
    async fn presents_proof(&self) -> bool {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_protocol_versions(DEFAULT_VERSIONS).expect("they are known");
        let roots = RootCertStore::empty();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
        let stream = tokio::net::TcpStream::connect(self.tls).await.expect("the server is there");
        let name = ServerName::try_from("localhost").expect("it is a name");
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let refused = handshake.expect_err("no certificate is trusted").to_string();
        refused.contains("invalid peer certificate")
    }

    /// The certificate that the server presents, whoever issued it.
    fn any_certificate(&self) -> String {
        let url = format!("https://{}/", self.tls);
        let arguments =
            ["--insecure", "--output", "/dev/null", "--write-out", "%{certs}", "--url", &url];
        let printed = self.curl("ca.pem", &arguments).expect("the server presents a certificate");
        let begin = printed.find("-----BEGIN").expect("curl prints it in PEM");
        printed[begin..].trim_end().to_owned() + "\n"
    }

    pub(crate) async fn issued(&self) -> String {
        let mut presented = None;
        until(AT_ONCE, "the server presents a certificate of Pebble's", async || {
            presented = self.presented();
            presented.is_some()
        })
        .await;
        presented.expect("waited for")
    }

    /// The folder of the server that has its certificates from this authority.
    fn certificates(&self, server: &Server) -> PathBuf {
        server.data_dir().join("acme").join(self.folder())
    }

    /// The name of the folder.
    pub(crate) fn folder(&self) -> String {
        format!("127.0.0.1_{}", self.api.port())
    }

    pub(crate) fn orders(&self) -> usize {
        self.log().matches("Added order").count()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Stores a certificate as if it had been ordered before, and returns it.
fn store_certificate(
    server: &Server,
    authority: &Pebble,
    began: Duration,
    ends: Duration,
) -> String {
    let key = KeyPair::generate().expect("the test can make it");
    let names = ["localhost".to_owned()];
    let mut params = CertificateParams::new(names).expect("the test can make it");
    let now = SystemTime::now();
    (params.not_before, params.not_after) = ((now - began).into(), (now + ends).into());
    let certificate = params.self_signed(&key).expect("the test can make it").pem();
    let pem = format!("{}{certificate}", key.serialize_pem());
    let dir = authority.certificates(server);
    fs::create_dir_all(&dir).expect("a directory can be made");
    fs::write(dir.join("localhost.pem"), pem).expect("a file can be written");
    certificate.replace("\r\n", "\n")
}

/// Starts Pebble with these files.
fn pebble(files: &Authority, nonces_refused: u8) -> Child {
    let log = File::create(files.path("log")).expect("a file can be written");
    let mut pebble = child("pebble");
    pebble.arg("-config").arg(files.path("pebble.json"));
    // It answers without the waits of a real authority, and validates each order.
    pebble.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
    pebble.env("PEBBLE_WFE_NONCEREJECT", nonces_refused.to_string());
    pebble.stdout(log.try_clone().expect("a file has a second handle")).stderr(log);
    pebble.stdin(Stdio::null()).spawn().expect("pebble is installed: tests/install-tools")
}

#[actix_web::test]
async fn a_certificate_is_ordered_by_http_01_once_although_half_of_all_nonces_are_refused() {
    let authority = Pebble::start(50).await;
    let mut server = Server::launch(authority.launch(true));
    let first = authority.issued().await;
    server.logged("\"challenge\":\"http-01\"").await;
    assert!(authority.log().contains("reject 50% of good nonces"));
    // The port of the challenge sends others to https, and takes no bodies.
    let url = format!("http://{}/health?a=b", authority.http);
    let printed = ["--output", "/dev/null", "--write-out", "%{http_code} %{redirect_url}"];
    let ask = |method: &[&str]| authority.curl("ca.pem", &[&printed[..], method, &[&url]].concat());
    assert_eq!(ask(&[]).unwrap(), "308 https://localhost/health?a=b");
    assert_eq!(ask(&["--head"]).unwrap(), "308 https://localhost/health?a=b");
    assert_eq!(ask(&["--data", "x"]).unwrap(), "403 ");
    let wrong = format!("http://{}/.well-known/acme-challenge/x", authority.http);
    assert_eq!(authority.curl("ca.pem", &[&printed[..], &[&wrong]].concat()).unwrap(), "404 ");
    let orders = authority.orders();
    server.terminate();
    server.restart();
    assert_eq!(authority.issued().await, first);
    server.logged("the stored certificate is used").await;
    assert_eq!(authority.orders(), orders);
}

#[actix_web::test]
async fn a_certificate_is_ordered_by_tls_alpn_01_without_a_port_of_http() {
    let authority = Pebble::start(0).await;
    let server = Server::launch(authority.launch(false));
    authority.issued().await;
    server.logged("\"challenge\":\"tls-alpn-01\"").await;
    assert_eq!(authority.orders(), 1);
    until(AT_ONCE, "the certificate of the proof is gone", async || {
        !authority.presents_proof().await
    })
    .await;
}

#[actix_web::test]
async fn a_certificate_with_a_third_of_its_lifetime_left_is_renewed_and_one_with_more_is_not() {
    let mut authority = Pebble::start(0).await;
    let mut server = Server::launch(authority.launch(true));
    authority.issued().await;
    // The authority has lost its accounts meanwhile, so the server makes a new one.
    authority.start_again().await;
    server.terminate();
    store_certificate(&server, &authority, 61 * DAY, 29 * DAY);
    server.restart();
    authority.issued().await;
    assert_eq!(authority.orders(), 1);
    server.terminate();
    let stored = store_certificate(&server, &authority, 59 * DAY, 31 * DAY);
    server.restart();
    assert_eq!(authority.any_certificate(), stored);
    assert_eq!(authority.orders(), 1);
}

#[actix_web::test]
async fn a_first_order_that_fails_names_no_certificate_before() {
    let authority = Pebble::start(0).await;
    // The authority asks another port than this for the answer.
    let server = Server::launch(authority.launch_on("127.0.0.1:0"));
    let line =
        server.logged("the order of the first certificate failed, TLS handshakes fail").await;
    let line: Value = serde_json::from_str(&line).expect("the log is JSON");
    assert_eq!((&line["failures"], &line["days_left"]), (&json!(1), &Value::Null), "{line}");
    assert!(!server.log().contains("the one before"), "{line}");
    // Without one nothing can connect.
    let findings = findings(&server).await;
    assert_eq!(
        (&findings[0]["check"], &findings[0]["severity"]),
        (&json!("certificate"), &json!("outage"))
    );
    assert_eq!(findings[0]["why"], line["why"]);
    let status = Program::run(server.command(&["status"])).await;
    assert!(status.stdout.contains("certificate  none yet"), "{status:?}");
    status.failed(1, "");
}

#[actix_web::test]
async fn a_failed_order_leaves_the_certificate_and_the_next_one_comes_later_or_at_a_signal() {
    let authority = Pebble::start(0).await;
    let mut server = Server::start();
    server.terminate();
    let stored = store_certificate(&server, &authority, 61 * DAY, 29 * DAY);
    // The authority asks another port than this for the answer.
    let launch = authority.launch_on("127.0.0.1:0").with(&["--metrics-listen=127.0.0.1:0"]);
    server.restart_as(launch);
    let line =
        server.logged("the order of a certificate failed, the one before stays in use").await;
    assert_eq!(authority.any_certificate(), stored);
    let line: Value = serde_json::from_str(&line).expect("the log is JSON");
    assert_eq!((&line["failures"], &line["days_left"]), (&json!(1), &json!(28)), "{line}");
    // It is stored: the next start has it, and orders at once after so few.
    let failures = authority.certificates(&server).join("localhost.failures.json");
    assert!(fs::read_to_string(&failures).unwrap().starts_with("{\"number\":1,"));
    assert!((900..=1125).contains(&line["retry_in_s"].as_u64().unwrap()), "{line}");
    let why = line["why"].as_str().unwrap();
    assert!(why.contains("verify the domain") && why.contains("/acme-challenge/"), "{line}");
    // The next order proves the domain in the other way.
    server.signal("HUP");
    authority.issued().await;
    server.logged("\"challenge\":\"tls-alpn-01\"").await;
    until(AT_ONCE, "the failures are forgotten", async || !failures.exists()).await;
    until(AT_ONCE, "both orders are counted", async || {
        let metrics = scrape(&server).await;
        let orders =
            |result| metrics[&format!("kalends_certificate_orders_total{{result=\"{result}\"}}")];
        [orders("failed"), orders("succeeded")] == [1.0, 1.0]
    })
    .await;
}

#[actix_web::test]
async fn a_server_that_failed_often_orders_nothing_when_it_starts_again() {
    let mut authority = Pebble::start(0).await;
    let mut server = Server::start();
    server.terminate();
    store_certificate(&server, &authority, 61 * DAY, 29 * DAY);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let failures = json!({"number": 3, "last_ms": u64::try_from(now).unwrap()}).to_string();
    let file = authority.certificates(&server).join("localhost.failures.json");
    fs::write(file, failures).unwrap();
    // An order at the start would fail, because no authority runs yet.
    authority.stop();
    server.restart_as(authority.launch(true));
    let waits = "orders of a certificate failed before this start, the next one waits";
    server.logged(waits).await;
    authority.start_again().await;
    server.signal("HUP");
    authority.issued().await;
    assert!(!server.log().contains("the order of a certificate failed"), "{}", server.log());
}

#[actix_web::test]
async fn a_server_whose_authority_does_not_answer_starts_and_logs_the_reason() {
    let nowhere = free_port();
    let server = Server::start_with(&[
        "--domain=localhost",
        "--http-listen=127.0.0.1:0",
        &format!("--acme-directory-url=https://{nowhere}/dir"),
    ]);
    server.logged("Connection refused").await;
    server.logged("TLS handshakes fail until it was ordered").await;
}
