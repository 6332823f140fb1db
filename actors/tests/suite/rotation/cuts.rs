//! A move that is interrupted at each of its store operations, in every way. The next connection
//! completes it: all messages arrive, none is redelivered once its ack is settled, no row stays.
//!
//! The operations are those of an uninterrupted move, so none is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use state_machine::connection::PhaseName;
use state_machine::delivery::Outcome;
use state_machine::{MessageId, Uaid};

use super::agent::Agent;
use super::world::{DRAIN_WAIT, NEW, OLD, STORE_RETRY, World, it_becomes, lasting, month};
use crate::node::{Act, Fate, Node};
use crate::traces;

/// An event during a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plot {
    /// The agent acks what it gets.
    Acks,
    /// It acks nothing before it is ready, and then all.
    IsSilent,
    /// It acks, and an endpoint stores in the old table right before the record moves.
    GetsOneLate,
}

/// How a move is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The node dies; the order was not out.
    DiesBefore,
    /// The node dies; the order was carried out.
    DiesAfter,
    /// The agent hangs up; the order is on its way.
    HangsUpBefore,
    /// The agent hangs up; the order was carried out.
    HangsUpAfter,
    /// The store fails the operation once, and the connection continues.
    IsRefused,
    /// The store executes the operation and reports a failure, and the connection continues.
    IsInDoubt,
}

use Cut::{DiesAfter, DiesBefore, HangsUpAfter, HangsUpBefore, IsInDoubt, IsRefused};

const CUTS: [Cut; 6] = [DiesBefore, DiesAfter, HangsUpBefore, HangsUpAfter, IsRefused, IsInDoubt];

pub(crate) async fn a_move_is_brought_to_its_end_wherever_it_is_cut(world: World) {
    cuts_everywhere(&world, Plot::Acks, &super::moving::MOVE).await;
}

pub(crate) async fn a_move_of_a_silent_agent_is_brought_to_its_end_wherever_it_is_cut(
    world: World,
) {
    let orders = [
        "register",
        "read channels 2026_11",
        "fetch 2026_11",
        "record offers 2026_11",
        "add channels 2026_12",
        "update month",
        "carry 2026_11 2026_12",
        "finish move",
        "fetch 2026_12",
        "delete [2026_12]",
    ];
    cuts_everywhere(&world, Plot::IsSilent, &orders).await;
}

pub(crate) async fn a_move_with_a_row_stored_late_is_brought_to_its_end_wherever_it_is_cut(
    world: World,
) {
    let orders = [
        "register",
        "read channels 2026_11",
        "fetch 2026_11",
        "delete [2026_11, 2026_12]",
        "add channels 2026_12",
        "update month",
        "fetch 2026_11",
        "delete [2026_11, 2026_12]",
        "finish move",
        "fetch 2026_12",
    ];
    cuts_everywhere(&world, Plot::GetsOneLate, &orders).await;
}

pub(crate) async fn a_move_whose_node_dies_twice_is_brought_to_its_end(world: World) {
    let mut number = 0;
    for plot in [Plot::IsSilent, Plot::GetsOneLate] {
        for first in 0..9 {
            let mut second = 0;
            loop {
                number += 1;
                let play = Play::begin(&world, plot, number).await;
                if !play.dies_twice(first, second).await {
                    break;
                }
                second += 1;
            }
            assert!(second >= 3, "the next connection has more to do after {first}");
        }
    }
}

async fn cuts_everywhere(world: &World, plot: Plot, expected: &[&str]) {
    let mut number = 1;
    let orders = Play::begin(world, plot, number).await.goes_well().await;
    assert_eq!(orders, expected);
    for (at, order) in orders.iter().enumerate() {
        for cut in CUTS {
            number += 1;
            let play = Play::begin(world, plot, number).await;
            let orders = play.goes_wrong(at, cut).await;
            assert_eq!(orders[at], *order, "{cut:?}");
        }
    }
}

struct Play<'a> {
    world: &'a World,
    plot: Plot,
    node: Node,
    uaid: Uaid,
    /// What it must get.
    waiting: Vec<MessageId>,
    /// Puts a row into the old table, once.
    late: Act,
}

impl<'a> Play<'a> {
    async fn begin(world: &'a World, plot: Plot, number: u8) -> Self {
        let node = world.node_in(OLD);
        let (uaid, mut waiting) = world.agent_of_last_month(&node, number, 2).await;
        it_becomes(&node, NEW);
        let late = match plot {
            Plot::Acks | Plot::IsSilent => Arc::new(|| {}) as _,
            Plot::GetsOneLate => {
                let (id, late) = late_row(&node, uaid);
                waiting.push(id);
                late
            }
        };
        Self { world, plot, node, uaid, waiting, late }
    }

    /// Without a cut; the orders.
    async fn goes_well(self) -> Vec<String> {
        self.node.orders.lift();
        let mut agent = self.agent_on(&self.node);
        while self.goes_on(&mut agent, &self.node).await {}
        let orders = self.node.orders.orders();
        assert_eq!(agent.got, self.waiting);
        self.ends_with(&agent.hangs_up().await).await;
        orders
    }

    /// With a cut at an order; the orders up to there, at least.
    async fn goes_wrong(self, at: usize, cut: Cut) -> Vec<String> {
        self.node.orders.set(at, cut.fate());
        let mut agent = self.agent_on(&self.node);
        assert!(self.is_met(&mut agent, &self.node).await, "{at} {cut:?}");
        let orders = self.node.orders.orders();
        let got = match cut {
            DiesBefore | DiesAfter => {
                let got = agent.vanishes().await;
                [got, self.comes_back(&self.another_node()).await].concat()
            }
            HangsUpBefore | HangsUpAfter => {
                let got = agent.hangs_up().await;
                self.node.orders.release();
                [got, self.comes_back(&self.node).await].concat()
            }
            IsRefused | IsInDoubt => {
                while self.goes_on(&mut agent, &self.node).await {}
                agent.hangs_up().await
            }
        };
        self.ends_with(&got).await;
        orders
    }

    /// Its node dies right after an order was carried out, and the next one too. Answers whether
    /// that had so many.
    async fn dies_twice(self, first: usize, second: usize) -> bool {
        self.node.orders.set(first, Fate::Unheard);
        let mut agent = self.agent_on(&self.node);
        assert!(self.is_met(&mut agent, &self.node).await, "{first}");
        let mut got = agent.vanishes().await;
        let next = self.another_node();
        next.orders.set(second, Fate::Unheard);
        let mut agent = self.agent_on(&next);
        let is_met = self.is_met(&mut agent, &next).await;
        got.extend(agent.vanishes().await);
        got.extend(self.comes_back(&self.another_node()).await);
        self.ends_with(&got).await;
        is_met
    }

    /// Runs a connection until an operation meets the fate that is set. Returns whether one did.
    async fn is_met(&self, agent: &mut Agent, node: &Node) -> bool {
        loop {
            tokio::select! {
                biased;
                () = node.orders.has_met(1) => return true,
                is_on = self.goes_on(agent, node) => if !is_on { return false },
            }
        }
    }

    /// The node after a restart: its registry is empty, and its clock continues.
    fn another_node(&self) -> Node {
        self.world.node(self.node.clients.clock.now(), |_| {})
    }

    fn agent_on(&self, node: &Node) -> Agent {
        let late = Arc::clone(&self.late);
        node.orders.before("update month", late);
        match self.plot {
            Plot::Acks | Plot::GetsOneLate => Agent::connects(node, self.uaid),
            Plot::IsSilent => Agent::silent(node, self.uaid),
        }
    }

    /// Runs a connection. Returns whether it is not yet done.
    async fn goes_on(&self, agent: &mut Agent, node: &Node) -> bool {
        agent.is_waited_for().await;
        let now = traces::line(agent.line());
        assert_eq!(agent.closed, None);
        if now.waits_for_retry() {
            agent.lets_pass(node, STORE_RETRY);
        } else if now.phase != PhaseName::Ready {
            assert_eq!(self.plot, Plot::IsSilent, "{now:?}");
            agent.lets_pass(node, DRAIN_WAIT);
        } else if agent.is_silent() {
            agent.acks_all();
        } else {
            return false;
        }
        true
    }

    /// The agent reconnects, and acks.
    async fn comes_back(&self, node: &Node) -> Vec<MessageId> {
        node.orders.lift();
        node.orders.before("update month", Arc::clone(&self.late));
        Agent::visits(node, self.uaid).await
    }

    /// All stored messages were received, all is done, and another connection gets none.
    async fn ends_with(&self, got: &[MessageId]) {
        assert!(self.waiting.iter().all(|id| got.contains(id)), "{got:?} of {:?}", self.waiting);
        self.world.is_done_with(self.uaid, NEW).await;
        assert_eq!(Agent::visits(&self.another_node(), self.uaid).await, []);
    }
}

impl Cut {
    fn fate(self) -> Fate {
        match self {
            DiesBefore => Fate::Lost,
            DiesAfter | HangsUpAfter => Fate::Unheard,
            HangsUpBefore => Fate::Held,
            IsRefused => Fate::Refused,
            IsInDoubt => Fate::Doubted,
        }
    }
}

/// A message that an endpoint puts into the old table at the first request.
fn late_row(node: &Node, uaid: Uaid) -> (MessageId, Act) {
    let message = lasting(node);
    let (id, store, is_stored) = (message.id, Arc::clone(&node.store), AtomicBool::new(false));
    let put = move || {
        if is_stored.swap(true, Ordering::Relaxed) {
            return;
        }
        // Ordered before the record moves: the endpoint's second look sees the old month, so it is
        // a 201.
        drop(store.store_message(uaid, month(OLD), message.clone()));
        traces::told(uaid, message.clone(), Outcome::Stored);
    };
    (id, Arc::new(put))
}
