//! A user agent that acks whatever comes, and goes elsewhere when it is sent away.

use std::net::SocketAddr;

use tokio::sync::watch;
use tokio::time::Instant;

use super::agent::{Agent, Closed, number_of, wait_a_little};
use super::ledger::SharedLedger;

/// One of many.
pub(crate) struct User {
    pub(crate) agent: Agent,
    /// Where it goes when it is sent away.
    pub(crate) elsewhere: SocketAddr,
    pub(crate) ledger: SharedLedger,
    /// When this changes, it goes and comes back by itself.
    pub(crate) calls: watch::Receiver<()>,
}

impl User {
    /// Lives until its task is aborted.
    pub(crate) async fn live(mut self) {
        let mut ended = None;
        loop {
            tokio::select! {
                closed = stay(&mut self.agent, &self.ledger, ended) => {
                    ended = Some(Instant::now());
                    self.sent_away(closed).await;
                }
                Ok(()) = self.calls.changed() => {
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

/// Acks what comes, until the node closes.
async fn stay(agent: &mut Agent, ledger: &SharedLedger, ended: Option<Instant>) -> Closed {
    loop {
        let said = match agent.hear().await {
            Ok(said) => said,
            Err(closed) => return closed,
        };
        if let Some(number) = number_of(&said) {
            ledger.open().arrived(number, ended);
            agent.ack(&said).await;
        }
    }
}
