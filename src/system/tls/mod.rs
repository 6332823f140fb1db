//! TLS on the public port. Files of certificates and accepted sockets enter; streams leave, encrypted or not. A pair of
//! files that cannot be used changes nothing.
//!
//! - [`certificate`]: a chain with its key, and the files it is read from.
//! - [`certificates`]: the certificate that the port presents, which is replaced while connections run.
//! - [`reload`]: when the files are read again.
//! - [`session`]: the TLS of a connection, without IO.
//! - [`stream`]: a connection of the port, with TLS or without.
//! - [`tickets`]: session tickets, which other nodes open too.
//! - [`tls_stream`]: a socket with TLS.

pub mod certificate;
pub mod certificates;
pub mod reload;
pub mod session;
pub mod stream;
pub mod tickets;
pub mod tls_stream;

use std::sync::Arc;
use std::time::Duration;

use actors::{Clock, SharedLogLimiter};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::NoServerSessionStorage;
use rustls::{DEFAULT_VERSIONS, ServerConfig};
use slog::{Logger, debug, info};
use state_machine::Span;
use tokio::net::TcpStream;
use tokio::time::timeout;

use certificate::TlsError;
use certificates::{Certificates, PROOF_PROTOCOL};
use stream::Stream;
use tickets::Tickets;
use tls_stream::TlsStream;

/// Minimum time between two log lines about failed handshakes.
const LOG_EVERY: Span = Span::from_secs(60);

/// What a port needs to speak TLS.
pub struct Tls {
    config: Arc<ServerConfig>,
    handshake_timeout: Duration,
    failures: SharedLogLimiter,
    clock: Clock,
    log: Logger,
}

impl Tls {
    pub fn new(
        certificates: Arc<Certificates>,
        tickets: Arc<Tickets>,
        handshake_timeout: Duration,
        clock: Clock,
        log: Logger,
    ) -> Result<Self, TlsError> {
        let config = Arc::new(config(certificates, tickets)?);
        let failures = SharedLogLimiter::new(LOG_EVERY);
        Ok(Self { config, handshake_timeout, failures, clock, log })
    }

    /// Makes the handshake. None if it fails or takes longer than `tls_handshake_timeout_ms`.
    pub async fn accept(&self, stream: TcpStream) -> Option<Stream> {
        let handshake = TlsStream::accept(Arc::clone(&self.config), stream);
        let failure = match timeout(self.handshake_timeout, handshake).await {
            // The handshake is the answer to the authority.
            Ok(Ok(stream)) if stream.protocol() == Some(PROOF_PROTOCOL) => {
                return None;
            }
            Ok(Ok(stream)) => return Some(Stream::tls(stream)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took longer than tls_handshake_timeout_ms".to_owned(),
        };
        debug!(self.log, "a TLS handshake failed"; "why" => &failure);
        if let Some(times) = self.failures.count(self.clock.now()) {
            info!(self.log, "TLS handshakes failed"; "times" => times, "last" => failure);
        }
        None
    }
}

fn config(
    certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
) -> Result<ServerConfig, TlsError> {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(DEFAULT_VERSIONS)
        .map_err(TlsError::Library)?;
    let mut config = config.with_no_client_auth().with_cert_resolver(certificates);
    config.alpn_protocols =
        [b"h2".as_slice(), b"http/1.1", PROOF_PROTOCOL].map(<[u8]>::to_vec).into();
    // A returning agent resumes its session with a ticket that it keeps itself: the server holds nothing for it.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = tickets;
    config.send_tls13_tickets = 1;
    Ok(config)
}
