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
mod effect;
mod phase;
#[cfg(test)]
mod tests;

pub use effect::{
    BridgedRoute, DeliveryEffect, DeliveryEvent, NodeAnswer, Outcome, Route, WriteError,
};

use bridged::BridgedDelivery;
use effect::{LOOKUPS_MAX, answer};

use crate::month::Month;
use crate::store::{StoreFailed, Stored};

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
