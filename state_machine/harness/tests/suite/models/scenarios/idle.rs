//! A session ends for its age, or because its peer is silent, at any step.

use state_machine::connection::Limits;
use state_machine::{Month, Span};

use crate::models::scenario::{Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message};
use crate::models::world::World;
use crate::search::{holds, is_large};

/// After the drain is over, and before a second one could be.
const SESSION_MAX: Span = Span::from_secs(10);

fn session_ends(name: &'static str, messages: usize, freedom: Freedom) -> Scenario {
    Scenario::new(name, Month::of(NOVEMBER), (0..messages).map(message).collect())
        .waiting([0])
        .free(freedom)
        .limits(|limits| limits.session_max = SESSION_MAX)
        .bound(Bounds { connects: 2, idle_deadlines: 1, ..Bounds::default() })
        .seen("a move was cut short", |_, world| is_over(world) && is_moving(world))
}

/// Whether the first session has ended for its age.
fn is_over(world: &World) -> bool {
    world.left.idle_deadlines == 0 && world.left.connects == 1 && world.agent.connection.is_none()
}

fn is_moving(world: &World) -> bool {
    world.record().is_some_and(|record| record.oldmonth.is_some())
}

#[test]
fn a_session_that_ends_while_the_month_turns_breaks_no_promise() {
    holds(&session_ends("session_ends_while_the_month_turns", 2, Freedom::default()));
}

/// Acks take longer than the drain: the session ends while messages are moved.
#[test]
fn a_session_that_ends_while_messages_are_moved_breaks_no_promise() {
    let freedom = Freedom { acks_tarry: true, ..Freedom::default() };
    holds(&session_ends("session_ends_while_messages_move", 1 + larger(), freedom));
}

/// The agent is gone without a close: the node pings it, and closes the connection.
#[test]
fn a_silent_connection_that_ends_breaks_no_promise() {
    let silence = |limits: &mut Limits| {
        (limits.keepalive_interval, limits.keepalive_grace) =
            (Span::from_secs(10), Span::from_secs(2));
    };
    let scenario =
        Scenario::new("silence", Month::of(DECEMBER), (0..1 + larger()).map(message).collect())
            .free(Freedom { acks_tarry: true, ..Freedom::default() })
            .limits(silence)
            .bound(Bounds { connects: 2, idle_deadlines: 2, ..Bounds::default() })
            .seen("the connection is silent for too long", |_, world| {
                world.left.idle_deadlines == 0 && world.connections.is_empty()
            });
    holds(&scenario);
}

fn larger() -> usize {
    usize::from(is_large())
}
