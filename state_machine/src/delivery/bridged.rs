//! A push to a user agent behind a bridge. Nothing is stored: the bridge accepts the message, or the sender retries.
//!
//! ```text
//!   MovingAgent ──► Confirming ──registered──► SendingToBridge ──accepted──► Done
//!                    ▲   │ not registered         │ recipient gone
//!                    │   ▼                        ▼
//!                    └─ RereadingRecord ◄──── DroppingRecipient ──dropped──► Done
//!                         the recipient was replaced meanwhile
//! ```
//!
//! A move to this month that fails is no failure of the push: the channel is confirmed in the months of the record.

#[cfg(test)]
mod tests;

use super::effect::{
    BridgedRoute, DeliveryEffect as Do, DeliveryEvent as Is, LOOKUPS_MAX, Outcome, Route, answer,
};
use crate::bridge::BridgeOutcome;
use crate::month::{DueMove, Month};
use crate::store::StoreFailed;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BridgedDelivery {
    curmonth: Month,
    route: BridgedRoute,
    /// Reads of the record after the first one.
    lookups: u8,
    pub(super) state: BridgedState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum BridgedState {
    MovingAgent,
    ConfirmingForBridge,
    /// The channel is not in the month of the record.
    ConfirmingInOldMonth,
    SendingToBridge,
    DroppingRecipient,
    /// The channel is in neither month, and the agent may have moved meanwhile.
    RereadingMonths,
    /// The record has another recipient than the one that is gone, or was dropped.
    RereadingRecipient,
}

/// The next state, if the delivery goes on, and its effect.
type Step = (Option<BridgedDelivery>, Vec<Do>);

impl BridgedDelivery {
    pub(super) fn begin(curmonth: Month, route: BridgedRoute, message_month: Month) -> (Self, Do) {
        let is_due = DueMove::of(curmonth, route.oldmonth, message_month).is_some();
        let (state, effect) = match is_due {
            true => (BridgedState::MovingAgent, Do::MoveAgent),
            false => (BridgedState::ConfirmingForBridge, Do::ConfirmChannel { month: curmonth }),
        };
        (Self { curmonth, route, lookups: 0, state }, effect)
    }

    /// Applies an event. One that answers the effect of another state changes nothing.
    pub(super) fn step(self, event: Is) -> Step {
        use BridgedState as At;
        match (self.state, event) {
            (At::MovingAgent, Is::AgentMoved(Err(StoreFailed))) => self.confirm(),
            (At::MovingAgent, Is::AgentMoved(Ok(moved))) => self.on_record(moved, Self::confirm),
            (
                At::ConfirmingForBridge | At::ConfirmingInOldMonth,
                Is::ChannelConfirmed(Ok(true)),
            ) => {
                let recipient = self.route.recipient.clone();
                self.enter(At::SendingToBridge, Do::SendToBridge { recipient })
            }
            (At::ConfirmingForBridge, Is::ChannelConfirmed(Ok(false))) => match self.route.oldmonth
            {
                Some(month) => self.enter(At::ConfirmingInOldMonth, Do::ConfirmChannel { month }),
                None => self.reread(At::RereadingMonths),
            },
            (At::ConfirmingInOldMonth, Is::ChannelConfirmed(Ok(false))) => {
                self.reread(At::RereadingMonths)
            }
            (At::RereadingMonths, Is::RecordRead(Ok(reread))) => {
                let months = (self.curmonth, self.route.oldmonth);
                self.on_record(reread, |now| match (now.curmonth, now.route.oldmonth) == months {
                    true => done(Outcome::NoSuchChannel),
                    false => now.confirm(),
                })
            }
            (At::SendingToBridge, Is::BridgeAnswered(outcome)) => self.on_outcome(outcome),
            (At::DroppingRecipient, Is::RecipientDropped(Ok(true))) => gone(),
            (At::DroppingRecipient, Is::RecipientDropped(Ok(false))) => {
                self.reread(At::RereadingRecipient)
            }
            (At::RereadingRecipient, Is::RecordRead(Ok(None))) => gone(),
            (At::RereadingRecipient, Is::RecordRead(Ok(reread))) => {
                self.on_record(reread, Self::confirm)
            }
            (_, Is::ChannelConfirmed(Err(StoreFailed)))
            | (_, Is::RecipientDropped(Err(StoreFailed)))
            | (At::RereadingMonths | At::RereadingRecipient, Is::RecordRead(Err(StoreFailed))) => {
                done(Outcome::Unavailable)
            }
            _ => (Some(self), Vec::new()),
        }
    }

    fn on_record(mut self, record: Option<Route>, next: impl FnOnce(Self) -> Step) -> Step {
        match record {
            Some(Route { curmonth, bridged: Some(route), .. }) => {
                (self.curmonth, self.route) = (curmonth, route);
                next(self)
            }
            Some(Route { bridged: None, .. }) | None => done(Outcome::NoSuchUser),
        }
    }

    fn on_outcome(self, outcome: BridgeOutcome) -> Step {
        match outcome {
            BridgeOutcome::Accepted => done(Outcome::Delivered),
            BridgeOutcome::RecipientGone => {
                let recipient = self.route.recipient.clone();
                self.enter(BridgedState::DroppingRecipient, Do::DropRecipient { recipient })
            }
            other => done(Outcome::Bridge(other)),
        }
    }

    fn confirm(self) -> Step {
        let month = self.curmonth;
        self.enter(BridgedState::ConfirmingForBridge, Do::ConfirmChannel { month })
    }

    fn reread(mut self, state: BridgedState) -> Step {
        self.lookups += 1;
        match self.lookups < LOOKUPS_MAX {
            true => self.enter(state, Do::ReadRecord),
            false => done(Outcome::Unavailable),
        }
    }

    fn enter(self, state: BridgedState, effect: Do) -> Step {
        (Some(Self { state, ..self }), vec![effect])
    }
}

fn gone() -> Step {
    done(Outcome::Bridge(BridgeOutcome::RecipientGone))
}

fn done(outcome: Outcome) -> Step {
    (None, answer(outcome))
}
