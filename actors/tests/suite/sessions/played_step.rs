//! A transcript as the outside of an actor can play it.
//!
//! Almost every line is played as it stands. The detours, all of them:
//!
//! | line | instead | because |
//! |---|---|---|
//! | `push> reply_lost M1 C1` | the endpoint stops listening before the step that accepts, and what the loss orders follows in that step | the actor finds the endpoint gone when it answers, and notifies the machine in the same breath |
//! | a push after the end: `busy` | the registry answers `not_here` | the actor is gone; the endpoint stores the message all the same |
//! | `node> shutdown` before hello | the actor: notified directly; the socket: notified as soon as it sends hello | the registry knows no connection before hello |
//! | `node> connected_elsewhere` before hello | no connection is notified | the registry knows no connection before hello |
//! | `node> broadcasts` right after a `broadcast_subscribe` | the node knows them before that step, and what they bring follows in it | the actor looks at them when it hears the word |
//! | a push before hello | the actor: put into its mailbox; the socket: the registry answers | the same |

use std::sync::Arc;

use harness::transcript::{Bindings, Input, Step, Transcript};
use state_machine::PushId;
use state_machine::broadcast::Broadcasts;
use state_machine::connection::Event;
use state_machine::wire::ClientMessage;

/// A step to play.
pub(crate) struct PlayedStep {
    pub(crate) step: Step,
    /// The push whose endpoint stops listening before this.
    pub(crate) deaf: Option<PushId>,
    /// What the node knows of broadcasts before this.
    pub(crate) broadcasts: Option<Arc<Broadcasts>>,
}

impl PlayedStep {
    pub(crate) fn all(transcript: &Transcript) -> Vec<Self> {
        let mut all_played: Vec<Self> = Vec::new();
        let mut is_over = false;
        for step in &transcript.steps {
            let mut played = Self { step: step.clone(), deaf: None, broadcasts: None };
            if is_over {
                played.happens_after_the_end();
            }
            is_over |= played.step.effects.iter().any(|effect| effect.recipient() == "close");
            match (&step.input, all_played.last_mut()) {
                (Input::Event(Event::AckReplyLost(_)), Some(before)) => {
                    before.loses_its_answer(step);
                }
                (Input::Event(Event::BroadcastsChanged(all)), Some(before))
                    if before.subscribes() =>
                {
                    before.broadcasts = Some(Arc::clone(all));
                    before.step.effects.extend(step.effects.iter().cloned());
                }
                _ => all_played.push(played),
            }
        }
        all_played
    }

    /// Whether the agent subscribes to broadcasts and did not get them yet.
    fn subscribes(&self) -> bool {
        let event = self.step.input.event(&Bindings::fixed());
        self.broadcasts.is_none()
            && matches!(event, Ok(Event::MessageReceived(ClientMessage::BroadcastSubscribe { .. })))
    }

    fn happens_after_the_end(&mut self) {
        let answers = self.step.effects.iter_mut().filter(|effect| effect.recipient() == "push");
        answers.for_each(|answer| answer.text = answer.text.replace(" busy ", " not_here "));
    }

    fn loses_its_answer(&mut self, lost: &Step) {
        let accepted = lost.text.replace("push> reply_lost", " accepted");
        let effects = &mut self.step.effects;
        let at = effects.iter().position(|effect| effect.text.ends_with(&accepted));
        let answer = effects.remove(at.expect("an answer is lost right after it was given"));
        let push = answer.text.split(' ').nth(1).and_then(|push| push.parse().ok());
        self.deaf = Some(PushId(push.expect("the line names the push")));
        effects.extend(lost.effects.iter().cloned());
    }
}
