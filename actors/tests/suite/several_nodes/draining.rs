//! A node that shuts down over a time: each session closes at its own moment, and nothing is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use actors::registry::{CountConnections, ShutDown};
use serde_json::{Value, json};
use state_machine::connection::CloseReason;
use state_machine::delivery::Outcome;
use state_machine::{MessageId, Span, Uaid};

use super::Places;
use crate::clockwork::{self, pass, settle};
use crate::node::{Node, UserAgent, Way};
use crate::wire::Sent;

/// Agents on the node.
const AGENTS: u8 = 10;

/// One of them for every second.
const SPREAD: Duration = Duration::from_secs(AGENTS as u64);

const SECOND: Span = Span(1000);

/// Right before a moment that is a whole second away from the last one.
const ALMOST: Span = Span(999);

const REST: Span = Span(1);

#[clockwork::test]
async fn sessions_are_closed_one_after_the_other_over_the_whole_drain() {
    let (places, mut agents) = drained(SPREAD).await;
    for closed in 1..=usize::from(AGENTS) {
        assert_eq!(connected(&places.a).await, usize::from(AGENTS) - closed);
        pass(ALMOST).await;
        assert_eq!(connected(&places.a).await, usize::from(AGENTS) - closed);
        pass(REST).await;
    }
    for agent in &mut agents {
        assert_eq!(agent.is_closed().await, CloseReason::Shutdown);
        until_no_node(&places, agent.uaid).await;
    }
}

#[clockwork::test]
async fn all_sessions_are_closed_though_nothing_ran_until_the_drain_was_over() {
    let (places, mut agents) = drained(SPREAD).await;
    tokio::time::advance(SPREAD).await;
    settle().await;
    assert_eq!(connected(&places.a).await, 0);
    are_closed(&mut agents).await;
}

#[test]
fn a_drain_of_no_time_closes_more_sessions_than_one_batch() {
    // More than the registry closes before other tasks run.
    const MANY: u16 = 600;
    clockwork::run(async {
        let places = Places::new().await;
        let mut agents = Vec::new();
        for number in 0..MANY {
            let mut uaid = [0; 16];
            uaid[..2].copy_from_slice(&number.to_be_bytes());
            let mut agent = UserAgent::connect(&places.a, Uaid(uaid));
            agent.says(&json!({"messageType": "hello"}));
            assert_eq!(agent.hears().await["status"], 200);
            agents.push(agent);
        }
        assert_eq!(connected(&places.a).await, usize::from(MANY));
        shut_down(&places.a, Duration::ZERO).await;
        are_closed(&mut agents).await;
    });
}

#[clockwork::test]
async fn a_session_that_is_still_open_during_a_drain_gets_direct_pushes() {
    let (places, mut agents) = drained(SPREAD).await;
    pass(Span(SECOND.0 * 5)).await;
    let (mut open, mut closed) = (0, 0);
    for agent in &mut agents {
        if places.a.find(agent.uaid).await.is_some() {
            places.sender.delivers(agent).await;
            open += 1;
        } else {
            places.sender.stores(agent.uaid).await;
            closed += 1;
        }
    }
    assert_eq!((open, closed), (4, 6));
}

#[clockwork::test]
async fn unacked_pushes_are_stored_when_the_drain_closes_their_session() {
    let places = Places::new().await;
    let mut agents = agents_on(&places.a).await;
    let mut waiting = Vec::new();
    pass(SECOND).await;
    shut_down(&places.a, Duration::ZERO).await;
    are_closed(&mut agents).await;
    let mut agents = agents_on(&places.b).await;
    for agent in &mut agents {
        waiting.push(places.sender.sends(agent).await);
    }
    shut_down(&places.b, Duration::from_millis(500)).await;
    pass(Span(500)).await;
    for (agent, (id, sent)) in agents.iter_mut().zip(waiting) {
        assert_eq!(sent.await.unwrap(), Outcome::Stored, "before any ack wait was over");
        assert_eq!(agent.is_closed().await, CloseReason::Shutdown);
        assert_eq!(places.sender.stored(agent.uaid).await, [id]);
    }
}

#[clockwork::test]
async fn an_agent_that_connects_during_a_drain_is_closed_at_once() {
    let (places, _agents) = drained(SPREAD).await;
    let mut late = UserAgent::connect(&places.a, Uaid([99; 16]));
    late.says(&json!({"messageType": "hello"}));
    assert_eq!(late.hears().await["status"], 200);
    assert_eq!(late.is_closed().await, CloseReason::Shutdown, "with no time gone by");
}

#[clockwork::test]
async fn a_session_that_ended_during_a_drain_is_skipped() {
    let (places, agents) = drained(SPREAD).await;
    let mut there = Vec::new();
    for agent in agents {
        match places.a.find(agent.uaid).await {
            Some(_) if there.len() < 3 => there.push(agent),
            Some(_) => drop(agent.hangs_up().await),
            None => {}
        }
    }
    assert_eq!(connected(&places.a).await, 3);
    tokio::time::advance(SPREAD).await;
    settle().await;
    are_closed(&mut there).await;
}

#[clockwork::test]
async fn a_second_shutdown_can_shorten_a_drain_and_not_lengthen_it() {
    let (places, mut agents) = drained(SPREAD).await;
    shut_down(&places.a, 10 * SPREAD).await;
    pass(SECOND).await;
    assert_eq!(connected(&places.a).await, usize::from(AGENTS) - 2, "no effect");
    shut_down(&places.a, Duration::from_millis(800)).await;
    for left in (0..8).rev() {
        assert_eq!(connected(&places.a).await, left);
        pass(Span(100)).await;
    }
    are_closed(&mut agents).await;
}

#[clockwork::test]
async fn a_drain_does_not_clear_a_record_that_names_another_node() {
    let places = Places::new().await;
    let mut agent = UserAgent::new(&places.a, 1).await;
    places.set_way("a", Way::Hangs);
    let mut newer = UserAgent::back(&places.b, agent.uaid).await;
    shut_down(&places.a, Duration::ZERO).await;
    assert_eq!(agent.is_closed().await, CloseReason::Shutdown, "no other node had notified it");
    settle().await;
    assert_eq!(places.node_of(agent.uaid).await.as_deref(), Some("b"));
    newer.heard_nothing_more();
}

#[clockwork::test]
async fn a_frozen_session_delays_no_other_and_closes_when_it_resumes() {
    let places = Places::new().await;
    let mut agents = agents_on(&places.a).await;
    let go_on = agents[0].stands_still().await;
    shut_down(&places.a, SPREAD).await;
    for _ in 0..AGENTS {
        pass(SECOND).await;
    }
    assert_eq!(connected(&places.a).await, 1);
    are_closed(&mut agents[1..]).await;
    drop(go_on);
    assert_eq!(agents[0].is_closed().await, CloseReason::Shutdown);
    until_no_node(&places, agents[0].uaid).await;
}

#[clockwork::test]
async fn messages_sent_during_a_drain_are_delivered_on_either_node() {
    let (places, agents) = drained(SPREAD).await;
    let mut movers: Vec<Mover> = agents.into_iter().map(Mover::new).collect();
    let mut outcomes = Vec::new();
    for round in 0..=usize::from(AGENTS) {
        for mover in &mut movers {
            mover.follows(&places).await;
            let message = places.sender.message();
            mover.sent.insert(message.id);
            outcomes.push(places.sender.send(mover.agent.uaid, message));
        }
        settle().await;
        // Every third agent is slow with its acks: what it has not acked when its session
        // closes is stored.
        for (number, mover) in movers.iter_mut().enumerate() {
            mover.listens((number + round) % 3 != 0);
        }
        pass(SECOND).await;
    }
    assert_eq!(connected(&places.a).await, 0);
    for outcome in outcomes {
        assert!(matches!(outcome.await.unwrap(), Outcome::Delivered | Outcome::Stored));
    }
    for mover in movers {
        mover.ends_well(&places).await;
    }
}

/// An agent that connects to the other node when its session is closed.
struct Mover {
    agent: UserAgent,
    is_closed: bool,
    sent: BTreeSet<MessageId>,
    heard: BTreeSet<MessageId>,
    unacked: Vec<MessageId>,
}

impl Mover {
    fn new(agent: UserAgent) -> Self {
        let (sent, heard) = (BTreeSet::new(), BTreeSet::new());
        Self { agent, is_closed: false, sent, heard, unacked: Vec::new() }
    }

    /// Reads the messages received, and acks them or not.
    fn listens(&mut self, acks: bool) {
        while let Ok(frame) = self.agent.sent.try_recv() {
            match frame {
                Sent::Text(json) => {
                    let message: Value = serde_json::from_str(&json).unwrap();
                    let id = MessageId::parse(message["version"].as_str().unwrap()).unwrap();
                    self.heard.insert(id);
                    self.unacked.push(id);
                }
                Sent::Close(CloseReason::Shutdown) => self.is_closed = true,
                other => panic!("it got {other:?}"),
            }
        }
        if acks && !self.is_closed {
            self.unacked.drain(..).for_each(|id| self.agent.acks(id));
        }
    }

    /// Where its session was closed it connects to the other node, and acks there what it still has
    /// to.
    async fn follows(&mut self, places: &Places) {
        self.listens(true);
        if std::mem::take(&mut self.is_closed) {
            self.agent = UserAgent::back(&places.b, self.agent.uaid).await;
            self.listens(true);
        }
    }

    async fn ends_well(mut self, places: &Places) {
        self.follows(places).await;
        let uaid = self.agent.uaid;
        let stored = async || {
            self.listens(true);
            settle().await;
            places.sender.stored(uaid).await
        };
        clockwork::until("stored", stored, Vec::is_empty).await;
        assert_eq!(self.heard, self.sent);
        assert_eq!(places.node_of(uaid).await.as_deref(), Some("b"));
    }
}

/// Each gets a close frame, with no further time gone by.
async fn are_closed(agents: &mut [UserAgent]) {
    for agent in agents {
        assert_eq!(agent.is_closed().await, CloseReason::Shutdown);
    }
}

/// A node with agents that begins to drain.
async fn drained(spread: Duration) -> (Places, Vec<UserAgent>) {
    let places = Places::new().await;
    let agents = agents_on(&places.a).await;
    settle().await;
    shut_down(&places.a, spread).await;
    (places, agents)
}

async fn agents_on(node: &Node) -> Vec<UserAgent> {
    let mut agents = Vec::new();
    for number in 1..=AGENTS {
        agents.push(UserAgent::new(node, number).await);
    }
    agents
}

async fn shut_down(node: &Node, spread: Duration) {
    node.registry.send(ShutDown { spread }).await.unwrap();
    settle().await;
}

async fn connected(node: &Node) -> usize {
    node.registry.send(CountConnections).await.unwrap()
}

/// The store has the order when the session has closed.
async fn until_no_node(places: &Places, uaid: Uaid) {
    let node = async || places.node_of(uaid).await;
    clockwork::until("node of the record", node, Option::is_none).await;
}
