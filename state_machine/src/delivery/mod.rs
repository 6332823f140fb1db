//! One push of an application server: look up → direct → store → look again → tell the node.
//!
//! ```text
//!   LookingUp ──node──► Delivering ──acked──────────────────────────► Done
//!       │                  │   └─not here─► ClearingNode ─┐
//!       │                  └─no such channel─► Confirming ┤
//!       └──no node──► Storing ◄───────────────────────────┘
//!                        │ stored                    ▲ the month moved meanwhile
//!                        ▼                           │
//!                   LookingAgain ────────────────────┘
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
    Stored(Result<Stored, StoreRefused>),
    /// The row in the month before was deleted, or was not: a repeat has the same version.
    OldRowDeleted,
}

/// Why a message was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreRefused {
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
    Nudge {
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
    terms: Terms,
    stage: Stage,
}

/// What is known of the push from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Its TTL is zero: deliver now or never.
    pub is_fleeting: bool,
    /// This month by the endpoint's clock: only for telling a dropped table from one not made yet.
    pub this_month: Month,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stage {
    LookingUp,
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
        looks: u8,
    },
    /// The channel was not in that month's table: perhaps because the month moved.
    LookingForMonth {
        month: Month,
        looks: u8,
    },
    LookingAgain {
        month: Month,
        looks: u8,
    },
    DeletingOldRow {
        month: Month,
        looks: u8,
        is_stored: bool,
    },
    Done,
}

/// Looks at the record after which a month that keeps moving is somebody else's fault.
const LOOKS_MAX: u8 = 4;

use DeliveryEffect as Do;
use DeliveryEvent as Is;

impl Delivery {
    /// A push begins: gives the delivery and its first order.
    pub fn begin(terms: Terms) -> (Self, DeliveryEffect) {
        (Self { terms, stage: Stage::LookingUp }, Do::ReadRecord)
    }

    /// Takes a fact in and says what to do, in this sequence. A fact that answers no open order changes nothing.
    pub fn step(&mut self, event: DeliveryEvent) -> Vec<DeliveryEffect> {
        let stage = std::mem::replace(&mut self.stage, Stage::Done);
        match (stage, event) {
            (Stage::LookingUp, Is::RecordRead(read)) => self.looked_up(read),
            (Stage::Delivering { route }, Is::NodeAnswered(answer)) => {
                self.node_answered(route, answer)
            }
            (Stage::ClearingNode { month }, Is::NodeCleared) => self.store(month, None, 0),
            (Stage::Confirming { month }, Is::ChannelConfirmed(confirmed)) => match confirmed {
                Ok(true) => self.store(month, None, 0),
                Ok(false) => answer(Outcome::NoSuchChannel),
                Err(StoreFailed) => answer(Outcome::Unavailable),
            },
            (Stage::Storing { month, moved_from, looks }, Is::Stored(stored)) => {
                self.stored(month, moved_from, looks, stored)
            }
            (Stage::LookingForMonth { month, looks }, Is::RecordRead(read)) => {
                self.looked_for_month(month, looks, read)
            }
            (Stage::LookingAgain { month, looks }, Is::RecordRead(read)) => {
                self.looked_again(month, looks, read)
            }
            (Stage::DeletingOldRow { month, looks, is_stored: true }, Is::OldRowDeleted) => {
                self.look_again(month, looks)
            }
            (Stage::DeletingOldRow { is_stored: false, .. }, Is::OldRowDeleted) => {
                answer(Outcome::NoSuchChannel)
            }
            (stage, _) => {
                self.stage = stage;
                Vec::new()
            }
        }
    }

    /// Whether the answer was given.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    fn looked_up(&mut self, read: Result<Option<Route>, StoreFailed>) -> Vec<DeliveryEffect> {
        match read {
            Err(StoreFailed) => answer(Outcome::Unavailable),
            Ok(None) => answer(Outcome::NoSuchUser),
            Ok(Some(route)) => match route.node.clone() {
                Some(node) => {
                    self.stage = Stage::Delivering { route };
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
                self.stage = Stage::ClearingNode { month: curmonth };
                vec![Do::ClearNode { node, connected_at }]
            }
            (NodeAnswer::NoSuchChannel, _) => {
                self.stage = Stage::Confirming { month: curmonth };
                vec![Do::ConfirmChannel { month: curmonth }]
            }
            _ => self.store(curmonth, None, 0),
        }
    }

    fn store(&mut self, month: Month, moved_from: Option<Month>, looks: u8) -> Vec<DeliveryEffect> {
        if self.terms.is_fleeting {
            return answer(Outcome::Dropped);
        }
        self.stage = Stage::Storing { month, moved_from, looks };
        vec![Do::Store { month }]
    }

    fn stored(
        &mut self,
        month: Month,
        moved_from: Option<Month>,
        looks: u8,
        stored: Result<Stored, StoreRefused>,
    ) -> Vec<DeliveryEffect> {
        match (stored, moved_from) {
            (Ok(stored), Some(old)) => {
                let is_stored = stored == Stored::Done;
                self.stage = Stage::DeletingOldRow { month, looks, is_stored };
                vec![Do::DeleteStored { month: old }]
            }
            (Ok(Stored::Done), None) => self.look_again(month, looks),
            (Ok(Stored::NoSuchChannel), None) => {
                self.stage = Stage::LookingForMonth { month, looks: looks + 1 };
                vec![Do::ReadRecord]
            }
            // Tables are dropped when nobody can be on them who is not long gone.
            (Err(StoreRefused::NoSuchMonth), _) if month < self.terms.this_month.previous() => {
                answer(Outcome::NoSuchUser)
            }
            (Err(_), _) => answer(Outcome::Unavailable),
        }
    }

    fn look_again(&mut self, month: Month, looks: u8) -> Vec<DeliveryEffect> {
        if looks >= LOOKS_MAX {
            return answer(Outcome::Unavailable);
        }
        self.stage = Stage::LookingAgain { month, looks: looks + 1 };
        vec![Do::ReadRecord]
    }

    fn looked_again(
        &mut self,
        month: Month,
        looks: u8,
        read: Result<Option<Route>, StoreFailed>,
    ) -> Vec<DeliveryEffect> {
        match read {
            // Nobody can say whether the agent will read that table: no 201.
            Err(StoreFailed) => answer(Outcome::Unavailable),
            Ok(None) => answer(Outcome::UserWentAway),
            Ok(Some(route)) if route.curmonth != month => {
                self.store(route.curmonth, Some(month), looks)
            }
            Ok(Some(route)) => {
                let nudge = route.node.map(|node| Do::Nudge { node });
                nudge.into_iter().chain(answer(Outcome::Stored)).collect()
            }
        }
    }

    fn looked_for_month(
        &mut self,
        month: Month,
        looks: u8,
        read: Result<Option<Route>, StoreFailed>,
    ) -> Vec<DeliveryEffect> {
        match read {
            Err(StoreFailed) => answer(Outcome::Unavailable),
            Ok(None) => answer(Outcome::UserWentAway),
            Ok(Some(route)) if route.curmonth != month && looks < LOOKS_MAX => {
                self.store(route.curmonth, None, looks)
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
