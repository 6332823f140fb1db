//! A user agent that moves between nodes and misbehaves.

use std::cell::RefCell;
use std::time::Instant;

use super::connection::{ClientConnection, send_close_frame};
use super::plan::{AckPolicy, Disconnect, Session, Sessions};
use super::pusher::Pusher;
use super::state::{RunState, Stage};
use crate::harness::{Channel, Notification, Socket};

/// A user agent with subscriptions.
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) uaid: String,
    pub(super) channels: RefCell<Vec<Channel>>,
    /// Notifications to acknowledge on the next connection.
    pub(super) unacked: RefCell<Vec<Notification>>,
    /// An open connection that the agent does not read any more.
    abandoned: RefCell<Option<Socket>>,
}

/// Maximum number of channels of one agent.
const CHANNELS_MAX: usize = 3;

impl Client {
    pub(super) fn new(number: usize, uaid: String, channels: Vec<Channel>) -> Self {
        Self {
            number,
            uaid,
            channels: RefCell::new(channels),
            unacked: RefCell::default(),
            abandoned: RefCell::default(),
        }
    }

    /// Connects to node after node during the storm. Afterwards the agent receives what is left,
    /// and finally the message that `last` sends.
    pub(super) async fn run(&self, state: &RunState, mut sessions: Sessions, last: &Pusher) {
        while state.stage() == Stage::Storm {
            self.run_session(state, sessions.next()).await;
        }
        self.abandoned.take();
        while state.stage() == Stage::Drain {
            let mut connection = ClientConnection::open(self, state, self.number).await;
            state.is_draining(self.number);
            // If the connection ends, the loop opens the next one.
            let _ = connection.until_end_of(Stage::Drain).await;
        }
        self.connect_once_more(state, last).await;
    }

    async fn run_session(&self, state: &RunState, stay: Session) {
        let mut connection = ClientConnection::open(self, state, stay.node).await;
        if stay.registers && self.channels.borrow().len() < CHANNELS_MAX {
            connection.register().await;
        }
        if let AckPolicy::Stalled(wait) = stay.ack_policy {
            state.reconnects().agent_disconnected(self.number);
            state.pause(wait).await;
        }
        let ended = connection.until(Instant::now() + stay.lasts, stay.ack_policy).await;
        state.reconnects().agent_disconnected(self.number);
        if ended.is_err() {
            return;
        }
        let socket = connection.left(stay.ack_policy);
        match stay.disconnect {
            Disconnect::CloseFrame => send_close_frame(socket).await,
            Disconnect::CloseTcp => drop(socket),
            Disconnect::Abandon => drop(self.abandoned.replace(Some(socket))),
        }
        state.pause(stay.away).await;
    }

    /// Receives one last message, which must be the only one.
    async fn connect_once_more(&self, state: &RunState, last: &Pusher) {
        let mut connection = ClientConnection::open(self, state, self.number + 1).await;
        let next = async {
            loop {
                let next = connection.next().await;
                // A node whose clock is behind still sends what has expired by the clocks of others.
                if !next
                    .as_ref()
                    .is_ok_and(|next| state.ledger().has_expired(*next, Instant::now()))
                {
                    return next;
                }
            }
        };
        match tokio::join!(last.push_last(state, self), next) {
            (Some(last), Ok(came)) if last == came => {}
            (last, came) => {
                let found = format!("{}: {last:?} was the last, and {came:?} came", self.number);
                state.ledger().report(found);
            }
        }
    }
}
