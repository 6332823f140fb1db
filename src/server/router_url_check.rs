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
pub(super) struct RouterUrl {
    pub(super) access: NodeAccess,
    pub(super) node: NodeId,
    /// The agent that only the router port of this process knows.
    pub(super) instance: Uaid,
    pub(super) clock: Clock,
}

impl RouterUrl {
    async fn ask(&self) -> PeerIdentity {
        self.access.ask(self.node.clone(), self.instance, self.clock.clone()).await.0
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
    use std::sync::{Arc, Mutex};

    use actors::{NoPeers, RegistryActor};
    use slog::{Discard, Drain, Never, OwnedKVList, Record, o};
    use state_machine::Time;
    use state_machine::delivery::NodeAnswer;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::time::timeout;

    use super::*;
    use crate::cluster::inbound::{PortLimits, RouterPort};
    use crate::cluster::signature::ClusterKeys;
    use crate::settings::Settings;
    use crate::settings::keys::Keys;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const SOON: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(20);

    /// A router port that [`listen`] opens.
    struct Scene {
        address: SocketAddr,
        port: RouterPort,
        clock: Clock,
        log: Logger,
        lines: UnboundedReceiver<String>,
    }

    struct Lines(Mutex<UnboundedSender<String>>);

    impl Drain for Lines {
        type Ok = ();
        type Err = Never;

        fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
            let line = format!("{} {}", record.level().as_short_str(), record.msg());
            // The receiver of a finished test is gone.
            let _ = self.0.lock().unwrap().send(line);
            Ok(())
        }
    }

    impl Scene {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (sender, lines) = unbounded_channel();
            let clock = Clock::starting_at(Time(1_796_000_000_000));
            let quiet = Logger::root(Discard, o!());
            let peers = Arc::new(NoPeers(NodeAnswer::NotHere));
            let directory = RegistryActor::new(16, peers, quiet.clone()).start(None);
            let mut limits = PortLimits::from(&Settings::default());
            limits.port.workers = 1;
            let port = RouterPort::new(
                name(address),
                Arc::new(ClusterKeys::derive(&keys()).unwrap()),
                &directory,
                clock.clone(),
                limits,
                quiet,
            );
            let log = Logger::root(Lines(Mutex::new(sender)), o!());
            Self { address, port, clock, log, lines }
        }

        /// The URL of a process with this `instance`.
        fn url(&self, instance: Uaid) -> RouterUrl {
            let access = NodeAccess::of(&keys(), &Settings::default()).unwrap();
            RouterUrl { access, node: name(self.address), instance, clock: self.clock.clone() }
        }

        async fn next_line(&mut self) -> String {
            timeout(LONG, self.lines.recv()).await.expect("a line is logged").unwrap()
        }
    }

    fn listen(port: RouterPort, address: SocketAddr) {
        spawn(port.serve(TcpListener::bind(address).unwrap(), |_| Some(())).unwrap());
    }

    fn name(address: SocketAddr) -> NodeId {
        NodeId::new(&format!("http://{address}"))
    }

    fn keys() -> Keys {
        Keys::from_texts(&[KEY]).unwrap().with_cluster_texts(&[KEY]).unwrap()
    }

    #[actix_web::test]
    async fn a_node_that_reaches_itself_starts() {
        let mut scene = Scene::new();
        let url = scene.url(scene.port.instance());
        let log = scene.log.clone();
        listen(scene.port, scene.address);
        check(url, &log).await.unwrap();
        assert_eq!(scene.lines.recv().await.unwrap(), "DEBG this node reaches its own router_url");
    }

    #[actix_web::test]
    async fn a_node_that_reaches_another_does_not_start_and_the_error_names_the_url() {
        let scene = Scene::new();
        let url = scene.url(Uaid([1; 16]));
        listen(scene.port, scene.address);
        let error = check(url, &scene.log).await.unwrap_err().to_string();
        let expected = format!("another node answers at router_url http://{}", scene.address);
        assert!(error.starts_with(&expected), "{error}");
    }

    #[actix_web::test]
    async fn a_node_that_reaches_no_node_starts_and_warns_until_it_reaches_itself() {
        const UNREACHED: &str =
            "WARN this node does not reach its own router_url, other nodes may not reach it either";
        let mut scene = Scene::new();
        let instance = scene.port.instance();
        check(scene.url(instance), &scene.log).await.unwrap();
        assert_eq!(scene.next_line().await, UNREACHED);
        let retrying = spawn(retry(scene.url(instance), SOON, scene.log.clone()));
        for _ in 0..2 {
            assert_eq!(scene.next_line().await, UNREACHED);
        }
        listen(scene.port, scene.address);
        timeout(LONG, retrying).await.expect("it ends once it is reached").unwrap();
        let lines: Vec<_> = std::iter::from_fn(|| scene.lines.try_recv().ok()).collect();
        assert_eq!(lines.last().unwrap(), "INFO this node reaches its own router_url");
    }

    #[actix_web::test]
    async fn another_node_that_answers_later_is_logged_and_this_node_keeps_serving() {
        let mut scene = Scene::new();
        let url = scene.url(Uaid([1; 16]));
        let retrying = spawn(retry(url, SOON, scene.log.clone()));
        scene.next_line().await;
        let Scene { address, port, mut lines, .. } = scene;
        listen(port, address);
        let text =
            "ERRO another node answers at this node's router_url, each node needs one of its own";
        while timeout(LONG, lines.recv()).await.unwrap().unwrap() != text {}
        assert!(!retrying.is_finished());
        retrying.abort();
    }
}
