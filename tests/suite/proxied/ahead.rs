//! `kalends serve` behind a proxy, reached under the proxy's address.

use super::front::{self, Behind, Front, Kind};
use super::sample::Sample;
use crate::harness::Server;

/// A server and the proxy ahead of it.
pub(super) struct Ahead {
    // Dropped first, so that the server is not missed by it.
    pub(super) front: Front,
    pub(super) server: Server,
}

impl Ahead {
    pub(super) async fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[], |sample| sample).await
    }

    /// With more arguments for the server, and a sample that was changed.
    pub(super) async fn start_with(
        kind: Kind,
        arguments: &[&str],
        change: impl FnOnce(Sample) -> Sample,
    ) -> Self {
        let reserved = front::reserve();
        let public_url = format!("--public-url={}", front::origin(front::address(&reserved)));
        let arguments = [arguments, &[&*public_url]].concat();
        let server = Server::start_with(&arguments);
        let front = Front::start_with(kind, reserved, &Behind::one(&server), change).await;
        Self { front, server }
    }
}
