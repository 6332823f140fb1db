//! Runs a delivery script against the machine.

use super::write::DeliveryWriter;
use super::{DeliveryScript, Input};
use crate::script::{MachineKind, MachineState, World};
use state_machine::delivery::{
    Delivery, DeliveryEffect, DeliveryEvent as Is, PushParams, WriteError,
};
use state_machine::store::StoreFailed;
use state_machine::{Message, Month, Time, Uaid};

use DeliveryEffect as Do;

/// The delivery of a script, and the order that waits for an answer.
pub(crate) struct DeliveryWorld {
    start: Time,
    frozen_month: Option<Month>,
    push: Option<Push>,
}

struct Push {
    uaid: Uaid,
    message: Message,
    machine: Delivery,
    effect: Option<Do>,
}

impl DeliveryScript {
    /// The world before the push.
    pub(crate) fn world(&self) -> DeliveryWorld {
        DeliveryWorld { start: self.start, frozen_month: self.frozen_month, push: None }
    }
}

impl World for DeliveryWorld {
    type Input = Input;

    fn happens(&mut self, input: &Input) -> Result<Vec<String>, String> {
        match (input, &mut self.push) {
            (Input::Push(uaid, message), None) => Ok(vec![self.begins(*uaid, message)]),
            (Input::Push(..), Some(_)) => Err("a script has one push".to_owned()),
            (_, None) => Err("nothing was pushed: write `push> U1 M1 C1 ttl=60s` first".to_owned()),
            (answer, Some(push)) => push.answered(answer, self.start),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        0
    }

    fn machines(&self) -> Vec<MachineState> {
        let phase = |push: &Push| {
            MachineState::new("delivery", MachineKind::Delivery, &push.machine.phase())
        };
        self.push.iter().map(phase).collect()
    }
}

impl DeliveryWorld {
    fn begins(&mut self, uaid: Uaid, message: &Message) -> String {
        let this_month = Month::of(self.start);
        let (machine, first) = Delivery::begin(PushParams {
            ttl_is_zero: message.ttl_is_zero(),
            stores_first: message.id.may_want_receipt(),
            this_month,
            message_month: self.frozen_month.unwrap_or(this_month),
        });
        let line = DeliveryWriter { uaid, message, start: self.start }.effect(&first);
        self.push = Some(Push { uaid, message: message.clone(), machine, effect: Some(first) });
        line
    }
}

impl Push {
    fn answered(&mut self, input: &Input, start: Time) -> Result<Vec<String>, String> {
        let Self { uaid, message, machine, effect } = self;
        let writer = DeliveryWriter { uaid: *uaid, message, start };
        let waiting =
            effect.as_ref().ok_or("the delivery has ended: nothing waits for an answer")?;
        let event = event(waiting, input, message).ok_or_else(|| {
            format!("the delivery waits for another answer, to `{}`", writer.effect(waiting))
        })?;
        let effects = machine.step(event);
        *effect = effects
            .iter()
            .find(|next| !matches!(next, Do::Answer(_) | Do::NotifyMessageStored { .. }))
            .cloned();
        Ok(effects.iter().map(|effect| writer.effect(effect)).collect())
    }
}

/// The event of an input, if it answers this order.
fn event(effect: &Do, input: &Input, message: &Message) -> Option<Is> {
    Some(match (effect, input) {
        (Do::ReadRecord, Input::Record(route)) => Is::RecordRead(Ok(route.clone())),
        (Do::MoveAgent, Input::Record(route)) => Is::AgentMoved(Ok(route.clone())),
        (Do::ConfirmChannel { .. }, Input::Channels(channels)) => {
            let has = channels.as_ref().is_some_and(|channels| channels.contains(&message.chid));
            Is::ChannelConfirmed(Ok(has))
        }
        (Do::ReadRecord, Input::Failed) => Is::RecordRead(Err(StoreFailed)),
        (Do::ClearNode { .. }, Input::Failed) => Is::NodeCleared,
        (Do::ConfirmChannel { .. }, Input::Failed) => Is::ChannelConfirmed(Err(StoreFailed)),
        (Do::Store { .. }, Input::Failed) => Is::Stored(Err(WriteError::Failed)),
        (Do::DeleteStored { .. }, Input::Failed) => Is::OldRowDeleted,
        (Do::MoveAgent, Input::Failed) => Is::AgentMoved(Err(StoreFailed)),
        (Do::DropRecipient { .. }, Input::Failed) => Is::RecipientDropped(Err(StoreFailed)),
        (effect, Input::Event(event)) if answers(event, effect) => event.clone(),
        _ => return None,
    })
}

fn answers(event: &Is, effect: &Do) -> bool {
    matches!(
        (event, effect),
        (Is::OtherProtocol, Do::ReadRecord)
            | (Is::NodeAnswered(_), Do::Deliver { .. })
            | (Is::NodeCleared, Do::ClearNode { .. })
            | (Is::Stored(_), Do::Store { .. })
            | (Is::OldRowDeleted, Do::DeleteStored { .. })
            | (Is::BridgeAnswered(_), Do::SendToBridge { .. })
            | (Is::RecipientDropped(_), Do::DropRecipient { .. })
    )
}
