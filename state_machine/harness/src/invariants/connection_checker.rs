//! Records what the rules need to know of a connection, and checks them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::broadcast_checker::BroadcastChecker;
use super::fairness_checker::FairnessChecker;
use super::known::State;
use super::location_checker::LocationChecker;
use super::rule::{Checked, Invariant, StepRecord, check};
use state_machine::connection::{Config, Effect, Event, Limits, PhaseName, PushAnswer};
use state_machine::ids::{Chid, MessageId, OpId, PushId, Uaid};
use state_machine::message::{Message, MessageKey, Urgency};
use state_machine::store::StoreOp;
use state_machine::time::Time;
use state_machine::wire::{ClientMessage, ServerMessage, status};

/// Observes one connection from its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConnectionChecker {
    config: Arc<Config>,
    /// Pushes without an answer.
    pushes: BTreeMap<PushId, Push>,
    /// Messages that were sent or acked on this connection.
    messages: BTreeMap<MessageId, State>,
    /// Acks so far, repeated ones too: an upper bound of the acks that made the connection forget
    /// others.
    acks: usize,
    last_op: Option<OpId>,
    found_under: Option<Uaid>,
    is_greeted: bool,
    /// Commands without an answer, in the order in which they were received.
    commands: VecDeque<ClientMessage>,
    min_urgency: Urgency,
    broadcasts: BroadcastChecker,
    location_checker: LocationChecker,
    fairness: FairnessChecker,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Push {
    id: MessageId,
    ttl_is_zero: bool,
    arrived_at: Time,
    is_sent: bool,
}

use Invariant as Is;

/// The most overdue messages of a connection, in windows of `unacked_max`.
const OVERDUE_WINDOWS_MAX: usize = 32;

impl ConnectionChecker {
    /// Starts at the accepted socket.
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            pushes: BTreeMap::new(),
            messages: BTreeMap::new(),
            acks: 0,
            last_op: None,
            found_under: None,
            is_greeted: false,
            commands: VecDeque::new(),
            min_urgency: Urgency::VeryLow,
            broadcasts: BroadcastChecker::default(),
            location_checker: LocationChecker::default(),
            fairness: FairnessChecker::default(),
        }
    }

    /// Takes the next step and checks every rule. After a violation the checker must not be used
    /// again.
    pub fn observe(&mut self, seen: &StepRecord<'_>) -> Checked {
        if seen.before == PhaseName::Closed {
            return silent(seen);
        }
        self.happened(seen)?;
        self.broadcasts.happened(seen.event, self.config.limits.broadcasts_per_agent_max);
        self.location_checker.happened(seen, &self.config);
        for effect in seen.effects {
            self.effect_seen(effect, seen)?;
        }
        self.rested(seen)?;
        self.fairness.observe(seen, &self.messages, &self.config.limits)
    }

    /// The number of commands of the agent without an answer.
    pub fn unanswered_commands(&self) -> usize {
        self.commands.len()
    }

    fn happened(&mut self, seen: &StepRecord<'_>) -> Checked {
        match seen.event {
            Event::PushArrived { push, message } => {
                let arrived = Push {
                    id: message.id,
                    ttl_is_zero: message.ttl_is_zero(),
                    arrived_at: seen.now,
                    is_sent: false,
                };
                let earlier = self.pushes.insert(*push, arrived);
                check!(earlier.is_none(), Is::PushAnsweredOnce, "{push:?} arrived twice");
            }
            Event::MessageReceived(ClientMessage::Ack { updates }) => {
                updates.iter().for_each(|update| self.acked(update.id));
            }
            Event::MessageReceived(
                command @ (ClientMessage::Register { .. }
                | ClientMessage::Unregister { .. }
                | ClientMessage::Urgency { .. }),
            ) => self.commands.push_back(command.clone()),
            _ => {}
        }
        Ok(())
    }

    /// An ack of a message that was not sent here counts only while there is room to remember it.
    fn acked(&mut self, id: MessageId) {
        let is_believed = self.acks < self.config.limits.remembered_acks_max;
        // An ack that is repeated is not remembered for longer.
        let is_repeated = matches!(self.messages.get(&id), Some(State::Acked(_)));
        if !is_repeated && (self.messages.contains_key(&id) || is_believed) {
            self.messages.insert(id, State::Acked(self.acks));
        }
        for (lower, state) in &mut self.messages {
            if id.covers(*lower) && !matches!(state, State::Acked(_)) {
                *state = State::Acked(self.acks);
            }
        }
        self.acks += 1;
    }

    fn effect_seen(&mut self, effect: &Effect, seen: &StepRecord<'_>) -> Checked {
        match effect {
            Effect::Send(message) => self.sent(message, seen),
            Effect::Ping => Ok(()),
            Effect::SubmitStoreOp { op, operation } => {
                self.location_checker.asked(*op, operation, seen, &self.config)?;
                self.asked(*op, operation)
            }
            Effect::AnswerPush { push, answer, message } => {
                self.push_answered(*push, *answer, message, seen)
            }
            Effect::Register { uaid } => {
                self.location_checker.entered(*uaid, seen.now);
                let before = self.found_under.replace(*uaid);
                check!(
                    before.is_none(),
                    Is::FoundUnderOneName,
                    "entered as {uaid} while {before:?}"
                );
                Ok(())
            }
            Effect::Deregister { uaid } => {
                let before = self.found_under.take();
                check!(
                    before == Some(*uaid),
                    Is::FoundUnderOneName,
                    "left {uaid} while {before:?}"
                );
                Ok(())
            }
            Effect::NotifyPreviousNode { node, uaid, connected_at } => {
                self.location_checker.notified(node, *uaid, *connected_at)
            }
            Effect::SubscribeBroadcasts { .. } => self.broadcasts.follows(true),
            Effect::UnsubscribeBroadcasts => self.broadcasts.follows(false),
            Effect::Close(reason) => {
                let is_last = seen.effects.last() == Some(effect);
                let is_closed = seen.after == PhaseName::Closed;
                check!(is_last && is_closed, Is::SilentAfterClose, "orders after {reason:?}");
                Ok(())
            }
        }
    }

    fn sent(&mut self, message: &ServerMessage, seen: &StepRecord<'_>) -> Checked {
        match message {
            ServerMessage::Notification(message) => self.notified(message, seen.now)?,
            ServerMessage::Registered { .. }
            | ServerMessage::RegisterRefused { .. }
            | ServerMessage::Unregistered { .. }
            | ServerMessage::UrgencySet { .. } => self.command_answered(message, seen.event)?,
            ServerMessage::Hello { .. } | ServerMessage::SimplePushHello { .. } => {
                check!(!self.is_greeted, Is::HelloFirst, "hello was answered twice");
                self.is_greeted = true;
                if let ServerMessage::Hello { broadcasts, .. } = message {
                    self.broadcasts.sent(broadcasts)?;
                }
            }
            ServerMessage::Broadcast(broadcasts) => {
                check!(!broadcasts.is_empty(), Is::BroadcastsNamed, "an empty update was sent");
                self.broadcasts.sent(broadcasts)?;
            }
            ServerMessage::Pong | ServerMessage::Error { .. } => {}
        }
        if let ServerMessage::Hello { uaid, .. } | ServerMessage::Registered { uaid, .. } = message
        {
            let found = self.found_under;
            check!(
                found == Some(*uaid),
                Is::HelloFirst,
                "{uaid} was sent, registered as {found:?}"
            );
        }
        let is_carried_out = is_carried_out(message);
        let is_ready = seen.before == PhaseName::Ready || seen.after == PhaseName::Ready;
        check!(!is_carried_out || is_ready, Is::CommandsWaitForReady, "{message:?}");
        let is_unasked =
            matches!(message, ServerMessage::Notification(_) | ServerMessage::Broadcast(_));
        let needs_hello = is_carried_out || is_unasked;
        check!(!needs_hello || self.is_greeted, Is::HelloFirst, "{message:?} before hello");
        Ok(())
    }

    fn notified(&mut self, message: &Message, sent_at: Time) -> Checked {
        let Message { id, chid, urgency, .. } = message;
        check!(*urgency >= self.min_urgency, Is::UrgencyRespected, "{id} is {urgency:?}");
        let remembered_max = self.config.limits.remembered_acks_max;
        let ttl_is_zero = message.ttl_is_zero();
        let is_wanted = !self.messages.contains_key(id);
        let expires_at = message.expires_at();
        let sent = State::Unacked { chid: *chid, ttl_is_zero, sent_at, expires_at, is_wanted };
        match self.messages.insert(*id, sent) {
            Some(State::Unacked { .. }) => check!(false, Is::SentOnce, "{id} is sent again"),
            Some(State::Acked(which)) => {
                let since = self.acks - which;
                let is_remembered = since <= remembered_max;
                check!(!is_remembered, Is::AckedNeverSent, "{id} is sent, acked {since} acks ago");
            }
            None => {}
        }
        let pushes = self.pushes.values_mut().filter(|push| push.id == *id);
        pushes.for_each(|push| push.is_sent = true);
        Ok(())
    }

    /// A command that too many precede is rejected at once. All others are answered in the order in
    /// which they were received.
    fn command_answered(&mut self, answer: &ServerMessage, event: &Event) -> Checked {
        use ClientMessage::{Register, Unregister, Urgency};
        let is_at_once = !is_carried_out(answer) && matches!(event, Event::MessageReceived(_));
        let commands = &mut self.commands;
        let command = if is_at_once { commands.pop_back() } else { commands.pop_front() };
        match (command, answer) {
            (
                Some(Register { chid: asked, .. }),
                ServerMessage::Registered { chid, .. }
                | ServerMessage::RegisterRefused { chid, .. },
            ) if asked == *chid => {}
            (Some(Unregister { chid: asked }), ServerMessage::Unregistered { chid, status })
                if asked == *chid =>
            {
                if *status == status::OK {
                    self.gives_up(*chid);
                }
            }
            (Some(Urgency { min }), ServerMessage::UrgencySet { status }) => {
                self.min_urgency = if *status == status::OK { min } else { self.min_urgency };
            }
            (command, _) => check!(false, Is::CommandsInOrder, "{answer:?} answers {command:?}"),
        }
        Ok(())
    }

    /// The versions of a SimplePush channel that is registered again may begin anew, so acks of earlier ones are
    /// forgotten.
    fn gives_up(&mut self, given_up: Chid) {
        self.messages.retain(|id, state| {
            !(matches!(state, State::Acked(_)) && id.version_of(given_up).is_some())
        });
        for state in self.messages.values_mut() {
            if let State::Unacked { chid, is_wanted, .. } = state {
                *is_wanted &= *chid != given_up;
            }
        }
    }

    fn asked(&mut self, op: OpId, operation: &StoreOp) -> Checked {
        let last = self.last_op.replace(op);
        check!(last < Some(op), Is::OrdersNumbered, "{op:?} after {last:?}");
        if let StoreOp::Delete { messages, .. } = operation {
            for MessageKey { id, .. } in messages {
                let is_wanted = matches!(
                    self.messages.get(id),
                    Some(State::Unacked { ttl_is_zero: false, is_wanted: true, .. })
                );
                check!(!is_wanted, Is::UnackedNeverDeleted, "{id} is deleted");
            }
        }
        Ok(())
    }

    fn push_answered(
        &mut self,
        push: PushId,
        answer: PushAnswer,
        message: &MessageKey,
        seen: &StepRecord<'_>,
    ) -> Checked {
        let Some(Push { id, ttl_is_zero, is_sent, .. }) = self.pushes.remove(&push) else {
            check!(false, Is::PushAnsweredOnce, "{answer:?} to {push:?}, which does not wait");
            return Ok(());
        };
        check!(id == message.id, Is::PushAnsweredOnce, "{push:?} brought {id}, not {message:?}");
        match answer {
            PushAnswer::Accepted => {
                let is_kept = is_acked_by(seen.event, id) || ttl_is_zero;
                check!(is_sent && is_kept, Is::AcceptedMeansAcked, "{push:?} with {id}");
            }
            PushAnswer::Unconfirmed => {
                check!(is_sent, Is::UnconfirmedMeansSent, "{push:?} with {id}");
            }
            PushAnswer::Busy | PushAnswer::NoSuchChannel => {
                check!(!is_sent, Is::BusyMeansNotSent, "{answer:?} to {push:?} with {id}");
            }
        }
        Ok(())
    }

    /// Checks what must hold between steps.
    fn rested(&mut self, seen: &StepRecord<'_>) -> Checked {
        let is_closed = seen.after == PhaseName::Closed;
        let has_close = matches!(seen.effects.last(), Some(Effect::Close(_)));
        check!(
            is_closed == has_close,
            Is::SilentAfterClose,
            "the phase and the effect close differ"
        );
        self.pushes_rest(seen)?;
        if !is_closed {
            self.window_rests(seen)?;
        }
        let counted = seen.unacked;
        check!(!is_closed || counted == 0, Is::WindowCounted, "{counted} counted at the end");
        let found = self.found_under;
        check!(!is_closed || found.is_none(), Is::FoundUnderOneName, "closed as {found:?}");
        if self.is_greeted || is_closed {
            self.broadcasts.rested(is_closed)?;
        }
        self.location_checker.rested(seen)?;
        deadline_rests(seen)
    }

    fn window_rests(&mut self, seen: &StepRecord<'_>) -> Checked {
        let Limits { ack_wait, unacked_max: max, .. } = self.config.limits;
        let is_fresh = |sent_at: Time| sent_at <= seen.now && seen.now < sent_at + ack_wait;
        self.messages.retain(|_, state| {
            !matches!(state, State::Unacked { ttl_is_zero: true, sent_at, .. } if !is_fresh(*sent_at))
        });
        let (mut fresh, mut unacked, mut expired) = (0, 0, 0);
        let mut of_channels = BTreeMap::<Chid, usize>::new();
        for state in self.messages.values() {
            if let State::Unacked { chid, ttl_is_zero, sent_at, expires_at, .. } = state {
                let is_fresh = is_fresh(*sent_at);
                fresh += usize::from(is_fresh);
                unacked += 1;
                if *expires_at > seen.now {
                    *of_channels.entry(*chid).or_default() += 1;
                } else if !ttl_is_zero && !is_fresh {
                    expired += 1;
                }
            }
        }
        let counted = seen.unacked;
        check!(
            counted == unacked - expired,
            Is::WindowCounted,
            "{counted} counted, {unacked} seen, {expired} expired"
        );
        check!(fresh <= max, Is::WindowBounded, "{fresh} of {max}");
        let most = of_channels.into_values().max().unwrap_or_default();
        check!(most <= max, Is::WindowBounded, "{most} of one channel");
        let overdue = unacked - fresh - expired;
        check!(overdue <= OVERDUE_WINDOWS_MAX * max, Is::WindowBounded, "{overdue} overdue");
        Ok(())
    }

    fn pushes_rest(&self, seen: &StepRecord<'_>) -> Checked {
        let is_closed = seen.after == PhaseName::Closed;
        for (push, Push { id, arrived_at, is_sent, .. }) in &self.pushes {
            check!(!is_closed, Is::PushAnsweredOnce, "{push:?} has no answer at the end");
            let is_in_time = seen.now < *arrived_at + self.config.limits.ack_wait;
            check!(*is_sent && is_in_time, Is::PushAnsweredInTime, "{push:?} with {id}");
        }
        Ok(())
    }
}

/// Checks that a closed connection answers pushes and does nothing else.
fn silent(seen: &StepRecord<'_>) -> Checked {
    let is_silent = match (seen.event, seen.effects) {
        (Event::PushArrived { push, .. }, [Effect::AnswerPush { push: answered, answer, .. }]) => {
            push == answered && *answer == PushAnswer::Busy
        }
        (Event::PushArrived { .. }, _) => false,
        (_, effects) => effects.is_empty(),
    };
    let is_closed = seen.after == PhaseName::Closed;
    check!(is_silent && is_closed, Is::SilentAfterClose, "{:?}", seen.effects);
    deadline_rests(seen)
}

fn deadline_rests(seen: &StepRecord<'_>) -> Checked {
    let StepRecord { now, deadline, after, .. } = *seen;
    let is_right = match deadline {
        Some((at, _)) => after != PhaseName::Closed && now < at,
        None => after == PhaseName::Closed,
    };
    check!(is_right, Is::DeadlinesMove, "{deadline:?} in {after} at {now:?}");
    Ok(())
}

/// Whether the frame answers a command that was accepted, not rejected for lack of room.
fn is_carried_out(message: &ServerMessage) -> bool {
    match message {
        ServerMessage::Registered { .. } => true,
        ServerMessage::RegisterRefused { status, .. }
        | ServerMessage::Unregistered { status, .. }
        | ServerMessage::UrgencySet { status } => *status != status::UNAVAILABLE,
        ServerMessage::Hello { .. }
        | ServerMessage::SimplePushHello { .. }
        | ServerMessage::Notification(_)
        | ServerMessage::Broadcast(_)
        | ServerMessage::Pong
        | ServerMessage::Error { .. } => false,
    }
}

fn is_acked_by(event: &Event, id: MessageId) -> bool {
    match event {
        Event::MessageReceived(ClientMessage::Ack { updates }) => {
            updates.iter().any(|update| update.id.covers(id))
        }
        _ => false,
    }
}
