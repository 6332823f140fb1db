//! Whether other nodes reach a connection node at its `router_url`. The node calls itself there
//! before user agents are admitted.

use std::time::Duration;

use actix_web::rt::spawn;
use actors::Clock;
use slog::{Logger, debug, error, info, warn};
use state_machine::{NodeId, Uaid};
use tokio::time::sleep;

use super::error::ServeError;
use crate::cluster::outbound::{NodeAccess, PeerIdentity};

/// Interval between two calls, until one reaches this node.
const RETRY_EVERY: Duration = Duration::from_secs(60);

/// The `router_url` of this node.
#[derive(Clone)]
pub(super) struct RouterUrl {
    pub(super) access: NodeAccess,
    pub(super) node: NodeId,
    /// The agent that only the router port of this process knows.
    pub(super) instance: Uaid,
    pub(super) clock: Clock,
}

impl RouterUrl {
    async fn ask(&self) -> PeerIdentity {
        self.access.ask(self.node.clone(), self.instance, self.clock.clone()).await.identity
    }
}

/// Calls once. If another node answers, this one must not start: both would have one name in router
/// records. If none answers, this node starts and repeats the call, because in some networks a
/// machine does not reach itself.
pub(super) async fn check(url: RouterUrl, log: &Logger) -> Result<(), ServeError> {
    match url.ask().await {
        PeerIdentity::ThisNode => {
            debug!(log, "this node reaches its own router_url"; "router_url" => %url.node);
        }
        PeerIdentity::OtherNode => return Err(ServeError::RouterUrlTaken(url.node)),
        PeerIdentity::Unreachable(error) => {
            warn_unreachable(&url, &error, log);
            spawn(retry(url, RETRY_EVERY, log.clone()));
        }
    }
    Ok(())
}

/// Calls until this node answers. If another one does, this node keeps serving: user agents are
/// connected to it.
async fn retry(url: RouterUrl, every: Duration, log: Logger) {
    loop {
        sleep(every).await;
        match url.ask().await {
            PeerIdentity::ThisNode => {
                info!(log, "this node reaches its own router_url"; "router_url" => %url.node);
                return;
            }
            PeerIdentity::OtherNode => {
                error!(log, "another node answers at this node's router_url, each node needs one of its own";
                    "router_url" => %url.node);
            }
            PeerIdentity::Unreachable(error) => warn_unreachable(&url, &error, &log),
        }
    }
}

fn warn_unreachable(url: &RouterUrl, error: &str, log: &Logger) {
    warn!(log, "this node does not reach its own router_url, other nodes may not reach it either";
        "router_url" => %url.node, "error" => error);
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;

    use actors::{Directory, NoPeers, RegistryActor};
    use slog::{Discard, o};
    use state_machine::delivery::NodeAnswer;
    use tokio::time::timeout;

    use super::*;
    use crate::cluster::about::AboutNode;
    use crate::cluster::fixture::{KEY, LONG, Log, NOW, cluster_keys, keys};
    use crate::cluster::inbound::{PortLimits, RouterPort};
    use crate::settings::Settings;

    const SOON: Duration = Duration::from_millis(10);
    const UNREACHED: &str =
        "WARN this node does not reach its own router_url, other nodes may not reach it either";

    /// A router port that [`listen`] opens, and the URL of the process that has its instance or the given one.
    fn scene(instance: Option<Uaid>) -> (RouterPort, SocketAddr, RouterUrl) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (node, clock) = (NodeId::new(&format!("http://{address}")), Clock::starting_at(NOW));
        let (peers, log) = (Arc::new(NoPeers(NodeAnswer::NotHere)), Logger::root(Discard, o!()));
        let directory = Directory::start(RegistryActor::new(16, peers, log.clone()), None);
        let mut limits = PortLimits::from(&Settings::default());
        limits.port.workers = 1;
        let (name, time) = (node.clone(), clock.clone());
        let about = Box::new(AboutNode::default);
        let port = RouterPort::new(name, cluster_keys(KEY), &directory, about, time, limits, log);
        let access = NodeAccess::of(&keys(&[KEY]), &Settings::default()).unwrap();
        let instance = instance.unwrap_or(port.instance());
        (port, address, RouterUrl { access, node, instance, clock })
    }

    fn listen(port: RouterPort, address: SocketAddr) {
        spawn(port.serve(TcpListener::bind(address).unwrap(), || ()).unwrap());
    }

    #[actix_web::test]
    async fn a_node_that_reaches_itself_starts() {
        let ((port, address, url), (logger, mut log)) = (scene(None), Log::new());
        listen(port, address);
        check(url, &logger).await.unwrap();
        let line = log.read().next().unwrap();
        assert_eq!(line.text, "DEBG this node reaches its own router_url");
    }

    #[actix_web::test]
    async fn a_node_that_reaches_another_does_not_start_and_the_error_names_the_url() {
        let (port, address, url) = scene(Some(Uaid([1; 16])));
        listen(port, address);
        let error = check(url, &Log::new().0).await.unwrap_err().to_string();
        let expected = format!("another node answers at router_url http://{address}");
        assert!(error.starts_with(&expected), "{error}");
    }

    #[actix_web::test]
    async fn a_node_that_reaches_no_node_starts_and_warns_until_it_reaches_itself() {
        let ((port, address, url), (logger, mut log)) = (scene(None), Log::new());
        check(url.clone(), &logger).await.unwrap();
        assert_eq!(log.said(), [UNREACHED]);
        let retrying = spawn(retry(url, SOON, logger));
        for _ in 0..2 {
            log.says(UNREACHED).await;
        }
        listen(port, address);
        timeout(LONG, retrying).await.expect("it ends once it is reached").unwrap();
        assert_eq!(log.said().last().unwrap(), "INFO this node reaches its own router_url");
    }

    #[actix_web::test]
    async fn another_node_that_answers_later_is_logged_and_this_node_keeps_serving() {
        let ((port, address, url), (logger, mut log)) = (scene(Some(Uaid([1; 16]))), Log::new());
        let retrying = spawn(retry(url, SOON, logger));
        log.says(UNREACHED).await;
        listen(port, address);
        log.says(
            "ERRO another node answers at this node's router_url, each node needs one of its own",
        )
        .await;
        assert!(!retrying.is_finished());
        retrying.abort();
    }
}
