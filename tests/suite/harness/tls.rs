//! TLS on the public port: a certificate authority, and a user agent that trusts it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{SinkExt, StreamExt};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, DEFAULT_VERSIONS, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::program::child;
use super::wait::{AT_ONCE, within};
use super::{Launch, Server};

/// A certificate authority, and the files of a certificate that it signed.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // curl takes a certificate whose issuer has its own name for self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let issuer = CertifiedIssuer::self_signed(
            params,
            KeyPair::generate().expect("the test can make it"),
        )
        .expect("the test can make it");
        let authority = Self { issuer, dir: TempDir::new().expect("the test can make it") };
        fs::write(authority.path("ca.pem"), authority.issuer.pem()).expect("the test can make it");
        authority.issue();
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a new pair over the one before. Returns its certificate.
    pub(crate) fn issue(&self) -> Vec<u8> {
        self.issue_with(|_| ())
    }

    /// Like [`issue`](Self::issue), for a certificate that ends after this time.
    pub(crate) fn issue_for(&self, time: Duration) -> Vec<u8> {
        self.issue_with(|params| params.not_after = (SystemTime::now() + time).into())
    }

    /// Like [`issue`](Self::issue), for a certificate that begins after this time.
    pub(crate) fn issue_from(&self, time: Duration) -> Vec<u8> {
        self.issue_with(|params| params.not_before = (SystemTime::now() + time).into())
    }

    fn issue_with(&self, change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let key = KeyPair::generate().expect("the test can make it");
        let mut params =
            CertificateParams::new(["127.0.0.1".to_owned()]).expect("the test can make it");
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("the test can make it");
        fs::write(self.path("pair.pem"), certificate.pem()).expect("the test can make it");
        fs::write(self.path("pair.key"), key.serialize_pem()).expect("the test can make it");
        certificate.der().to_vec()
    }

    pub(crate) fn launch(&self) -> Launch {
        let [certificate, key] = ["pair.pem", "pair.key"].map(|name| self.path(name));
        let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
        Launch::default().with(&["--tls-certificate", &certificate, "--tls-key", &key])
    }

    pub(crate) fn server(&self, arguments: &[&str]) -> Server {
        Server::launch(self.launch().with(arguments))
    }

    pub(crate) async fn connect(&self, server: &Server) -> TlsStream<TcpStream> {
        self.connect_as(server, &[]).await
    }

    /// Connects with these protocols to choose from.
    pub(crate) async fn connect_as(
        &self,
        server: &Server,
        protocols: &[&str],
    ) -> TlsStream<TcpStream> {
        self.connect_with(server, self.client(protocols)).await
    }

    /// A client, which keeps its tickets.
    pub(crate) fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("the test can make it");
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(DEFAULT_VERSIONS)
            .expect("the versions are known")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    pub(crate) async fn connect_with(
        &self,
        server: &Server,
        client: Arc<ClientConfig>,
    ) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(server.address()).await.expect("the test can make it");
        self.connect_over(stream, client).await
    }

    pub(crate) async fn connect_over(
        &self,
        stream: TcpStream,
        client: Arc<ClientConfig>,
    ) -> TlsStream<TcpStream> {
        let name = ServerName::from(stream.peer_addr().expect("it is connected").ip());
        TlsConnector::from(client).connect(name, stream).await.expect("the test can make it")
    }

    pub(crate) async fn agent(&self, server: &Server) -> TlsAgent {
        let url = format!("wss://{}/", server.address());
        let mut request = url.into_client_request().expect("the test can make it");
        // With it, the server sends close frames.
        let protocol = HeaderValue::from_static("push-notification");
        request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        let (socket, _) =
            client_async(request, self.connect(server).await).await.expect("the test can make it");
        let mut agent = TlsAgent(socket);
        let hello =
            agent.ask(&json!({"messageType": "hello", "uaid": "", "use_webpush": true})).await;
        assert_eq!(hello["status"], 200, "{hello}");
        agent
    }

    /// Pushes with curl. Returns the status and the version of HTTP.
    pub(crate) async fn push(&self, arguments: &[&str]) -> String {
        let printed = ["--output", "/dev/null", "--write-out", "%{http_code} %{http_version}"];
        self.curl(&[&printed[..], &["--header", "TTL: 60"], arguments].concat()).await
    }

    /// Runs curl, which must succeed, and returns what it printed.
    pub(crate) async fn curl(&self, arguments: &[&str]) -> String {
        let mut curl = Command::from(child("curl"));
        curl.args(["--silent", "--show-error", "--max-time", "10", "--cacert"]);
        let output = curl
            .arg(self.path("ca.pem"))
            .args(arguments)
            .output()
            .await
            .expect("curl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("curl prints a text")
    }
}

/// A user agent over TLS.
pub(crate) struct TlsAgent(pub(crate) WebSocketStream<TlsStream<TcpStream>>);

impl TlsAgent {
    pub(crate) async fn send(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).await.expect("the connection is open");
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let message = within(AT_ONCE, "a message arrives", self.0.next())
            .await
            .expect("the connection is open")
            .expect("the message can be read");
        serde_json::from_str(message.to_text().expect("it is a text")).expect("it is JSON")
    }

    pub(crate) async fn ask(&mut self, message: &Value) -> Value {
        self.send(message).await;
        self.receive().await
    }

    /// Registers a channel and returns its endpoint.
    pub(crate) async fn register(&mut self) -> String {
        let chid = "deadbeef-0000-4000-8000-000000000000";
        let answer = self.ask(&json!({"messageType": "register", "channelID": chid})).await;
        answer["pushEndpoint"].as_str().expect("the channel is registered").to_owned()
    }
}
