//! Commands that wait until the connection is ready and the command before is done.

use std::collections::VecDeque;

use crate::connection::StepContext;
use crate::connection::effect::Effect;
use crate::wire::{ClientMessage, ServerMessage, status};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Commands {
    /// At most `deferred_commands_max`; the oldest is first.
    waiting: VecDeque<ClientMessage>,
}

impl Commands {
    /// Queues a command, or refuses it with 503 if too many wait.
    pub(super) fn defer(&mut self, command: ClientMessage, cx: &mut StepContext<'_>) {
        if self.waiting.len() < cx.config.limits.deferred_commands_max {
            self.waiting.push_back(command);
            return;
        }
        let status = status::UNAVAILABLE;
        cx.out.push(Effect::Send(match command {
            ClientMessage::Register { chid, .. } => {
                ServerMessage::RegisterRefused { chid, status, reason: "too many commands wait" }
            }
            ClientMessage::Unregister { chid } => ServerMessage::Unregistered { chid, status },
            ClientMessage::Urgency { .. }
            | ClientMessage::Hello { .. }
            | ClientMessage::Ack { .. }
            | ClientMessage::Nack
            | ClientMessage::BroadcastSubscribe { .. }
            | ClientMessage::Ping => ServerMessage::UrgencySet { status },
        }));
    }

    pub(super) fn next(&mut self) -> Option<ClientMessage> {
        self.waiting.pop_front()
    }

    pub(super) fn put_back(&mut self, command: ClientMessage) {
        self.waiting.push_front(command);
    }
}
