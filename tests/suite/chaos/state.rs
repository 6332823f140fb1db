//! The state that all tasks of a run share: addresses of the nodes, the ledger, and the stage.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;

use super::client::Client;
use super::ledger::Ledger;
use super::node_driver::NodeEvent;
use super::plan::{Outage, Plan};
use super::reconnects::Reconnects;
use crate::harness::{Channel, Clocks};

/// The stages of a run, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Faults are injected while senders and agents are active.
    Storm,
    /// All faults are removed, and the agents receive what is left.
    Drain,
    /// Every agent connects once more and receives only one last message.
    Last,
}

/// How long requests are retried after a fault of the store has ended.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The shared state of a run.
pub(super) struct RunState {
    pub(super) began: Instant,
    /// The addresses of the connection nodes.
    pub(super) connection_nodes: Vec<SocketAddr>,
    /// The origin of each endpoint node.
    pub(super) endpoint_nodes: Vec<String>,
    pub(super) clients: Vec<Client>,
    outages: Vec<Outage>,
    clocks: Clocks,
    ledger: RefCell<Ledger>,
    reconnects: RefCell<Reconnects>,
    hellos: Cell<Hellos>,
    nodes: RefCell<NodeTally>,
    stage: watch::Sender<Stage>,
    /// The agents that are connected for the drain.
    draining: watch::Sender<BTreeSet<usize>>,
}

/// The figures about hellos in the report.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hellos {
    pub(super) answered: usize,
    /// Connections that failed, or that the node closed before its answer.
    pub(super) refused: usize,
    /// Hellos that the agent repeated because no answer arrived in time.
    pub(super) given_up: usize,
    /// Maximum time from the first attempt to the answer.
    pub(super) longest: Duration,
}

/// The figures about nodes in the report.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeTally {
    pub(super) kills: usize,
    pub(super) stops: usize,
    /// Time from SIGTERM to the end of each terminated node, while the store was healthy.
    pub(super) ends: Vec<Duration>,
    /// The same while the store was faulty: such a node may be unable to finish its writes, and
    /// exits with an error.
    pub(super) ends_during_outages: Vec<Duration>,
    /// Starts that failed because the store was down.
    pub(super) failed_starts: usize,
}

impl RunState {
    pub(super) fn new(
        connection_nodes: Vec<SocketAddr>,
        endpoint_nodes: Vec<String>,
        clients: Vec<Client>,
        plan: &Plan,
    ) -> Self {
        let began = Instant::now();
        Self {
            began,
            connection_nodes,
            endpoint_nodes,
            ledger: RefCell::new(Ledger::new(began)),
            reconnects: RefCell::new(Reconnects::of(clients.len())),
            clients,
            outages: plan.outages.clone(),
            clocks: plan.clocks.clone(),
            hellos: Cell::default(),
            nodes: RefCell::default(),
            stage: watch::Sender::new(Stage::Storm),
            draining: watch::Sender::default(),
        }
    }

    pub(super) fn ledger(&self) -> RefMut<'_, Ledger> {
        self.ledger.borrow_mut()
    }

    pub(super) fn reconnects(&self) -> RefMut<'_, Reconnects> {
        self.reconnects.borrow_mut()
    }

    /// The channel's endpoint URL at an endpoint node.
    pub(super) fn endpoint(&self, node: usize, channel: &Channel) -> String {
        let path = channel.endpoint.strip_prefix(&self.endpoint_nodes[0]);
        format!("{}{}", self.endpoint_nodes[node], path.expect("all endpoints begin alike"))
    }

    /// The time before which no connection node drops a message with this TTL that an endpoint node accepts now: the
    /// latest clock of the connection nodes reads what the endpoint node's clock has written.
    pub(super) fn lives(&self, ttl: Duration, endpoint: usize) -> Duration {
        let written = self.clocks.endpoint_nodes.get(endpoint).copied().unwrap_or(0);
        let early = self.clocks.latest_of_connection_nodes_s() - written;
        let apart = Duration::from_secs(early.unsigned_abs());
        if early > 0 { ttl.saturating_sub(apart) } else { ttl + apart }
    }

    /// Records what happened to a node.
    pub(super) fn on_node_event(&self, events: NodeEvent) {
        let mut nodes = self.nodes.borrow_mut();
        match events {
            NodeEvent::Killed { connect, at } => {
                nodes.kills += 1;
                if let Some(node) = connect {
                    self.reconnects().node_killed(node, at);
                }
            }
            NodeEvent::Stopped { connect, at } => {
                nodes.stops += 1;
                if let Some(node) = connect {
                    self.ledger().stopped(node, at);
                }
            }
            NodeEvent::Continued { connect, at } => {
                if let Some(node) = connect {
                    self.ledger().continued(node, at);
                }
            }
            NodeEvent::Ended { signalled_at, at, .. }
                if self.store_was_faulty(signalled_at, at) =>
            {
                nodes.ends_during_outages.push(at - signalled_at);
            }
            NodeEvent::Ended { signalled_at, at, status } => {
                nodes.ends.push(at - signalled_at);
                if !status.success() {
                    let found = format!("a terminated node ended with {status}");
                    self.ledger().report(found);
                }
            }
            NodeEvent::DidNotStart => nodes.failed_starts += 1,
        }
    }

    /// Whether the store was faulty in this interval, or shortly before it.
    pub(super) fn store_was_faulty(&self, from: Instant, until: Instant) -> bool {
        let meets = |outage: &Outage| {
            let began = self.began + outage.at;
            began <= until && from <= began + outage.lasts + RETRY_PERIOD
        };
        self.outages.iter().any(meets)
    }

    pub(super) fn count_hello(&self, count: impl Fn(&mut Hellos)) {
        let mut hellos = self.hellos.get();
        count(&mut hellos);
        self.hellos.set(hellos);
    }

    pub(super) fn hellos(&self) -> Hellos {
        self.hellos.get()
    }

    pub(super) fn nodes(&self) -> NodeTally {
        self.nodes.borrow().clone()
    }

    pub(super) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Waits until the run has left the stage.
    pub(super) async fn end_of(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        stages.wait_for(|now| *now > stage).await.expect("the run holds the state");
    }

    /// The agent is connected for the drain.
    pub(super) fn is_draining(&self, client: usize) {
        self.draining.send_modify(|draining| {
            draining.insert(client);
        });
    }

    /// Waits until all agents are connected for the drain.
    pub(super) async fn all_draining(&self) {
        let mut draining = self.draining.subscribe();
        let are_all_there = draining.wait_for(|draining| draining.len() == self.clients.len());
        are_all_there.await.expect("the run holds the state");
    }

    /// Waits until this time or the end of the storm.
    pub(super) async fn until(&self, at: Instant) {
        tokio::select! {
            () = sleep_until(at.into()) => {}
            () = self.end_of(Stage::Storm) => {}
        }
    }

    /// Waits for this long or until the end of the storm.
    pub(super) async fn pause(&self, wait: Duration) {
        self.until(Instant::now() + wait).await;
    }
}
