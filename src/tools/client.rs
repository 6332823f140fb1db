//! HTTP and WebSocket over TCP or TLS: rustls on aws-lc, which trusts what the system trusts.
//!
//! Why not actix's own client: it turns HTTP/2 on in actix-http, for the server too, and that costs
//! every connection of the server's 2 KiB.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use url::Url;

use super::ToolError;

/// How long each step of a request may take: finding the server, connecting, sending, the answer's
/// head and its body.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest message of a server's that is read from a WebSocket, in bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The subprotocol that Firefox offers.
const PROTOCOL: HeaderValue = HeaderValue::from_static("push-notification");

/// A client for requests to `url`. It follows no redirects: a push is signed for one origin. It
/// asks no proxy, as the WebSocket has none either.
pub fn http_client(url: &Url) -> Result<ureq::Agent, ToolError> {
    let config = ureq::config::Config::builder()
        .user_agent(concat!("kalends/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_resolve(Some(STEP_TIMEOUT))
        .timeout_connect(Some(STEP_TIMEOUT))
        .timeout_send_request(Some(STEP_TIMEOUT))
        .timeout_send_body(Some(STEP_TIMEOUT))
        .timeout_recv_response(Some(STEP_TIMEOUT))
        .timeout_recv_body(Some(STEP_TIMEOUT));
    let config = match url.scheme() {
        "https" => config.tls_config(request_tls()?),
        _ => config,
    };
    Ok(config.build().new_agent())
}

/// A WebSocket with a server at its other end.
pub type WebSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Opens WebSockets at one URL.
pub struct WebSocketClient {
    url: Url,
    connector: Connector,
}

impl WebSocketClient {
    /// A client for the `ws` or `wss` URL.
    pub fn new(url: &Url) -> Result<Self, ToolError> {
        let connector = match url.scheme() {
            "wss" => Connector::Rustls(Arc::new(websocket_tls()?)),
            _ => Connector::Plain,
        };
        Ok(Self { url: url.clone(), connector })
    }

    /// Opens a WebSocket, or tells why there is none. It waits for as long as it is let.
    pub async fn open(&self) -> Result<WebSocket, String> {
        let opened = match self.handshake(Some(PROTOCOL)).await {
            // A server may take no subprotocol (RFC 6455 §4.2.2). Mozilla's does so and Firefox
            // goes on; this library would not, and so is not told of any.
            Err(Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
                SubProtocolError::NoSubProtocol,
            ))) => self.handshake(None).await,
            opened => opened,
        };
        opened.map_err(|error| why(&error))
    }

    async fn handshake(&self, protocol: Option<HeaderValue>) -> Result<WebSocket, Error> {
        let mut request = self.url.as_str().into_client_request()?;
        request.headers_mut().extend(protocol.map(|name| (SEC_WEBSOCKET_PROTOCOL, name)));
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        // Acks are small, and nothing that could be sent with them is being waited for.
        let no_delay = true;
        let connector = Some(self.connector.clone());
        let connected = connect_async_tls_with_config(request, Some(config), no_delay, connector);
        let (socket, _response) = connected.await?;
        Ok(socket)
    }
}

/// What went wrong with a WebSocket.
pub fn why(error: &Error) -> String {
    match error {
        Error::Http(response) => {
            format!("it answered {} instead of opening a WebSocket", response.status())
        }
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            "the server closed the connection".into()
        }
        Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn request_tls() -> Result<TlsConfig, ToolError> {
    let roots = trusted()?;
    let roots = roots.iter().map(|root| Certificate::from_der(root).to_owned());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .build())
}

fn websocket_tls() -> Result<ClientConfig, ToolError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted()?);
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("aws-lc has all protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // WebSocket needs HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The root certificates of the system that rustls can use; there is at least one.
fn trusted() -> Result<Vec<CertificateDer<'static>>, ToolError> {
    let mut roots = rustls_native_certs::load_native_certs().certs;
    roots.retain(|root| RootCertStore::empty().add(root.clone()).is_ok());
    if roots.is_empty() {
        let advice = "there are no root certificates to check the server's with: install \
                      ca-certificates, or name a file of them in SSL_CERT_FILE";
        return Err(ToolError::Unusable(advice.into()));
    }
    Ok(roots)
}
