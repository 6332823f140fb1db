//! Whether the other nodes reach a connection node where it says. It asks itself before user agents are let in.

use std::time::Duration;

use actix_web::rt::spawn;
use slog::{Logger, debug, error, info, warn};
use tokio::time::sleep;

use super::ServeError;
use crate::peers::outbound::{PeerIdentity, RouterUrlCheck};

/// How often it is asked again, until it is reached.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// Asks once. Where another node answers, this one must not go on: which of the two is meant nobody can say. Where
/// nobody answers, it goes on, because some networks lead no machine back to itself, and is asked again.
pub(super) async fn check(url: RouterUrlCheck, log: &Logger) -> Result<(), ServeError> {
    match url.ask().await {
        PeerIdentity::ThisNode => {
            debug!(log, "this node's router_url is its own"; "router_url" => %url.node());
        }
        PeerIdentity::OtherNode => return Err(ServeError::RouterUrlTaken(url.node().clone())),
        PeerIdentity::Unreachable(error) => {
            warn_of(&url, &error, log);
            spawn(ask_again(url, ASK_EVERY, log.clone()));
        }
    }
    Ok(())
}

/// Asks until it is reached. User agents are connected meanwhile: another node that answers is no reason to end now.
async fn ask_again(url: RouterUrlCheck, every: Duration, log: Logger) {
    loop {
        sleep(every).await;
        match url.ask().await {
            PeerIdentity::ThisNode => {
                info!(log, "this node's router_url is reached"; "router_url" => %url.node());
                return;
            }
            PeerIdentity::OtherNode => {
                error!(log, "another node answers under this node's router_url: each node needs one of its own";
                    "router_url" => %url.node());
            }
            PeerIdentity::Unreachable(error) => warn_of(&url, &error, &log),
        }
    }
}

fn warn_of(url: &RouterUrlCheck, error: &str, log: &Logger) {
    warn!(log, "this node's router_url is not reached from here, other nodes may not reach it either";
        "router_url" => %url.node(), "error" => error);
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::sync::{Arc, Mutex};

    use actors::{Clock, NoPeers, RegistryActor};
    use slog::{Discard, Drain, Never, OwnedKVList, Record, o};
    use state_machine::delivery::NodeAnswer;
    use state_machine::{NodeId, Time, Uaid};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::time::timeout;

    use super::*;
    use crate::keys::Keys;
    use crate::peers::inbound::{PortLimits, RouterPort};
    use crate::peers::outbound::RemoteLimits;
    use crate::peers::signature::ClusterKeys;
    use crate::settings::Settings;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const SOON: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(20);

    /// A node of one process, which listens once it is told to.
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
            // A test that is over reads nothing any more.
            let _ = self.0.lock().unwrap().send(line);
            Ok(())
        }
    }

    impl Scene {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (told, lines) = unbounded_channel();
            let clock = Clock::starting_at(Time(1_796_000_000_000));
            let quiet = Logger::root(Discard, o!());
            let peers = Arc::new(NoPeers(NodeAnswer::NotHere));
            let directory = RegistryActor::new(16, peers, quiet.clone()).start(None);
            let limits = PortLimits { workers: 1, ..PortLimits::from(&Settings::default()) };
            let port = RouterPort::new(
                name(address),
                keys(),
                directory.registry(),
                clock.clone(),
                limits,
                quiet,
            );
            let log = Logger::root(Lines(Mutex::new(told)), o!());
            Self { address, port, clock, log, lines }
        }

        /// The URL of the node, as the process asks that knows `instance`.
        fn url(&self, instance: Uaid) -> RouterUrlCheck {
            let settings = Settings::default();
            let (limits, allowed) = (RemoteLimits::from(&settings), &settings.nodes_allowed);
            let (node, keys) = (name(self.address), Arc::new(keys()));
            RouterUrlCheck::new(node, instance, keys, allowed, limits, self.clock.clone())
        }

        async fn next_line(&mut self) -> String {
            timeout(LONG, self.lines.recv()).await.expect("the log says something").unwrap()
        }
    }

    fn listen(port: RouterPort, address: SocketAddr) {
        spawn(port.serve(TcpListener::bind(address).unwrap()).unwrap());
    }

    fn name(address: SocketAddr) -> NodeId {
        NodeId::new(&format!("http://{address}"))
    }

    fn keys() -> ClusterKeys {
        let keys = Keys::from_texts(&[KEY]).unwrap().with_cluster_texts(&[KEY]).unwrap();
        ClusterKeys::derive(&keys).unwrap()
    }

    #[actix_web::test]
    async fn a_node_that_reaches_itself_goes_on() {
        let mut scene = Scene::new();
        let url = scene.url(scene.port.instance());
        let log = scene.log.clone();
        listen(scene.port, scene.address);
        check(url, &log).await.unwrap();
        assert_eq!(scene.lines.recv().await.unwrap(), "DEBG this node's router_url is its own");
    }

    #[actix_web::test]
    async fn a_node_that_reaches_another_ends_and_says_where() {
        let scene = Scene::new();
        let url = scene.url(Uaid([1; 16]));
        listen(scene.port, scene.address);
        let error = check(url, &scene.log).await.unwrap_err().to_string();
        let says = format!("another node answers under router_url http://{}", scene.address);
        assert!(error.starts_with(&says), "{error}");
    }

    #[actix_web::test]
    async fn a_node_that_reaches_nobody_goes_on_and_says_so_until_it_reaches_itself() {
        const NOBODY: &str = "WARN this node's router_url is not reached from here, other nodes may not reach it either";
        let mut scene = Scene::new();
        let instance = scene.port.instance();
        check(scene.url(instance), &scene.log).await.unwrap();
        assert_eq!(scene.next_line().await, NOBODY);
        let asking = spawn(ask_again(scene.url(instance), SOON, scene.log.clone()));
        for _ in 0..2 {
            assert_eq!(scene.next_line().await, NOBODY);
        }
        listen(scene.port, scene.address);
        timeout(LONG, asking).await.expect("it ends once it is reached").unwrap();
        let said: Vec<_> = std::iter::from_fn(|| scene.lines.try_recv().ok()).collect();
        assert_eq!(said.last().unwrap(), "INFO this node's router_url is reached");
    }

    #[actix_web::test]
    async fn another_node_that_comes_later_is_told_of_and_ends_nothing() {
        let mut scene = Scene::new();
        let url = scene.url(Uaid([1; 16]));
        let asking = spawn(ask_again(url, SOON, scene.log.clone()));
        scene.next_line().await;
        let Scene { address, port, mut lines, .. } = scene;
        listen(port, address);
        let text = "ERRO another node answers under this node's router_url: each node needs one of its own";
        while timeout(LONG, lines.recv()).await.unwrap().unwrap() != text {}
        assert!(!asking.is_finished());
        asking.abort();
    }
}
