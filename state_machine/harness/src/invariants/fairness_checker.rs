//! Records which messages wait for their acks, and checks that they delay only their own channel.

use std::collections::{BTreeMap, BTreeSet};

use super::{Checked, Invariant, StepRecord};
use state_machine::connection::{Config, Effect, Event, PhaseName, PushAnswer};
use state_machine::ids::{Chid, MessageId, OpId};
use state_machine::message::Message;
use state_machine::store::{Page, RegisterResult, StoreAnswer, StoreOp};
use state_machine::time::Time;
use state_machine::wire::{ClientMessage, ServerMessage, status};

use Invariant::OthersNotDelayed as Rule;

/// Observes the messages of one connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct FairnessChecker {
    /// The unacked messages, and until when each may delay others: none if that time is over.
    unacked: BTreeMap<MessageId, (Chid, Option<Time>)>,
    acked: BTreeSet<MessageId>,
    /// Channels that had an overdue message on this connection: their rows may wait.
    accused: BTreeSet<Chid>,
    /// Whether the agent has set a minimum urgency. Its rows may wait from then on.
    has_min_urgency: bool,
    /// Operations without an answer that read messages or channels, or delete messages.
    in_flight: BTreeSet<OpId>,
    /// Whether the agent has a record, and so a month to read.
    has_record: bool,
    /// Whether the page in flight begins a reading of the table.
    is_first_page: bool,
    /// Whether a message was stored that the last scan may not have read.
    is_scan_owed: bool,
    /// Whether the last page was followed by others.
    has_next_page: bool,
    /// Rows that a scan has read and left to its end.
    left_out: BTreeSet<MessageId>,
}

impl FairnessChecker {
    /// Takes the next step of an open connection.
    pub(super) fn observe(&mut self, seen: &StepRecord<'_>, config: &Config) -> Checked {
        self.expire(seen.now);
        let was_idle = self.is_idle();
        self.happened(seen);
        for effect in seen.effects {
            self.ordered(effect, seen.now, config);
        }
        if seen.before == PhaseName::Ready && seen.after == PhaseName::Ready {
            self.push_is_sent(seen, was_idle)?;
            self.page_is_sent(seen)?;
            self.expire(seen.now);
            let is_stuck = self.has_room() && (self.is_scan_owed || self.has_next_page);
            check!(!is_stuck, Rule, "storage is not read, though nothing waits for an ack in time");
            let is_over = !self.is_idle() || self.left_out.is_empty();
            check!(is_over, Rule, "{:?} were left out", self.left_out);
        }
        Ok(())
    }

    fn expire(&mut self, now: Time) {
        for (chid, until) in self.unacked.values_mut() {
            if until.is_some_and(|until| until <= now) {
                *until = None;
                self.accused.insert(*chid);
            }
        }
    }

    /// Whether no operation is in flight and no message may delay another.
    fn has_room(&self) -> bool {
        self.in_flight.is_empty() && self.unacked.values().all(|(_, until)| until.is_none())
    }

    fn is_idle(&self) -> bool {
        self.has_room() && !self.is_scan_owed && !self.has_next_page
    }

    fn happened(&mut self, seen: &StepRecord<'_>) {
        match seen.event {
            Event::MessageStored => self.is_scan_owed = self.has_record,
            Event::MessageReceived(ClientMessage::Ack { updates }) => {
                for update in updates {
                    self.unacked.remove(&update.id);
                    self.left_out.remove(&update.id);
                    self.acked.insert(update.id);
                }
            }
            Event::StoreAnswered { op, answer: Ok(answer) } => self.store_answered(*op, answer),
            _ => {}
        }
    }

    fn store_answered(&mut self, op: OpId, answer: &StoreAnswer) {
        let was_in_flight = self.in_flight.remove(&op);
        match answer {
            StoreAnswer::Registered(RegisterResult::Registered(..)) => self.has_record = true,
            StoreAnswer::Fetched(page) if was_in_flight => {
                self.has_next_page = page.next.is_some();
                if self.is_first_page {
                    self.left_out = BTreeSet::new();
                }
            }
            _ => {}
        }
    }

    fn ordered(&mut self, effect: &Effect, now: Time, config: &Config) {
        match effect {
            Effect::Send(ServerMessage::Notification(message)) => {
                let until = now + config.limits.ack_wait;
                self.unacked.insert(message.id, (message.chid, Some(until)));
                self.left_out.remove(&message.id);
            }
            Effect::Send(ServerMessage::UrgencySet { status: status::OK }) => {
                self.has_min_urgency = true;
            }
            Effect::SubmitStoreOp { op, order } => match order {
                StoreOp::Fetch { after, .. } => {
                    self.is_first_page = after.is_none();
                    self.is_scan_owed &= !self.is_first_page;
                    self.has_next_page = false;
                    self.in_flight.insert(*op);
                }
                StoreOp::ReadChannels { .. } | StoreOp::Delete { .. } => {
                    self.in_flight.insert(*op);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// A push to an idle connection is sent, whatever waits for overdue acks of other channels.
    fn push_is_sent(&self, seen: &StepRecord<'_>, was_idle: bool) -> Checked {
        let Event::PushArrived { message, .. } = seen.event else { return Ok(()) };
        let is_busy = seen
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::AnswerPush { answer: PushAnswer::Busy, .. }));
        let may_wait = !was_idle || !self.is_due(message);
        check!(!is_busy || may_wait, Rule, "{} is busy on an idle connection", message.id);
        Ok(())
    }

    /// A row of a channel without overdue messages is sent as soon as it is read.
    fn page_is_sent(&mut self, seen: &StepRecord<'_>) -> Checked {
        let Event::StoreAnswered { answer: Ok(StoreAnswer::Fetched(page)), .. } = seen.event else {
            return Ok(());
        };
        let Page { messages, .. } = page;
        let is_doubtful = |effect: &Effect| {
            matches!(effect, Effect::SubmitStoreOp { order: StoreOp::ReadChannels { .. }, .. })
        };
        if seen.effects.iter().any(is_doubtful) {
            return Ok(());
        }
        let due: Vec<&Message> = messages.iter().filter(|row| self.is_due(row)).collect();
        for message in due {
            check!(message.is_offered_often(), Rule, "{} was read and not sent", message.id);
            self.left_out.insert(message.id);
        }
        Ok(())
    }

    /// Whether the message must be sent as soon as there is room.
    fn is_due(&self, message: &Message) -> bool {
        !self.unacked.contains_key(&message.id)
            && !self.acked.contains(&message.id)
            && !self.accused.contains(&message.chid)
            && !self.has_min_urgency
    }
}
