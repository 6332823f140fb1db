//! The one timer of an actor that is driven by a machine's deadline.

use std::time::Duration;

use actix::{Actor, AsyncContext, SpawnHandle};
use state_machine::Time;

use crate::clock::Clock;

/// The timer, and when it fires.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<(Time, SpawnHandle)>);

impl Alarm {
    /// Fires at `deadline`. An alarm that is set for an earlier time is kept: it fires once for
    /// nothing, which is cheaper than a new timer for every message.
    pub(crate) fn set<A>(
        &mut self,
        deadline: Option<Time>,
        clock: &Clock,
        ctx: &mut A::Context,
        fire: fn(&mut A, &mut A::Context),
    ) where
        A: Actor<Context: AsyncContext<A>>,
    {
        let Some(deadline) = deadline else { return };
        match self.0 {
            Some((at, _)) if at <= deadline => return,
            Some((_, handle)) => drop(ctx.cancel_future(handle)),
            None => {}
        }
        let wait = Duration::from_millis(deadline.since(clock.now()).0);
        self.0 = Some((deadline, ctx.run_later(wait, fire)));
    }

    /// The timer has fired: `fire` calls this first.
    pub(crate) fn has_fired(&mut self) {
        self.0 = None;
    }
}
