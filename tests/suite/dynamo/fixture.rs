//! A server with its tables in its own DynamoDB server, and a proxy between them.

use crate::harness::{Launch, Proxy, Server, WireServer, dynamo};

/// The fields are dropped in this order, each before the one it depends on.
pub(super) struct DynamoFixture {
    pub(super) server: Server,
    pub(super) proxy: Proxy,
    pub(super) wire: WireServer,
}

impl DynamoFixture {
    /// Starts all three; the server gets these further arguments.
    pub(super) fn open<S: AsRef<str>>(arguments: &[S]) -> Self {
        let wire = WireServer::start();
        let proxy = Proxy::to(&wire.url);
        let server = Server::launch(launch(&proxy, arguments));
        Self { server, proxy, wire }
    }

    /// Restarts the server with other arguments.
    pub(super) fn reopen<S: AsRef<str>>(&mut self, arguments: &[S]) {
        assert!(self.server.terminate().success());
        self.server.restart_as(launch(&self.proxy, arguments));
    }
}

fn launch<S: AsRef<str>>(proxy: &Proxy, arguments: &[S]) -> Launch {
    // Periodic requests of the server would disturb the measurements.
    let quiet = ["--feed-poll-ms", "600000", "--feed-sweep-s", "86400", "--metrics-listen", "off"];
    dynamo::launch(&proxy.url()).with(&quiet).with(arguments)
}
