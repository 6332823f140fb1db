//! One push of an application server: look up → direct → store → look again → tell the node.
//!
//! ```text
//!   ReadingRecord ──node──► Delivering ──acked──────────────────────────► Done
//!       │                  │   └─not here─► ClearingNode ─┐
//!       │                  └─no such channel─► Confirming ┤
//!       └──no node──► Storing ◄───────────────────────────┘
//!                        │ stored                    ▲ the month moved meanwhile
//!                        ▼                           │
//!                   RereadingRecord ────────────────────┘
//!                        │ same month: tell the node
//!                        ▼
//!                      Done
//! ```
//!
//! A 201 is answered only after the message was acked, or is durable in the table its user agent
//! will read: that is what the second look is for.

#[cfg(test)]
mod tests;

use crate::ids::NodeId;
use crate::month::Month;
use crate::record::RouterRecord;
use crate::store::{StoreFailed, Stored};
use crate::time::Time;

/// What a delivery needs of a router record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Where the user agent is connected.
    pub node: Option<NodeId>,
    /// Since when.
    pub connected_at: Time,
    /// Where its messages are stored.
    pub curmonth: Month,
}

/// What a connection node answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeAnswer {
    /// The user agent acked the message, or it is written and its TTL is zero.
    Accepted,
    /// It was sent and not acked, or nobody can say.
    Unconfirmed,
    /// It was not sent.
    Busy,
    /// The user agent is not connected there.
    NotHere,
    /// The connection does not know the channel.
    NoSuchChannel,
    /// The node did not answer. That is no proof that the agent is gone.
    Unreachable,
}

/// A fact about a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeliveryEvent {
    /// The router record was read: none where there is none.
    RecordRead(Result<Option<Route>, StoreFailed>),
    /// The node answered.
    NodeAnswered(NodeAnswer),
    /// The node was cleared from the record, or was not: nothing depends on it.
    NodeCleared,
    /// The channels were read: whether this one is among them.
    ChannelConfirmed(Result<bool, StoreFailed>),
    /// The message was stored, or not.
    Stored(Result<Stored, WriteError>),
    /// The row in the month before was deleted, or was not: a repeat has the same version.
    OldRowDeleted,
}

/// Why a message was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// The store failed or has no room now.
    Failed,
    /// There is no table of that month.
    NoSuchMonth,
}

/// An order of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeliveryEffect {
    /// Read the router record, consistently.
    ReadRecord,
    /// Hand the message to the node.
    Deliver {
        /// Which node.
        node: NodeId,
    },
    /// Remove the node from the record if both still stand there.
    ClearNode {
        /// The node.
        node: NodeId,
        /// Since when the record says so.
        connected_at: Time,
    },
    /// Read whether the channel is registered.
    ConfirmChannel {
        /// In which month's table.
        month: Month,
    },
    /// Store the message.
    Store {
        /// In which month's table.
        month: Month,
    },
    /// Delete the message just stored.
    DeleteStored {
        /// In which month's table.
        month: Month,
    },
    /// Tell the node that a message was stored. No answer is waited for.
    NotifyMessageStored {
        /// Which node.
        node: NodeId,
    },
    /// Answer the application server. The last effect ever.
    Answer(Outcome),
}

/// How a push ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The user agent has it.
    Delivered,
    /// It is durable.
    Stored,
    /// Its TTL is zero and it could not be delivered now (RFC 8030 §5.2).
    Dropped,
    /// There is no such user agent.
    NoSuchUser,
    /// The user agent went away while we stored.
    UserWentAway,
    /// The channel is not registered.
    NoSuchChannel,
    /// The store does not answer or has no room: try again.
    Unavailable,
}

/// A push on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delivery {
    params: PushParams,
    state: DeliveryState,
}

/// What is known of the push from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PushParams {
    /// Its TTL is zero: deliver now or never.
    pub ttl_is_zero: bool,
    /// This month by the endpoint's clock: only for telling a dropped table from one not made yet.
    pub this_month: Month,
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
    /// The channel was not in that month's table: perhaps because the month moved.
    ReadingMonth {
        month: Month,
        lookups: u8,
    },
    RereadingRecord {
        month: Month,
        lookups: u8,
    },
    DeletingOldRow {
        month: Month,
        lookups: u8,
        is_stored: bool,
    },
    Done,
}

/// Looks at the record after which a month that keeps moving is somebody else's fault.
const LOOKUPS_MAX: u8 = 4;

use DeliveryEffect as Do;
use DeliveryEvent as Is;

impl Delivery {
    /// A push begins: gives the delivery and its first order.
    pub fn begin(params: PushParams) -> (Self, DeliveryEffect) {
        (Self { params, state: DeliveryState::ReadingRecord }, Do::ReadRecord)
    }

    /// Takes a fact in and says what to do, in this sequence. A fact that answers no open order changes nothing.
    pub fn step(&mut self, event: DeliveryEvent) -> Vec<DeliveryEffect> {
        let state = std::mem::replace(&mut self.state, DeliveryState::Done);
        match (state, event) {
            (DeliveryState::ReadingRecord, Is::RecordRead(read)) => self.record_read(read),
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
            (DeliveryState::ReadingMonth { month, lookups }, Is::RecordRead(read)) => {
                self.month_read(month, lookups, read)
            }
            (DeliveryState::RereadingRecord { month, lookups }, Is::RecordRead(read)) => {
                self.record_reread(month, lookups, read)
            }
            (
                DeliveryState::DeletingOldRow { month, lookups, is_stored: true },
                Is::OldRowDeleted,
            ) => self.reread_record(month, lookups),
            (DeliveryState::DeletingOldRow { is_stored: false, .. }, Is::OldRowDeleted) => {
                answer(Outcome::NoSuchChannel)
            }
            // Each of these answers one state's order; in another state it changes nothing.
            (
                state,
                Is::RecordRead(_)
                | Is::NodeAnswered(_)
                | Is::NodeCleared
                | Is::ChannelConfirmed(_)
                | Is::Stored(_)
                | Is::OldRowDeleted,
            ) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// Whether the answer was given.
    pub fn is_done(&self) -> bool {
        self.state == DeliveryState::Done
    }

    fn record_read(&mut self, read: Result<Option<Route>, StoreFailed>) -> Vec<DeliveryEffect> {
        match read {
            Err(StoreFailed) => answer(Outcome::Unavailable),
            Ok(None) => answer(Outcome::NoSuchUser),
            Ok(Some(route)) => match route.node.clone() {
                Some(node) => {
                    self.state = DeliveryState::Delivering { route };
                    vec![Do::Deliver { node }]
                }
                None => self.store(route.curmonth, None, 0),
            },
        }
    }

    fn node_answered(&mut self, route: Route, node_answer: NodeAnswer) -> Vec<DeliveryEffect> {
        let Route { node, connected_at, curmonth } = route;
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
                let is_stored = stored == Stored::Done;
                self.state = DeliveryState::DeletingOldRow { month, lookups, is_stored };
                vec![Do::DeleteStored { month: old }]
            }
            (Ok(Stored::Done), None) => self.reread_record(month, lookups),
            (Ok(Stored::NoSuchChannel), None) => {
                self.state = DeliveryState::ReadingMonth { month, lookups: lookups + 1 };
                vec![Do::ReadRecord]
            }
            // Tables are dropped when nobody can be on them who is not long gone.
            (Err(WriteError::NoSuchMonth), _) if month < self.params.this_month.previous() => {
                answer(Outcome::NoSuchUser)
            }
            (Err(_), _) => answer(Outcome::Unavailable),
        }
    }

    fn reread_record(&mut self, month: Month, lookups: u8) -> Vec<DeliveryEffect> {
        if lookups >= LOOKUPS_MAX {
            return answer(Outcome::Unavailable);
        }
        self.state = DeliveryState::RereadingRecord { month, lookups: lookups + 1 };
        vec![Do::ReadRecord]
    }

    fn record_reread(
        &mut self,
        month: Month,
        lookups: u8,
        read: Result<Option<Route>, StoreFailed>,
    ) -> Vec<DeliveryEffect> {
        match read {
            // Nobody can say whether the agent will read that table: no 201.
            Err(StoreFailed) => answer(Outcome::Unavailable),
            Ok(None) => answer(Outcome::UserWentAway),
            Ok(Some(route)) if route.curmonth != month => {
                self.store(route.curmonth, Some(month), lookups)
            }
            Ok(Some(route)) => {
                let notification = route.node.map(|node| Do::NotifyMessageStored { node });
                notification.into_iter().chain(answer(Outcome::Stored)).collect()
            }
        }
    }

    fn month_read(
        &mut self,
        month: Month,
        lookups: u8,
        read: Result<Option<Route>, StoreFailed>,
    ) -> Vec<DeliveryEffect> {
        match read {
            Err(StoreFailed) => answer(Outcome::Unavailable),
            Ok(None) => answer(Outcome::UserWentAway),
            Ok(Some(route)) if route.curmonth != month && lookups < LOOKUPS_MAX => {
                self.store(route.curmonth, None, lookups)
            }
            Ok(Some(_)) => answer(Outcome::NoSuchChannel),
        }
    }
}

fn answer(outcome: Outcome) -> Vec<DeliveryEffect> {
    vec![Do::Answer(outcome)]
}

impl From<RouterRecord> for Route {
    fn from(record: RouterRecord) -> Self {
        let RouterRecord { node, connected_at, curmonth, .. } = record;
        Self { node, connected_at, curmonth }
    }
}
