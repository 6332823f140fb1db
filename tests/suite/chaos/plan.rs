//! The plan of a run, derived from one seed.
//!
//! A seed reproduces the plan, but not its interleaving: the scheduler of the machine decides which
//! message is in transit when a node is killed.

use std::time::Duration;

use fastrand::Rng;

use crate::harness::{Clocks, Fault, Rule};

/// The number of participants, and the duration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) clients: usize,
    pub(super) connection_nodes: usize,
    pub(super) endpoint_nodes: usize,
    pub(super) senders: usize,
    pub(super) storm: Duration,
    /// Whether faults of nodes and store are planned.
    pub(super) is_stormy: bool,
}

/// All random choices of a run.
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) size: Size,
    /// Actions of each connection node.
    pub(super) connection_nodes: Vec<Vec<NodeAction>>,
    /// Actions of each endpoint node.
    pub(super) endpoint_nodes: Vec<Vec<NodeAction>>,
    /// Faults of the store.
    pub(super) outages: Vec<Outage>,
    pub(super) clocks: Clocks,
    clients: Rng,
    senders: Rng,
}

/// A planned action on a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeAction {
    /// Time since the start of the storm.
    pub(super) at: Duration,
    pub(super) kind: NodeActionKind,
    /// How long the node is down.
    pub(super) lasts: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeActionKind {
    /// SIGKILL, and a restart after the pause.
    Kill,
    /// SIGTERM, and a restart after the pause.
    Terminate,
    /// SIGSTOP, and SIGCONT after the pause.
    Stop,
}

/// A fault of the store for some time.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    /// Time since the start of the storm.
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) rule: Rule,
}

/// One connection of a user agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub(super) node: usize,
    pub(super) ack_policy: AckPolicy,
    pub(super) lasts: Duration,
    /// Whether the agent registers a further channel.
    pub(super) registers: bool,
    pub(super) disconnect: Disconnect,
    /// How long the agent is offline afterwards.
    pub(super) away: Duration,
}

/// When a user agent acks what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckPolicy {
    /// Acks every message on arrival.
    Prompt,
    /// Acks all received messages after this delay.
    Late(Duration),
    /// Does not ack at all.
    Silent,
    /// Acks on its next connection, possibly to another node.
    NextTime,
    /// Reads nothing for this long, and then acks on arrival.
    Stalled(Duration),
}

/// How a user agent ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disconnect {
    /// With a close frame.
    CloseFrame,
    /// Closes the TCP connection without a close frame.
    CloseTcp,
    /// Leaves the connection open without reading it, and connects elsewhere.
    Abandon,
}

/// A push of an application server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Push {
    /// How long the sender waits before the push.
    pub(super) pause: Duration,
    /// The index of the endpoint node.
    pub(super) endpoint: usize,
    pub(super) client: usize,
    /// Modulo the number of channels that the client then has, the index of the channel.
    pub(super) channel: usize,
    pub(super) topic: Option<&'static str>,
    pub(super) ttl_s: u32,
    /// Padding of the body, in bytes.
    pub(super) size: usize,
}

/// The endless sequence of connections of one user agent.
pub(super) struct Sessions {
    rng: Rng,
    nodes: usize,
}

/// The endless sequence of pushes of one concurrent lane of a sender.
pub(super) struct Pushes {
    rng: Rng,
    size: Size,
}

/// Deals every card once before it shuffles again, so that a short run covers all cases too.
struct ShuffledDeck<T> {
    cards: Vec<T>,
    dealt: usize,
}

/// The number of user agents that receive half of all messages.
const POPULAR: usize = 20;

/// A TTL that is longer than every run.
const TTL_LONG_S: u32 = 30 * 24 * 60 * 60;

/// Seconds by which a node's clock is ahead or behind at most. Two nodes refuse each other's requests if their clocks
/// are further apart than `cluster_clock_skew_s`, which is 60; a stopped node gets some of them seconds later.
const CLOCK_AHEAD_S: i64 = 20;

/// Only agents connect and disconnect in the first and last seconds of the storm, without other
/// faults.
const QUIET: Duration = Duration::from_secs(3);

const DEEDS: [NodeActionKind; 4] =
    [NodeActionKind::Kill, NodeActionKind::Stop, NodeActionKind::Terminate, NodeActionKind::Kill];

impl Plan {
    pub(super) fn draw(seed: u64, size: Size) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut plan = Self {
            seed,
            size,
            connection_nodes: vec![Vec::new(); size.connection_nodes],
            endpoint_nodes: vec![Vec::new(); size.endpoint_nodes],
            outages: Vec::new(),
            clocks: Clocks::default(),
            clients: rng.fork(),
            senders: rng.fork(),
        };
        if size.is_stormy {
            let mut deck = ShuffledDeck::of(&DEEDS);
            plan.connection_nodes.fill_with(|| actions(size.storm, 2..8, &mut deck, &mut rng));
            let mut deck = ShuffledDeck::of(&DEEDS);
            plan.endpoint_nodes.fill_with(|| actions(size.storm, 4..14, &mut deck, &mut rng));
            plan.outages = outages(size.storm, &mut rng);
            plan.clocks = Clocks {
                connection_nodes: clocks(size.connection_nodes, &mut rng),
                endpoint_nodes: clocks(size.endpoint_nodes, &mut rng),
            };
        }
        plan
    }

    /// One sequence for each user agent.
    pub(super) fn sessions(&self) -> Vec<Sessions> {
        let mut rng = self.clients.clone();
        let nodes = self.size.connection_nodes;
        (0..self.size.clients).map(|_| Sessions { rng: rng.fork(), nodes }).collect()
    }

    /// For each sender, one sequence per lane.
    pub(super) fn pushes(&self, lanes: usize) -> Vec<Vec<Pushes>> {
        let mut rng = self.senders.clone();
        let mut lane = || Pushes { rng: rng.fork(), size: self.size };
        (0..self.size.senders).map(|_| (0..lanes).map(|_| lane()).collect()).collect()
    }
}

/// The clocks of some nodes, from one that is behind to one that is ahead, in any order.
fn clocks(nodes: usize, rng: &mut Rng) -> Vec<i64> {
    let step = 2 * CLOCK_AHEAD_S / i64::try_from(nodes - 1).expect("there are few").max(1);
    let mut clocks: Vec<_> =
        (-CLOCK_AHEAD_S..=CLOCK_AHEAD_S).step_by(step.unsigned_abs() as usize).collect();
    rng.shuffle(&mut clocks);
    clocks
}

/// The actions of one node, with an undisturbed interval after each.
fn actions(
    storm: Duration,
    pause_s: std::ops::Range<u64>,
    deck: &mut ShuffledDeck<NodeActionKind>,
    rng: &mut Rng,
) -> Vec<NodeAction> {
    let (mut actions, mut at) = (Vec::new(), QUIET);
    loop {
        at += millis(pause_s.start * 1000..pause_s.end * 1000, rng);
        let lasts = millis(300..3000, rng);
        if at + lasts + QUIET > storm {
            return actions;
        }
        actions.push(NodeAction { at, kind: deck.deal(rng), lasts });
        at += lasts;
    }
}

fn outages(storm: Duration, rng: &mut Rng) -> Vec<Outage> {
    let slow = millis(200..1500, rng);
    let mut deck = ShuffledDeck::of(&[
        Rule::on("", Fault::Throttled).every(2),
        Rule::on("", Fault::Slow(slow)).every(2),
        Rule::on("", Fault::Error(500, "InternalServerError")).every(3),
        Rule::on("", Fault::CutAfter).every(4),
        Rule::on("", Fault::CutBefore),
        Rule::on("", Fault::HeldThenCut),
        Rule::on("", Fault::Throttled).table("message_"),
    ]);
    let (mut outages, mut at) = (Vec::new(), QUIET);
    loop {
        at += millis(500..6000, rng);
        let lasts = millis(800..3500, rng);
        if at + lasts + QUIET > storm {
            return outages;
        }
        outages.push(Outage { at, lasts, rule: deck.deal(rng) });
        at += lasts;
    }
}

impl Sessions {
    pub(super) fn next(&mut self) -> Session {
        let rng = &mut self.rng;
        let ack_policy = match rng.usize(..20) {
            0..=2 => AckPolicy::Late(millis(300..4000, rng)),
            3..=4 => AckPolicy::Silent,
            5..=6 => AckPolicy::NextTime,
            7..=8 => AckPolicy::Stalled(millis(500..6000, rng)),
            _ => AckPolicy::Prompt,
        };
        let disconnect = match rng.usize(..4) {
            0 => Disconnect::CloseFrame,
            1 => Disconnect::Abandon,
            _ => Disconnect::CloseTcp,
        };
        let away = if rng.usize(..3) == 0 { millis(200..4000, rng) } else { Duration::ZERO };
        let lasts = millis(3000..25_000, rng);
        let registers = rng.usize(..10) == 0;
        Session { node: rng.usize(..self.nodes), ack_policy, lasts, registers, disconnect, away }
    }
}

impl Pushes {
    pub(super) fn next(&mut self) -> Push {
        let rng = &mut self.rng;
        let among = if rng.bool() { POPULAR } else { self.size.clients };
        Push {
            pause: millis(50..450, rng),
            endpoint: rng.usize(..self.size.endpoint_nodes),
            client: rng.usize(..among),
            channel: rng.usize(..usize::MAX),
            topic: [Some("news"), Some("mail"), None, None, None, None, None, None][rng.usize(..8)],
            ttl_s: match rng.usize(..20) {
                0 => 0,
                1..=2 => rng.u32(1..8),
                _ => TTL_LONG_S,
            },
            size: if rng.usize(..8) == 0 { rng.usize(1000..4000) } else { rng.usize(..200) },
        }
    }
}

impl<T: Clone> ShuffledDeck<T> {
    fn of(cards: &[T]) -> Self {
        Self { cards: cards.to_vec(), dealt: cards.len() }
    }

    fn deal(&mut self, rng: &mut Rng) -> T {
        if self.dealt == self.cards.len() {
            rng.shuffle(&mut self.cards);
            self.dealt = 0;
        }
        self.dealt += 1;
        self.cards[self.dealt - 1].clone()
    }
}

fn millis(range: std::ops::Range<u64>, rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Size = Size {
        clients: 25,
        connection_nodes: 3,
        endpoint_nodes: 2,
        senders: 2,
        storm: Duration::from_secs(60),
        is_stormy: true,
    };

    /// A textual form of the plan, with the first elements of each endless sequence.
    fn whole(seed: u64) -> String {
        let plan = Plan::draw(seed, MINUTE);
        let sessions: Vec<_> =
            plan.sessions().iter_mut().map(|sessions| [sessions.next(), sessions.next()]).collect();
        let mut lanes = plan.pushes(3);
        let pushes: Vec<_> = lanes.iter_mut().flatten().map(Pushes::next).collect();
        format!(
            "{:?}{:?}{:?}{:?}{sessions:?}{pushes:?}",
            plan.connection_nodes, plan.endpoint_nodes, plan.outages, plan.clocks
        )
    }

    #[test]
    fn a_seed_determines_the_plan() {
        assert_eq!(whole(1), whole(1));
        assert_ne!(whole(1), whole(2));
    }

    #[test]
    fn a_plan_of_a_minute_contains_every_fault_and_none_after_its_end() {
        let plan = Plan::draw(3, MINUTE);
        for actions in [&plan.connection_nodes, &plan.endpoint_nodes] {
            for kind in DEEDS {
                assert!(actions.iter().flatten().any(|action| action.kind == kind), "{kind:?}");
            }
            assert!(actions.iter().flatten().all(|action| action.at + action.lasts < MINUTE.storm));
        }
        assert!(plan.outages.len() >= 7);
        assert!(plan.outages.iter().all(|outage| outage.at + outage.lasts < MINUTE.storm));
    }
}
