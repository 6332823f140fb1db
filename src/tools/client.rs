//! HTTP and WebSocket over TCP or TLS: actix's client, with rustls on aws-lc.

use std::sync::Arc;
use std::time::Duration;

use awc::{Client, Connector};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore};
use url::Url;

use super::ToolError;

/// How long connecting, and then the answer to a request, may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client for requests to `url`. It follows no redirects: a push is signed for one origin.
pub fn client(url: &Url) -> Result<Client, ToolError> {
    let connector = Connector::new().timeout(TIMEOUT).handshake_timeout(TIMEOUT);
    let connector = match url.scheme() {
        "https" | "wss" => connector.rustls_0_23(Arc::new(tls()?)),
        _ => connector,
    };
    Ok(Client::builder().connector(connector).timeout(TIMEOUT).disable_redirects().finish())
}

/// Trusts what the system trusts.
fn tls() -> Result<ClientConfig, ToolError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _unusable) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let advice = "there are no root certificates to check the server's with: install \
                      ca-certificates, or name a file of them in SSL_CERT_FILE";
        return Err(ToolError::Unusable(advice.into()));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("aws-lc has all protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // WebSocket needs HTTP/1.1, and one push gains nothing from HTTP/2.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
