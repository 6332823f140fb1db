//! A server with its tables in a DynamoDB of its own, and a proxy between them.

use crate::harness::{Launch, Proxy, Server, WireServer, dynamo};

/// The three, each of which ends before what it stands on.
pub(super) struct Shop {
    pub(super) server: Server,
    pub(super) proxy: Proxy,
    pub(super) wire: WireServer,
}

impl Shop {
    /// Opens, started with these arguments too.
    pub(super) fn open<S: AsRef<str>>(arguments: &[S]) -> Self {
        let wire = WireServer::start();
        let proxy = Proxy::to(&wire.url);
        let server = Server::launch(launch(&proxy, arguments));
        Self { server, proxy, wire }
    }

    /// Starts the server again, with other arguments.
    pub(super) fn reopen<S: AsRef<str>>(&mut self, arguments: &[S]) {
        assert!(self.server.terminate().success());
        self.server.restart_as(launch(&self.proxy, arguments));
    }
}

fn launch<S: AsRef<str>>(proxy: &Proxy, arguments: &[S]) -> Launch {
    // What a server looks for by itself would be on the bills of others.
    let quiet = ["--feed-poll-ms", "600000", "--feed-sweep-s", "86400"];
    dynamo::launch(&proxy.url()).with(&quiet).with(arguments)
}
