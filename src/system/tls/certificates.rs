//! The certificate that a port presents. It is replaced while connections run.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// The protocol of tls-alpn-01 (RFC 8737), by which an authority asks for a proof.
pub const PROOF_PROTOCOL: &[u8] = b"acme-tls/1";

/// All threads share it. Running connections keep the certificate that they began with.
#[derive(Debug, Default)]
pub struct Certificates {
    /// None without TLS, and until the first one was ordered. Handshakes fail without it.
    current: RwLock<Option<Certificate>>,
    /// Why there is none, while the first one is ordered.
    pub awaited: Mutex<Option<String>>,
    /// What an authority is shown while an order is in progress.
    proof: RwLock<Option<Arc<CertifiedKey>>>,
    /// Orders that ended with a certificate, since the start.
    pub orders_succeeded: AtomicU64,
    /// Orders that ended without one, since the start.
    pub orders_failed: AtomicU64,
}

impl Certificates {
    pub fn current(&self) -> Option<Certificate> {
        self.current.read().clone()
    }

    pub fn replace(&self, certificate: Certificate) {
        *self.current.write() = Some(certificate);
    }

    pub fn set_proof(&self, proof: Option<Arc<CertifiedKey>>) {
        *self.proof.write() = proof;
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_authority = hello.alpn().is_some_and(|names| names.eq([PROOF_PROTOCOL]));
        match is_authority {
            true => self.proof.read().clone(),
            false => Some(self.current()?.key),
        }
    }
}
