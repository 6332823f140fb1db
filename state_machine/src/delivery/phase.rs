//! The names of a delivery's states, for a trace.

use super::{Delivery, DeliveryState};
use crate::variant_name;

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
    pub fn phase(&self) -> String {
        match &self.state {
            DeliveryState::Bridged(delivery) => variant_name(&delivery.state),
            state => variant_name(state),
        }
    }
}
