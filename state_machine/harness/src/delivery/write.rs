//! Writes the effects of a delivery as lines.

use super::parse::BRIDGE_OUTCOMES;
use crate::script::NameKind;
use crate::script::tokens::{offset_text, quoted, span_text, word_of};
use crate::transcript::{list, reference};
use state_machine::bridge::{BridgeOutcome, BridgeRecipient};
use state_machine::delivery::{DeliveryEffect, Outcome};
use state_machine::store::FullScope;
use state_machine::{Message, Time, Uaid};

/// Writes the effects of one push.
pub(super) struct DeliveryWriter<'a> {
    pub(super) uaid: Uaid,
    pub(super) message: &'a Message,
    /// The start of the script.
    pub(super) start: Time,
}

impl DeliveryWriter<'_> {
    pub(super) fn effect(&self, effect: &DeliveryEffect) -> String {
        use DeliveryEffect as Do;
        let (agent, message) = (self.uaid.name(), reference(&self.message.key()));
        match effect {
            Do::ReadRecord => format!("store< record {agent}"),
            Do::Deliver { node } => format!("node< deliver {} {message}", quoted(node.as_str())),
            Do::ClearNode { node, connected_at } => {
                let at = offset_text(*connected_at, self.start);
                format!("store< clear_node {agent} {} at={at}", quoted(node.as_str()))
            }
            Do::ConfirmChannel { month } => format!("store< channels {agent} {month}"),
            Do::Store { month } => format!("store< store {agent} {month} {message}"),
            Do::DeleteStored { month } => {
                let messages = list(&[self.message.key()], reference);
                format!("store< delete {agent} {month} {messages}")
            }
            Do::MoveAgent => format!("store< move_agent {agent}"),
            Do::SendToBridge { recipient: to } => {
                format!("bridge< send {} {message}", recipient(to))
            }
            Do::DropRecipient { recipient: of } => format!("store< drop {agent} {}", recipient(of)),
            Do::NotifyMessageStored { node } => {
                format!("node< message_stored {} {agent}", quoted(node.as_str()))
            }
            Do::Answer(outcome) => format!("push< {}", answer(*outcome)),
        }
    }
}

fn recipient(BridgeRecipient { bridge, app, token, aps }: &BridgeRecipient) -> String {
    let aps = aps.as_ref().map(|aps| format!(" aps={}", quoted(aps))).unwrap_or_default();
    format!("{} app={} token={}{aps}", bridge.as_str(), quoted(app), quoted(token))
}

fn answer(outcome: Outcome) -> String {
    let word = match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Stored => "stored",
        Outcome::Outranked(by) => return format!("outranked {}", by.name()),
        Outcome::Dropped => "dropped",
        Outcome::NoSuchUser => "no_such_user",
        Outcome::UserWentAway => "user_went_away",
        Outcome::OtherProtocol => "other_protocol",
        Outcome::NoSuchChannel => "no_such_channel",
        Outcome::Full(FullScope::User) => "full user",
        Outcome::Full(FullScope::Channel) => "full channel",
        Outcome::Unavailable => "unavailable",
        Outcome::Bridge(outcome) => return format!("bridge {}", bridge_outcome(outcome)),
    };
    word.to_owned()
}

fn bridge_outcome(outcome: BridgeOutcome) -> String {
    match outcome {
        BridgeOutcome::TooLarge { max_bytes } => format!("too_large max={max_bytes}"),
        BridgeOutcome::Busy { retry_after: Some(span) } => {
            format!("busy retry={}", span_text(span))
        }
        outcome => word_of(&BRIDGE_OUTCOMES, &outcome).to_owned(),
    }
}
