//! A connection of the agent, and the operations in progress for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use harness::invariants::CheckedConnection;
use state_machine::connection::{Config, ConnectionSeed, Event};
use state_machine::store::{StoreAnswer, StoreOp};
use state_machine::wire::ServerMessage;
use state_machine::{Chid, NodeBinding, OpId, Time, Uaid};

use super::SyntaxError;
use super::store::Store;

#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) node: usize,
    pub(crate) watched: CheckedConnection,
    /// Whether the agent receives what is sent here.
    pub(crate) is_heard: bool,
    /// Events in the actor's mailbox.
    pub(crate) mail: VecDeque<Event>,
    pub(crate) operations: Vec<Pending>,
    /// Pushes that were delivered to this connection.
    pub(crate) carried: BTreeSet<usize>,
    /// The uaid and the node of its last answered registration.
    pub(crate) registered: Option<(Uaid, NodeBinding)>,
    pub(crate) is_shut_down: bool,
    /// The highest SimplePush version of each channel that was sent.
    versions: BTreeMap<Chid, u64>,
}

/// A store operation without an answer.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) op: OpId,
    pub(crate) operation: StoreOp,
    /// The operation's number among all operations.
    pub(crate) number: usize,
    /// The result of a read that is executed at its submission.
    pub(crate) early: Option<StoreAnswer>,
    /// The answer of a write that was executed.
    pub(crate) done: Option<StoreAnswer>,
}

impl ClientConnection {
    pub(crate) fn new(node: usize, config: Arc<Config>, seed: ConnectionSeed, now: Time) -> Self {
        Self {
            node,
            watched: CheckedConnection::new(config, seed, now),
            is_heard: true,
            mail: VecDeque::new(),
            operations: Vec::new(),
            carried: BTreeSet::new(),
            registered: None,
            is_shut_down: false,
            versions: BTreeMap::new(),
        }
    }

    /// A connection sends only versions that are higher than those it has sent.
    pub(crate) fn sent(&mut self, message: &ServerMessage) -> Result<(), SyntaxError> {
        match message {
            ServerMessage::Unregistered { chid, .. } => drop(self.versions.remove(chid)),
            ServerMessage::Notification(message) => {
                let Some(version) = message.version() else { return Ok(()) };
                let before = self.versions.insert(message.chid, version);
                if before.is_some_and(|before| before >= version) {
                    return Err(format!("version {version} is sent after {before:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn submitted(
        &mut self,
        op: OpId,
        operation: StoreOp,
        number: usize,
        store: &mut Store,
    ) {
        let early = (!operation.is_write()).then(|| store.execute(&operation));
        self.operations.push(Pending { op, operation, number, early, done: None });
    }
}

impl Pending {
    pub(crate) fn is_write(&self) -> bool {
        self.operation.is_write()
    }
}
