//! The names of a delivery's states, for a trace.

use super::bridged::BridgedState;
use super::{Delivery, DeliveryState};

impl Delivery {
    /// The names of all states, in the order in which a delivery can have them.
    pub const PHASES: [&'static str; 15] = [
        "ReadingRecord",
        "Delivering",
        "ClearingNode",
        "Confirming",
        "Storing",
        "RereadingRecord",
        "DeletingOldRow",
        "MovingAgent",
        "ConfirmingForBridge",
        "ConfirmingInOldMonth",
        "RereadingMonths",
        "SendingToBridge",
        "DroppingRecipient",
        "RereadingRecipient",
        "Done",
    ];

    /// The name of its state, one of [`Delivery::PHASES`].
    pub fn phase(&self) -> &'static str {
        match &self.state {
            DeliveryState::ReadingRecord => "ReadingRecord",
            DeliveryState::Delivering { .. } => "Delivering",
            DeliveryState::ClearingNode { .. } => "ClearingNode",
            DeliveryState::Confirming { .. } => "Confirming",
            DeliveryState::Storing { .. } => "Storing",
            DeliveryState::RereadingRecord { .. } => "RereadingRecord",
            DeliveryState::DeletingOldRow { .. } => "DeletingOldRow",
            DeliveryState::Bridged(delivery) => match delivery.state {
                BridgedState::MovingAgent => "MovingAgent",
                BridgedState::Confirming => "ConfirmingForBridge",
                BridgedState::ConfirmingInOldMonth => "ConfirmingInOldMonth",
                BridgedState::RereadingMonths => "RereadingMonths",
                BridgedState::SendingToBridge => "SendingToBridge",
                BridgedState::DroppingRecipient => "DroppingRecipient",
                BridgedState::RereadingRecipient => "RereadingRecipient",
            },
            DeliveryState::Done => "Done",
        }
    }
}
