//! One push of an application server: read the record, deliver, store, read the record again,
//! notify the node.
//!
//! ```text
//!   ReadingRecord ──node──► Delivering ──acked──────────────────────────► Done
//!       │                  │   └─not here─► ClearingNode ─┐
//!       │                  └─no such channel─► Confirming ┤
//!       └──no node──► Storing ◄───────────────────────────┘
//!                        │ stored                    ▲ the month moved meanwhile
//!                        ▼                           │
//!                   RereadingRecord ─────────────────┘
//!                        │ same month: notify the node
//!                        ▼
//!                      Done
//! ```
//!
//! An endpoint answers 201 only once the agent acked the message, or once the message is durable in
//! the table that the agent reads. The second read of the record checks that this table is still
//! the agent's current one.
//!
//! A message whose sender wants a receipt is never delivered directly: it is stored, and its row names the receipt.
//!
//! If a message of the same topic with a greater id waits, the clock of its endpoint was ahead. The push is not answered
//! yet, so it is the later one: it ends as [`Outcome::Outranked`], and is repeated with an id above the other one.
//!
//! A record of a bridge leads to [`bridged`] instead.

mod bridged;
mod phase;
#[cfg(test)]
mod tests;

pub use bridged::BridgedRoute;

use crate::bridge::{BridgeOutcome, BridgeRecipient};
use crate::connection::PushAnswer;
use crate::ids::{MessageId, NodeId};
use crate::month::Month;
use crate::record::{RouterRecord, RouterType};
use crate::store::{FullScope, StoreFailed, Stored};
use crate::time::Time;

use bridged::BridgedDelivery;

/// The fields of a router record that a delivery needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// The node the user agent is connected to, if any.
    pub node: Option<NodeId>,
    /// The `connected_at` of the record.
    pub connected_at: Time,
    /// The month whose table its messages are stored in.
    pub curmonth: Month,
    /// How the agent is reached behind a bridge.
    pub bridged: Option<BridgedRoute>,
}

/// The answer of a connection node to a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeAnswer {
    /// The user agent acked the message, or the message was written to the socket and its TTL is
    /// zero.
    Accepted,
    /// The message was sent without an ack in time, or the outcome is unknown.
    Unconfirmed,
    /// The node is busy and did not send the message.
    Busy,
    /// The user agent is not connected there.
    NotHere,
    /// The connection does not know the channel.
    NoSuchChannel,
    /// The node did not answer. The agent may still be connected there.
    Unreachable,
}

/// An input of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeliveryEvent {
    /// The result of [`DeliveryEffect::ReadRecord`]: none if the agent has no record.
    RecordRead(Result<Option<Route>, StoreFailed>),
    /// The record is of SimplePush and the message is not, or the reverse.
    OtherProtocol,
    /// The result of [`DeliveryEffect::Deliver`].
    NodeAnswered(NodeAnswer),
    /// The result of [`DeliveryEffect::ClearNode`]. The delivery continues even if the record has
    /// changed.
    NodeCleared,
    /// The result of [`DeliveryEffect::ConfirmChannel`]: whether the channel is registered.
    ChannelConfirmed(Result<bool, StoreFailed>),
    /// The result of [`DeliveryEffect::Store`].
    Stored(Result<Stored, WriteError>),
    /// The result of [`DeliveryEffect::DeleteStored`]. A failure is harmless: the duplicate has the
    /// same version.
    OldRowDeleted,
    /// The result of [`DeliveryEffect::MoveAgent`].
    AgentMoved(Result<Option<Route>, StoreFailed>),
    /// The result of [`DeliveryEffect::SendToBridge`].
    BridgeAnswered(BridgeOutcome),
    /// The result of [`DeliveryEffect::DropRecipient`]: whether the record still had that recipient.
    RecipientDropped(Result<bool, StoreFailed>),
}

/// Why a message was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// The store failed or has no capacity now.
    Failed,
    /// The month has no message table.
    NoSuchMonth,
}

/// An effect of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeliveryEffect {
    /// Read the router record with a consistent read.
    ReadRecord,
    /// Send the push to the agent's node.
    Deliver { node: NodeId },
    /// Remove the node from the record if the record still has this node and `connected_at`.
    ClearNode {
        node: NodeId,
        /// The `connected_at` of the record.
        connected_at: Time,
    },
    /// Read whether the channel is registered.
    ConfirmChannel { month: Month },
    /// Store the message in a month's table.
    Store { month: Month },
    /// Delete the row in the month that the agent has left.
    DeleteStored { month: Month },
    /// Move the agent behind a bridge to this month, and read its record.
    MoveAgent,
    /// Send the message to the agent's bridge.
    SendToBridge { recipient: Box<BridgeRecipient> },
    /// Drop the record if it still has this recipient.
    DropRecipient { recipient: Box<BridgeRecipient> },
    /// Notify the node that a message was stored. The delivery does not wait for an answer.
    NotifyMessageStored {
        /// The node that the record names now.
        node: NodeId,
    },
    /// Answer the application server. The last effect of a delivery.
    Answer(Outcome),
}

/// The result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The node accepted the push, see [`NodeAnswer::Accepted`], or the bridge did.
    Delivered,
    /// The message is durable in the agent's message table.
    Stored,
    /// Its TTL is zero and it could not be delivered now (RFC 8030 §5.2).
    Dropped,
    /// The user agent has no record.
    NoSuchUser,
    /// The agent's table has a message of the same topic with this greater id. The push is repeated with an id above it.
    Outranked(MessageId),
    /// The record of the user agent disappeared while the message was stored.
    UserWentAway,
    /// The user agent speaks SimplePush and the message is one of Web Push, or the reverse.
    OtherProtocol,
    /// The channel is not registered.
    NoSuchChannel,
    /// As many messages wait for the user agent, or in the channel, as may. The sender may retry once the agent
    /// has fetched some.
    Full(FullScope),
    /// The bridge did not accept the message.
    Bridge(BridgeOutcome),
    /// The store is unavailable or has no capacity. The sender may retry.
    Unavailable,
}

/// A push that is being delivered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delivery {
    params: PushParams,
    state: DeliveryState,
}

/// The parameters of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PushParams {
    /// Its TTL is zero: the message is delivered now or dropped.
    pub ttl_is_zero: bool,
    /// The message is stored before the agent gets it: its sender wants a receipt, which its row names, or it was sent
    /// to the agent's node already with an id that was [`Outcome::Outranked`].
    pub stores_first: bool,
    /// The current month by the endpoint's clock. It distinguishes a dropped table from one that
    /// does not exist yet.
    pub this_month: Month,
    /// The month that messages are stored in by the endpoint's clock: another one without rotation.
    pub message_month: Month,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum DeliveryState {
    ReadingRecord,
    Delivering {
        route: Route,
    },
    ClearingNode {
        month: Month,
    },
    Confirming {
        month: Month,
    },
    Storing {
        month: Month,
        moved_from: Option<Month>,
        lookups: u8,
    },
    /// The agent may have moved to another month since the message was stored in this one, or since
    /// its channel was not in this one.
    RereadingRecord {
        month: Month,
        lookups: u8,
        is_stored: bool,
    },
    /// `stored` is the result in the new month.
    DeletingOldRow {
        month: Month,
        lookups: u8,
        stored: Stored,
    },
    Bridged(BridgedDelivery),
    Done,
}

/// Reads of the record after which the push fails, if the month changes each time.
const LOOKUPS_MAX: u8 = 4;

use DeliveryEffect as Do;
use DeliveryEvent as Is;

impl Delivery {
    /// Begins a delivery and returns its first effect.
    pub fn begin(params: PushParams) -> (Self, DeliveryEffect) {
        (Self { params, state: DeliveryState::ReadingRecord }, Do::ReadRecord)
    }

    /// Applies an event and returns the effects, in their sequence. An answer without a pending
    /// effect changes nothing.
    pub fn step(&mut self, event: DeliveryEvent) -> Vec<DeliveryEffect> {
        let state = std::mem::replace(&mut self.state, DeliveryState::Done);
        match (state, event) {
            (DeliveryState::ReadingRecord, Is::RecordRead(read)) => self.record_read(read),
            (DeliveryState::ReadingRecord, Is::OtherProtocol) => answer(Outcome::OtherProtocol),
            (DeliveryState::Delivering { route }, Is::NodeAnswered(answer)) => {
                self.node_answered(route, answer)
            }
            (DeliveryState::ClearingNode { month }, Is::NodeCleared) => self.store(month, None, 0),
            (DeliveryState::Confirming { month }, Is::ChannelConfirmed(confirmed)) => {
                match confirmed {
                    Ok(true) => self.store(month, None, 0),
                    Ok(false) => answer(Outcome::NoSuchChannel),
                    Err(StoreFailed) => answer(Outcome::Unavailable),
                }
            }
            (DeliveryState::Storing { month, moved_from, lookups }, Is::Stored(stored)) => {
                self.stored(month, moved_from, lookups, stored)
            }
            (
                DeliveryState::RereadingRecord { month, lookups, is_stored },
                Is::RecordRead(read),
            ) => self.record_reread(month, lookups, is_stored, read),
            (
                DeliveryState::DeletingOldRow { stored: Stored::NoSuchChannel, .. },
                Is::OldRowDeleted,
            ) => answer(Outcome::NoSuchChannel),
            (DeliveryState::DeletingOldRow { month, lookups, stored }, Is::OldRowDeleted) => {
                self.stored(month, None, lookups, Ok(stored))
            }
            (DeliveryState::Bridged(delivery), event) => {
                let (next, effects) = delivery.step(event);
                self.state = next.map_or(DeliveryState::Done, DeliveryState::Bridged);
                effects
            }
            // Each event answers the effect of one state. In another state it changes nothing.
            (
                state,
                Is::RecordRead(_)
                | Is::OtherProtocol
                | Is::NodeAnswered(_)
                | Is::NodeCleared
                | Is::ChannelConfirmed(_)
                | Is::Stored(_)
                | Is::OldRowDeleted
                | Is::AgentMoved(_)
                | Is::BridgeAnswered(_)
                | Is::RecipientDropped(_),
            ) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// Whether the delivery has answered.
    pub fn is_done(&self) -> bool {
        self.state == DeliveryState::Done
    }

    fn record_read(&mut self, read: Result<Option<Route>, StoreFailed>) -> Vec<DeliveryEffect> {
        match read {
            Err(StoreFailed) => answer(Outcome::Unavailable),
            Ok(None) => answer(Outcome::NoSuchUser),
            Ok(Some(Route { curmonth, bridged: Some(route), .. })) => {
                let month = self.params.message_month;
                let (delivery, first) = BridgedDelivery::begin(curmonth, route, month);
                self.state = DeliveryState::Bridged(delivery);
                vec![first]
            }
            Ok(Some(route)) => match route.node.clone() {
                Some(node) if !self.params.stores_first => {
                    self.state = DeliveryState::Delivering { route };
                    vec![Do::Deliver { node }]
                }
                _ => self.store(route.curmonth, None, 0),
            },
        }
    }

    fn node_answered(&mut self, route: Route, node_answer: NodeAnswer) -> Vec<DeliveryEffect> {
        let Route { node, connected_at, curmonth, .. } = route;
        match (node_answer, node) {
            (NodeAnswer::Accepted, _) => answer(Outcome::Delivered),
            (NodeAnswer::NotHere, Some(node)) => {
                self.state = DeliveryState::ClearingNode { month: curmonth };
                vec![Do::ClearNode { node, connected_at }]
            }
            (NodeAnswer::NoSuchChannel, _) => {
                self.state = DeliveryState::Confirming { month: curmonth };
                vec![Do::ConfirmChannel { month: curmonth }]
            }
            (NodeAnswer::NotHere, None)
            | (NodeAnswer::Unconfirmed | NodeAnswer::Busy | NodeAnswer::Unreachable, _) => {
                self.store(curmonth, None, 0)
            }
        }
    }

    fn store(
        &mut self,
        month: Month,
        moved_from: Option<Month>,
        lookups: u8,
    ) -> Vec<DeliveryEffect> {
        if self.params.ttl_is_zero {
            return answer(Outcome::Dropped);
        }
        self.state = DeliveryState::Storing { month, moved_from, lookups };
        vec![Do::Store { month }]
    }

    fn stored(
        &mut self,
        month: Month,
        moved_from: Option<Month>,
        lookups: u8,
        stored: Result<Stored, WriteError>,
    ) -> Vec<DeliveryEffect> {
        match (stored, moved_from) {
            (Ok(stored), Some(old)) => {
                self.state = DeliveryState::DeletingOldRow { month, lookups, stored };
                vec![Do::DeleteStored { month: old }]
            }
            (Ok(Stored::Done), None) => self.confirm_stored(month, lookups),
            (Ok(Stored::Outranked(by)), None) => answer(Outcome::Outranked(by)),
            (Ok(Stored::NoSuchChannel), None) => self.reread_record(month, lookups, false),
            (Ok(Stored::Full(scope)), None) => answer(Outcome::Full(scope)),
            // A month's table is dropped only once all its agents have been inactive for too long.
            (Err(WriteError::NoSuchMonth), _) if month < self.params.this_month.previous() => {
                answer(Outcome::NoSuchUser)
            }
            (Err(_), _) => answer(Outcome::Unavailable),
        }
    }

    fn confirm_stored(&mut self, month: Month, lookups: u8) -> Vec<DeliveryEffect> {
        if lookups >= LOOKUPS_MAX {
            return answer(Outcome::Unavailable);
        }
        self.reread_record(month, lookups, true)
    }

    fn reread_record(&mut self, month: Month, lookups: u8, is_stored: bool) -> Vec<DeliveryEffect> {
        self.state = DeliveryState::RereadingRecord { month, lookups: lookups + 1, is_stored };
        vec![Do::ReadRecord]
    }

    fn record_reread(
        &mut self,
        month: Month,
        lookups: u8,
        is_stored: bool,
        read: Result<Option<Route>, StoreFailed>,
    ) -> Vec<DeliveryEffect> {
        match read {
            // It is unknown whether the agent reads that table, so the answer is not 201.
            Err(StoreFailed) => answer(Outcome::Unavailable),
            Ok(None) => answer(Outcome::UserWentAway),
            Ok(Some(route)) if route.curmonth != month && (is_stored || lookups < LOOKUPS_MAX) => {
                self.store(route.curmonth, is_stored.then_some(month), lookups)
            }
            Ok(Some(_)) if !is_stored => answer(Outcome::NoSuchChannel),
            Ok(Some(route)) => {
                let notification = route.node.map(|node| Do::NotifyMessageStored { node });
                notification.into_iter().chain(answer(Outcome::Stored)).collect()
            }
        }
    }
}

fn answer(outcome: Outcome) -> Vec<DeliveryEffect> {
    vec![Do::Answer(outcome)]
}

/// The word of a connection, which its node passes on.
impl From<PushAnswer> for NodeAnswer {
    fn from(answer: PushAnswer) -> Self {
        match answer {
            PushAnswer::Accepted => Self::Accepted,
            PushAnswer::Unconfirmed => Self::Unconfirmed,
            PushAnswer::Busy => Self::Busy,
            PushAnswer::NoSuchChannel => Self::NoSuchChannel,
        }
    }
}

impl From<RouterRecord> for Route {
    fn from(record: RouterRecord) -> Self {
        let RouterRecord { router_type, node, connected_at, curmonth, oldmonth, .. } = record;
        let bridged = match router_type {
            RouterType::Bridge(recipient) => Some(BridgedRoute { recipient, oldmonth }),
            RouterType::WebPush | RouterType::SimplePush => None,
        };
        Self { node, connected_at, curmonth, bridged }
    }
}
