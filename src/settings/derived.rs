//! What follows from the settings: the origin, the certificate, the workers, the bounds of waiting messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use storage::{WaitingBound, WaitingLimits};

use super::table::Settings;
use super::value::{DomainName, ListenAddress, PublicUrl, Value};
use crate::system::tls::certificate::CertificateFiles;

/// Body size in bytes that is always accepted in the old `aesgcm` encoding.
///
/// It is the limit of Mozilla's service for a body in either encoding, derived from the base64 form of an encrypted
/// message of 4096 bytes. Application servers that use the old encoding were written for it. RFC 8030 §7.2 requires
/// 4096 bytes.
pub const AESGCM_BYTES_MIN: usize = 5630;

/// Connections of a port that are enough if no operator set their number.
const CONNECTIONS_ENOUGH: usize = 1000;

/// Whether fewer connections than a setting has are something to warn of: an operator set it, or they are few.
pub fn is_missed(free: usize, wanted: usize, default: usize) -> bool {
    free < wanted && (wanted != default || free < CONNECTIONS_ENOUGH)
}

impl Settings {
    /// The origin of endpoint URLs, which VAPID tokens must name. `bound` is the address of the public port. None of a
    /// Unix socket without `public_url`, which [`check`](Self::check) refuses.
    pub fn public_origin(&self, bound: &ListenAddress) -> Option<PublicUrl> {
        self.public_url.clone().or_else(|| bound.tcp().map(|bound| self.own_origin(bound)))
    }

    /// Where programs on this machine reach the public port: an origin, or `unix:` and the path of its socket.
    pub fn own_address(&self, bound: &ListenAddress) -> String {
        match bound.tcp() {
            Some(bound) => self.own_origin(bound).as_str().to_owned(),
            None => bound.to_string(),
        }
    }

    fn own_origin(&self, bound: SocketAddr) -> PublicUrl {
        let origin = PublicUrl::parse(&format!("{}://{}", self.scheme(), reachable(bound)));
        origin.expect("an address is a host of a URL")
    }

    /// The scheme of the public port.
    pub fn scheme(&self) -> &'static str {
        let has_tls = self.certificate_files().is_some() || self.acme_domain().is_some();
        if has_tls { "https" } else { "http" }
    }

    /// The domain for which the server orders certificates.
    pub fn acme_domain(&self) -> Option<&str> {
        self.domain.as_ref().filter(|_| self.tls_certificate.is_none()).map(DomainName::as_str)
    }

    /// The files of the certificate of the public port, if it speaks TLS.
    pub fn certificate_files(&self) -> Option<CertificateFiles> {
        let (certificate, key) = self.tls_certificate.clone().zip(self.tls_key.clone())?;
        Some(CertificateFiles { certificate, key })
    }

    /// Whether a server creates the tables that are missing.
    pub fn makes_tables(&self) -> bool {
        !self.store.is_shared() || self.create_tables
    }

    /// Number of worker threads to start.
    pub fn worker_threads(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }

    /// The connections of the public port that each worker accepts.
    pub fn worker_connections_max(&self) -> usize {
        self.connections_max.div_ceil(self.worker_threads())
    }

    /// The bounds of messages that wait for a user agent.
    pub fn waiting_limits(&self) -> WaitingLimits {
        let bound = |messages_max, bytes_max| WaitingBound { messages_max, bytes_max };
        WaitingLimits {
            user: bound(self.user_messages_max, self.user_bytes_max),
            channel: bound(self.channel_messages_max, self.channel_bytes_max),
            when_full: self.when_full,
        }
    }

    /// Size in bytes of the largest body in the old `aesgcm` encoding.
    pub fn aesgcm_bytes_max(&self) -> usize {
        self.payload_bytes_max.max(AESGCM_BYTES_MIN)
    }
}

/// No client can connect to the unspecified address; to this machine it can.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_its_share_of_the_connections_rounded_up() {
        for (connections_max, workers, share) in [(9, 3, 3), (10, 3, 4), (1, 8, 1)] {
            let settings = Settings { connections_max, workers, ..Settings::default() };
            assert_eq!(settings.worker_threads(), workers);
            assert_eq!(settings.worker_connections_max(), share, "{connections_max} {workers}");
        }
        assert!(Settings { workers: 0, ..Settings::default() }.worker_threads() > 0);
    }
}
