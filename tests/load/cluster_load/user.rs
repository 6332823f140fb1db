//! A user agent that acks every message, and reconnects to another node when this one closes the
//! connection.

use std::net::SocketAddr;

use tokio::sync::watch;
use tokio::time::Instant;

use super::ledger::SharedLedger;
use super::shared::agent::{Agent, Closed, number_of, wait_a_little};

/// A user agent of the measured node.
pub(crate) struct User {
    pub(crate) agent: Agent,
    /// The node that it reconnects to.
    pub(crate) elsewhere: SocketAddr,
    pub(crate) ledger: SharedLedger,
    /// A change makes the agent reconnect.
    pub(crate) reconnect_signal: watch::Receiver<()>,
}

impl User {
    /// Runs until its task is aborted.
    pub(crate) async fn live(mut self) {
        let mut ended = None;
        loop {
            tokio::select! {
                closed = stay(&mut self.agent, &self.ledger, ended) => {
                    ended = Some(Instant::now());
                    self.sent_away(closed).await;
                }
                Ok(()) = self.reconnect_signal.changed() => {
                    ended = Some(Instant::now());
                    self = self.come_anew().await;
                }
            }
        }
    }

    async fn sent_away(&mut self, closed: Closed) {
        let since = Instant::now();
        self.ledger.open().closed(closed.0);
        wait_a_little().await;
        let (agent, refused) = Agent::enter(self.elsewhere, Some(&self.agent.uaid)).await;
        let is_known = agent.uaid == self.agent.uaid;
        self.ledger.open().back(since.elapsed(), refused, is_known);
        self.agent = agent;
    }

    async fn come_anew(self) -> Self {
        let uaid = self.agent.uaid.clone();
        self.agent.leave().await;
        wait_a_little().await;
        let (agent, _) = Agent::enter(self.elsewhere, Some(&uaid)).await;
        Self { agent, ..self }
    }
}

/// Acks messages until the node closes the connection.
async fn stay(agent: &mut Agent, ledger: &SharedLedger, ended: Option<Instant>) -> Closed {
    loop {
        let message = match agent.receive().await {
            Ok(message) => message,
            Err(closed) => return closed,
        };
        if let Some(number) = number_of(&message) {
            ledger.open().arrived(number, ended);
            agent.ack(&message).await;
        }
    }
}
