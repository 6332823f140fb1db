//! The certificate that a port presents. It is replaced while connections run.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// All threads share it. Running connections keep the certificate that they began with.
#[derive(Debug)]
pub struct Certificates {
    current: RwLock<Certificate>,
}

impl Certificates {
    pub fn new(first: Certificate) -> Self {
        Self { current: RwLock::new(first) }
    }

    pub fn current(&self) -> Certificate {
        // A panic cannot leave it half-updated.
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, certificate: Certificate) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current().key)
    }
}
