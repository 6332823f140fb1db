//! What everybody shares: where the nodes are, the ledger, and which stage it is.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;

use super::client::Client;
use super::comebacks::Comebacks;
use super::ledger::Ledger;
use super::minder::News;
use super::plan::Spell;
use crate::harness::Channel;

/// The stages of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Everything happens.
    Storm,
    /// All is healed: everybody takes what is left.
    Drain,
    /// Everybody connects once more, and nothing comes but one last message.
    Last,
}

/// How long a store that is well again is asked a second time by those it failed.
const CONVALESCENCE: Duration = Duration::from_secs(2);

/// The scene of a run.
pub(super) struct Scene {
    pub(super) began: Instant,
    /// Where user agents connect.
    pub(super) connects: Vec<SocketAddr>,
    /// What endpoints begin with, for each endpoint node.
    pub(super) endpoints: Vec<String>,
    pub(super) clients: Vec<Client>,
    spells: Vec<Spell>,
    ledger: RefCell<Ledger>,
    comebacks: RefCell<Comebacks>,
    hellos: Cell<Hellos>,
    nodes: RefCell<NodeTally>,
    stage: watch::Sender<Stage>,
    /// Who is there to take what is left.
    draining: watch::Sender<BTreeSet<usize>>,
}

/// What the report says of hellos.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hellos {
    pub(super) answered: usize,
    /// The node was not there, or refused, or ended the connection.
    pub(super) refused: usize,
    /// There was no answer for so long that the user agent tried again.
    pub(super) given_up: usize,
    /// From the first try to the answer, at most.
    pub(super) longest: Duration,
}

/// What the report says of nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeTally {
    pub(super) kills: usize,
    pub(super) stops: usize,
    /// How long each that was told to end took to do so, while the store was well.
    pub(super) ends: Vec<Duration>,
    /// The same while it was not: such a node may not get done with what it has to write, and says so.
    pub(super) ends_ill: Vec<Duration>,
    /// Starts that failed because the store was away.
    pub(super) failed_starts: usize,
}

impl Scene {
    pub(super) fn new(
        connects: Vec<SocketAddr>,
        endpoints: Vec<String>,
        clients: Vec<Client>,
        spells: Vec<Spell>,
    ) -> Self {
        let began = Instant::now();
        Self {
            began,
            connects,
            endpoints,
            ledger: RefCell::new(Ledger::new(began)),
            comebacks: RefCell::new(Comebacks::of(clients.len())),
            clients,
            spells,
            hellos: Cell::default(),
            nodes: RefCell::default(),
            stage: watch::Sender::new(Stage::Storm),
            draining: watch::Sender::default(),
        }
    }

    pub(super) fn ledger(&self) -> RefMut<'_, Ledger> {
        self.ledger.borrow_mut()
    }

    pub(super) fn comebacks(&self) -> RefMut<'_, Comebacks> {
        self.comebacks.borrow_mut()
    }

    /// A channel's endpoint at one of the endpoint nodes.
    pub(super) fn endpoint(&self, node: usize, channel: &Channel) -> String {
        let path = channel.endpoint.strip_prefix(&self.endpoints[0]);
        format!("{}{}", self.endpoints[node], path.expect("all endpoints begin alike"))
    }

    /// Something happened to a node.
    pub(super) fn hears(&self, news: News) {
        let mut nodes = self.nodes.borrow_mut();
        match news {
            News::Died { connect, at } => {
                nodes.kills += 1;
                if let Some(node) = connect {
                    self.comebacks().died(node, at);
                }
            }
            News::Stopped { connect, at } => {
                nodes.stops += 1;
                if let Some(node) = connect {
                    self.ledger().stopped(node, at);
                }
            }
            News::WentOn { connect, at } => {
                if let Some(node) = connect {
                    self.ledger().went_on(node, at);
                }
            }
            News::Ended { told_at, at, .. } if self.store_was_ill(told_at, at) => {
                nodes.ends_ill.push(at - told_at);
            }
            News::Ended { told_at, at, status } => {
                nodes.ends.push(at - told_at);
                if !status.success() {
                    let found = format!("a node that was told to end did so with {status}");
                    self.ledger().found(found);
                }
            }
            News::DidNotStart => nodes.failed_starts += 1,
        }
    }

    /// Whether it was, or had been until a moment before.
    pub(super) fn store_was_ill(&self, from: Instant, until: Instant) -> bool {
        let meets = |spell: &Spell| {
            let began = self.began + spell.at;
            began <= until && from <= began + spell.lasts + CONVALESCENCE
        };
        self.spells.iter().any(meets)
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

    pub(super) fn enters(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Waits for the end of a stage.
    pub(super) async fn end_of(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        stages.wait_for(|now| *now > stage).await.expect("the scene is there");
    }

    /// A user agent is there to take what is left.
    pub(super) fn is_draining(&self, client: usize) {
        self.draining.send_modify(|draining| {
            draining.insert(client);
        });
    }

    /// Waits until all are.
    pub(super) async fn all_draining(&self) {
        let mut draining = self.draining.subscribe();
        let are_all_there = draining.wait_for(|draining| draining.len() == self.clients.len());
        are_all_there.await.expect("the scene is there");
    }

    /// Waits until then, or until the storm is over.
    pub(super) async fn until(&self, at: Instant) {
        tokio::select! {
            () = sleep_until(at.into()) => {}
            () = self.end_of(Stage::Storm) => {}
        }
    }

    /// Waits for so long, or until the storm is over.
    pub(super) async fn pause(&self, wait: Duration) {
        self.until(Instant::now() + wait).await;
    }
}
