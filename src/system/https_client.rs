//! HTTP and WebSocket over TCP or TLS: rustls on aws-lc, which trusts what the system trusts.
//!
//! Why not actix's own client: it turns HTTP/2 on in actix-http, for the server too, and that costs
//! every connection of the server's 2 KiB.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::{InvalidMessage, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::{CONTENT_TYPE, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use url::{Host, Url};

use super::certificate_words::explained;

/// Why a server gives no answer, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "there are no root certificates to check the server's with: install ca-certificates, or name a \
         file of them in SSL_CERT_FILE"
    )]
    NoRootCertificates,
    /// No connection, or no answer on it.
    #[error("cannot reach {url}: {why}")]
    Unreachable {
        url: String,
        /// The cause, and what to try.
        why: String,
    },
    #[error("{0}")]
    Refused(String),
    /// The server does not know any more what the request continues.
    #[error("{0}")]
    Gone(String),
}

/// How long each step of a request may take: finding the server, connecting, sending, the answer's
/// head and its body.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest message of a server's that is read from a WebSocket, in bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The subprotocol that Firefox offers.
const PROTOCOL: HeaderValue = HeaderValue::from_static("push-notification");

/// A client for requests to `url`. It follows no redirects: a push is signed for one origin. It
/// asks no proxy, as the WebSocket has none either.
pub fn http_client(url: &Url) -> Result<ureq::Agent, ClientError> {
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
    if url.scheme() != "https" {
        return Ok(config.build().new_agent());
    }
    let roots = trusted()?;
    let roots = roots.iter().map(|root| Certificate::from_der(root).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .build();
    Ok(config.tls_config(tls).build().new_agent())
}

/// Whether nothing on the network can read requests to this URL.
pub fn is_private(url: &Url) -> bool {
    let is_this_machine = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || is_this_machine
}

/// A WebSocket with a server at its other end.
pub type WebSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why no WebSocket opens.
#[derive(Debug, thiserror::Error)]
#[error("{why}{}", advice.map(|advice| format!("; {advice}")).unwrap_or_default())]
pub struct OpenError {
    pub why: String,
    /// What to try, if that is known.
    pub advice: Option<&'static str>,
    pub cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Answered(Answered),
    /// The certificate is not accepted. The advice is for who has it renewed.
    Certificate,
    /// A port that should speak TLS does not.
    NotTls,
    Other,
}

/// An answer of HTTP in place of a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    pub status: u16,
    /// Otherwise a firewall, a proxy or another server answered.
    pub is_of_kalends: bool,
}

/// Opens WebSockets at one URL.
pub struct WebSocketClient {
    url: Url,
}

impl WebSocketClient {
    /// A client for the `ws` or `wss` URL.
    pub fn new(url: &Url) -> Result<Self, ClientError> {
        if url.scheme() == "wss" {
            trusted()?;
        }
        Ok(Self { url: url.clone() })
    }

    /// Opens a WebSocket, or returns the reason for the failure. It has no timeout of its own.
    pub async fn open(&self) -> Result<WebSocket, OpenError> {
        let opened = match self.handshake(Some(PROTOCOL)).await {
            // A server may take no subprotocol (RFC 6455 §4.2.2). Mozilla's does so and Firefox
            // accepts it. This library does not, so the second handshake offers no subprotocol.
            Err(Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
                SubProtocolError::NoSubProtocol,
            ))) => self.handshake(None).await,
            opened => opened,
        };
        opened.map_err(|error| OpenError {
            why: why(&error),
            advice: self.advice(&error),
            cause: cause(&error),
        })
    }

    /// What to try after a handshake that failed.
    fn advice(&self, error: &Error) -> Option<&'static str> {
        let is_plain = self.url.scheme() == "ws";
        match error {
            Error::Http(_) => match answered(error)? {
                Answered { status: 426, .. } => Some("does the proxy in front pass the upgrade?"),
                Answered { status: 400, .. } if is_plain => Some(PORT_MAY_SPEAK_TLS),
                Answered { status: 401, is_of_kalends: true } => Some(
                    "the server is closed: ask its operator for the address with a token (`kalends access add`)",
                ),
                Answered { is_of_kalends: false, .. } => Some(
                    "this is not an answer of Kalends: a firewall or a proxy refuses the connection, or another server \
                     is there",
                ),
                _ => None,
            },
            // On a TLS port some servers answer plain HTTP in HTTP/1.0, some with a TLS alert, some
            // not at all.
            Error::Protocol(
                ProtocolError::WrongHttpVersion
                | ProtocolError::HttparseError(_)
                | ProtocolError::HandshakeIncomplete,
            ) if is_plain => Some(PORT_MAY_SPEAK_TLS),
            Error::Io(error) => {
                tls_advice(rustls_error(error)?, "that port does not speak TLS: try ws:")
            }
            _ => None,
        }
    }

    async fn handshake(&self, protocol: Option<HeaderValue>) -> Result<WebSocket, Error> {
        let mut request = self.url.as_str().into_client_request()?;
        request.headers_mut().extend(protocol.map(|name| (SEC_WEBSOCKET_PROTOCOL, name)));
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        // Acks are small, and nothing that could be sent with them is being waited for.
        let no_delay = true;
        let (socket, _response) =
            connect_async_with_config(request, Some(config), no_delay).await?;
        Ok(socket)
    }
}

/// The answer in place of a WebSocket, if there is one. The errors of Kalends are JSON with an errno; of a body that
/// has not arrived with the head, only the type is known.
fn answered(error: &Error) -> Option<Answered> {
    let Error::Http(response) = error else { return None };
    let content_type = response.headers().get(CONTENT_TYPE);
    let is_json = content_type.is_some_and(|is| is.as_bytes().starts_with(b"application/json"));
    let body = response.body().as_deref().unwrap_or_default();
    let is_of_kalends = match serde_json::from_slice::<Value>(body) {
        Ok(body) => body["errno"].is_u64(),
        Err(error) => is_json && error.is_eof(),
    };
    Some(Answered { status: response.status().as_u16(), is_of_kalends })
}

fn cause(error: &Error) -> Cause {
    let tls = match error {
        Error::Io(error) => rustls_error(error),
        _ => None,
    };
    match tls {
        Some(rustls::Error::InvalidCertificate(_)) => Cause::Certificate,
        Some(error) if is_not_tls(error) => Cause::NotTls,
        _ => answered(error).map_or(Cause::Other, Cause::Answered),
    }
}

const PORT_MAY_SPEAK_TLS: &str = "if that port speaks TLS, try wss:";

/// What went wrong with a request, and what to try.
pub fn why_unanswered(error: ureq::Error) -> String {
    let tls = match &error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => rustls_error(error),
        _ => None,
    };
    let advice = tls
        .and_then(|error| tls_advice(error, "that port does not speak TLS: try http:"))
        .map(|advice| format!("; {advice}"));
    let why = tls.and_then(certificate_fault);
    why.unwrap_or_else(|| error.into_io().to_string()) + &advice.unwrap_or_default()
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn is_not_tls(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType))
}

/// What to try after TLS failed; `not_tls` if the other end does not speak it.
fn tls_advice(error: &rustls::Error, not_tls: &'static str) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidCertificate(error) => Some(explained(error).1),
        error => is_not_tls(error).then_some(not_tls),
    }
}

/// What is wrong with a certificate, if that is why TLS failed.
fn certificate_fault(error: &rustls::Error) -> Option<String> {
    match error {
        rustls::Error::InvalidCertificate(error) => {
            Some(format!("the certificate of the server is refused: {}", explained(error).0))
        }
        _ => None,
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
        Error::Io(error) => {
            let fault = rustls_error(error).and_then(certificate_fault);
            fault.unwrap_or_else(|| error.to_string())
        }
        error => error.to_string(),
    }
}

/// The root certificates of the system that rustls can use; there is at least one.
pub(crate) fn trusted() -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let mut roots = rustls_native_certs::load_native_certs().certs;
    roots.retain(|root| RootCertStore::empty().add(root.clone()).is_ok());
    if roots.is_empty() {
        return Err(ClientError::NoRootCertificates);
    }
    Ok(roots)
}

/// An error with its causes, which hyper's own text omits.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |&error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;
    use tokio_tungstenite::tungstenite::http::Response;

    use super::*;

    #[test]
    fn a_certificate_of_an_unknown_issuer_is_told_with_how_to_trust_it() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let client = WebSocketClient::new(&Url::parse("wss://a/").unwrap()).unwrap();
        let error = Error::Io(io::Error::other(tls.clone()));
        assert_eq!(cause(&error), Cause::Certificate);
        assert!(client.advice(&error).unwrap().contains("SSL_CERT_FILE"));
        for error in [ureq::Error::Rustls(tls.clone()), ureq::Error::Io(io::Error::other(tls))] {
            let why = why_unanswered(error);
            assert!(
                why.starts_with("the certificate of the server is refused: no authority"),
                "{why}"
            );
            assert!(why.contains("SSL_CERT_FILE"), "{why}");
        }
    }

    #[test]
    fn an_answer_is_one_of_kalends_if_it_is_json_with_an_errno() {
        const HTML: &str = "text/html";
        const JSON: &str = "application/json";
        for (content_type, body, is_of_kalends) in [
            (JSON, r#"{"code":403,"errno":109}"#, true),
            // The rest of the body has not arrived.
            (JSON, "", true),
            (JSON, r#"{"code":40"#, true),
            (JSON, r#"{"message":"forbidden"}"#, false),
            (HTML, "<html>403 Forbidden</html>", false),
            (HTML, "", false),
        ] {
            let answer = Response::builder().status(403).header(CONTENT_TYPE, content_type);
            let answer = answer.body(Some(body.as_bytes().to_vec())).unwrap();
            let error = Error::Http(Box::new(answer));
            assert_eq!(answered(&error), Some(Answered { status: 403, is_of_kalends }), "{body}");
            let client = WebSocketClient::new(&Url::parse("ws://a/").unwrap()).unwrap();
            assert_eq!(client.advice(&error).is_some(), !is_of_kalends, "{body}");
        }
    }

    #[test]
    fn an_error_that_nothing_is_known_of_is_told_as_it_is() {
        let error = || io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(why_unanswered(ureq::Error::Io(error())), error().to_string());
    }
}
