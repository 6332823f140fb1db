//! `kalends serve` behind a proxy, at the proxy's address.

use super::proxy_process::{self, Backends, Kind, ProxyProcess};
use super::sample::Sample;
use crate::harness::Server;

/// A server and its proxy.
pub(super) struct ProxiedServer {
    // Dropped first, so that the proxy does not log a missing server.
    pub(super) proxy_process: ProxyProcess,
    pub(super) server: Server,
}

impl ProxiedServer {
    pub(super) async fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[], |sample| sample).await
    }

    /// Starts both with further arguments of the server and a modified sample.
    pub(super) async fn start_with(
        kind: Kind,
        arguments: &[&str],
        change: impl FnOnce(Sample) -> Sample,
    ) -> Self {
        let reserved = proxy_process::reserve();
        let public_url =
            format!("--public-url={}", proxy_process::origin(proxy_process::address(&reserved)));
        let arguments = [arguments, &[&*public_url]].concat();
        let server = Server::start_with(&arguments);
        let proxy_process =
            ProxyProcess::start_with(kind, reserved, &Backends::one(&server), change).await;
        Self { proxy_process, server }
    }
}
