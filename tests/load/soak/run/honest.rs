//! The honest client: what it does must be possible and fast whatever others do.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use crate::shared::agent::{Agent, Closed, number_of};
use crate::shared::percentile::percentile;
use crate::shared::sender::Sender;

/// Time between two actions of a kind.
const PERIOD: Duration = Duration::from_millis(100);

/// An action without a result by then is refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client with an agent that stays connected, and an agent that is offline between its visits.
pub(crate) struct Honest {
    present: Present,
    absent: Absent,
}

/// The results of all its actions.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) direct: Action,
    pub(crate) stored: Action,
    pub(crate) connect: Action,
    /// Pushes that were answered 201 and did not arrive.
    pub(crate) lost: usize,
}

/// The results of one kind of action.
#[derive(Default)]
pub(crate) struct Action {
    took_ms: Vec<f64>,
    pub(crate) refused: usize,
}

struct Present {
    address: SocketAddr,
    sender: Sender,
    agent: Agent,
    endpoint: String,
    /// The numbers of pushes that were answered 201 and did not arrive yet.
    due: BTreeSet<usize>,
    arrived: BTreeSet<usize>,
}

struct Absent {
    address: SocketAddr,
    sender: Sender,
    uaid: String,
    endpoint: String,
    due: BTreeSet<usize>,
}

impl Honest {
    pub(crate) async fn enter(address: SocketAddr) -> Self {
        let (mut agent, sender) = (Agent::new(address).await, Sender::new());
        let endpoint = agent.register().await;
        let (due, arrived) = Default::default();
        let present = Present { address, sender: sender.clone(), agent, endpoint, due, arrived };
        let (uaid, endpoint) = Agent::offline(address).await;
        Self { present, absent: Absent { address, sender, uaid, endpoint, due: BTreeSet::new() } }
    }

    /// Lives for this long, and then waits for what is due.
    pub(crate) async fn live(self, duration: Duration) -> Report {
        let end = Instant::now() + duration;
        let ((direct, lost), (stored, connect, lost_too)) =
            tokio::join!(self.present.live(end), self.absent.live(end));
        Report { direct, stored, connect, lost: lost + lost_too }
    }
}

impl Present {
    async fn live(mut self, end: Instant) -> (Action, usize) {
        let (mut direct, mut ticks) = (Action::default(), ticks());
        for number in 0.. {
            ticks.tick().await;
            if Instant::now() >= end {
                break;
            }
            let begun = Instant::now();
            let status = timeout(PATIENCE, self.push(number)).await.ok().flatten();
            if direct.ended(begun, status == Some(201)) {
                self.due.insert(number);
            }
        }
        let last = Instant::now() + PATIENCE;
        while !self.due.is_subset(&self.arrived) {
            let Ok(message) = timeout_at(last, self.agent.receive()).await else { break };
            self.take(message).await;
        }
        (direct, self.due.difference(&self.arrived).count())
    }

    /// Pushes, and acks what arrives until the push is answered.
    async fn push(&mut self, number: usize) -> Option<u16> {
        let (sender, endpoint) = (self.sender.clone(), self.endpoint.clone());
        let mut push = pin!(sender.push(&endpoint, number));
        loop {
            let message = tokio::select! {
                status = &mut push => return status,
                message = self.agent.receive() => message,
            };
            self.take(message).await;
        }
    }

    async fn take(&mut self, message: Result<Value, Closed>) {
        match message {
            Ok(message) => {
                self.arrived.extend(number_of(&message));
                self.agent.ack(&message).await;
            }
            Err(Closed(code)) => {
                eprintln!("the server closed the connection of the honest agent: {code:?}");
                let uaid = self.agent.uaid.clone();
                self.agent = Agent::enter(self.address, Some(&uaid)).await.0;
            }
        }
    }
}

impl Absent {
    async fn live(mut self, end: Instant) -> (Action, Action, usize) {
        let (mut stored, mut connect, mut ticks) = (Action::default(), Action::default(), ticks());
        for number in 0.. {
            ticks.tick().await;
            if Instant::now() >= end {
                break;
            }
            let begun = Instant::now();
            let status =
                timeout(PATIENCE, self.sender.push(&self.endpoint, number)).await.ok().flatten();
            if stored.ended(begun, status == Some(201)) {
                self.due.insert(number);
            }
            let begun = Instant::now();
            let agent = timeout(PATIENCE, Agent::try_enter(self.address, Some(&self.uaid)))
                .await
                .ok()
                .flatten();
            connect.ended(begun, agent.is_some());
            if let Some(agent) = agent {
                self.visit(agent).await;
            }
        }
        if let Ok((agent, _)) =
            timeout(PATIENCE, Agent::enter(self.address, Some(&self.uaid))).await
        {
            self.visit(agent).await;
        }
        (stored, connect, self.due.len())
    }

    /// Takes all messages that are due, and disconnects.
    async fn visit(&mut self, mut agent: Agent) {
        let last = Instant::now() + PATIENCE;
        while !self.due.is_empty() {
            let Ok(Ok(message)) = timeout_at(last, agent.receive()).await else { break };
            if let Some(number) = number_of(&message) {
                self.due.remove(&number);
                agent.ack(&message).await;
            }
        }
        let _ = timeout(PATIENCE, agent.leave()).await;
    }
}

impl Action {
    /// Notes the end of an action, and returns whether it succeeded.
    fn ended(&mut self, begun: Instant, is_done: bool) -> bool {
        self.took_ms.push(begun.elapsed().as_secs_f64() * 1000.0);
        self.refused += usize::from(!is_done);
        is_done
    }

    pub(crate) fn count(&self) -> usize {
        self.took_ms.len()
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.took_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let [p50, p99, max] = [50, 99, 100].map(|percent| percentile(&sorted, percent));
        write!(f, "{p50:.1} / {p99:.1} / {max:.1} | {} of {}", self.refused, self.count())
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
