//! What a stage decides, and what follows for it.

use crate::connection::effect::CloseReason;
use crate::connection::event::Event;
use crate::connection::session::{Session, SessionOutcome};
use crate::connection::step::{StepContext, Wait};
use crate::ids::PushId;
use crate::message::Message;
use crate::month::Month;
use crate::store::StoreAnswer;
use crate::time::Time;

/// What follows for a stage.
#[derive(Clone, Copy)]
pub(in crate::connection) enum Next {
    Stay,
    /// Another step of the same stage.
    Step,
    /// The stage of an agent whose record has this `curmonth` and `oldmonth`.
    Month(Month, Option<Month>),
    /// The stage of an agent without a record.
    NoRecord,
    Close(CloseReason),
}

/// What a stage decides. The session does what all stages do alike.
pub(in crate::connection) trait StageRules {
    /// The stage's own deadline, besides those of the session.
    fn deadline(&self, _: &Session) -> Option<(Time, Wait)> {
        None
    }

    fn on_event(&mut self, session: &mut Session, event: Event, cx: &mut StepContext<'_>) -> Next {
        match session.on_event(event, cx) {
            SessionOutcome::Stay => Next::Stay,
            SessionOutcome::Close(reason) => Next::Close(reason),
            SessionOutcome::Push(push, message) => {
                self.on_push(session, push, message, cx);
                Next::Stay
            }
        }
    }

    fn on_push(
        &mut self,
        session: &mut Session,
        push: PushId,
        message: Message,
        cx: &mut StepContext<'_>,
    ) {
        session.reject_to_store(push, &message, cx);
    }

    /// Processes the answer to an operation that only this stage submits. The others submit none, and get none.
    fn on_store_answer(
        &mut self,
        _: &mut Session,
        _: StoreAnswer,
        _: &mut StepContext<'_>,
    ) -> Next {
        Next::Stay
    }

    /// Does what the time and the last event allow. `months` are those of `Stage::months`.
    fn advance(
        &mut self,
        session: &mut Session,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Next {
        session.flush_acks(months, cx);
        Next::Stay
    }
}
