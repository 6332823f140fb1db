//! An agent with two channels, of which it gives up one and registers it again.

use state_machine::{Message, Month};

use crate::models::scenario::{Bounds, DECEMBER, Freedom, Scenario, channel, message};
use crate::search::{holds, is_large};

#[test]
fn a_channel_that_is_given_up_and_registered_again_takes_no_other_along() {
    let second = |which| Message { chid: channel(2), ..message(which) };
    let pushed = (1..2 + usize::from(is_large())).map(message);
    let messages = [second(0)].into_iter().chain(pushed).collect();
    let scenario = Scenario::new("channels", Month::of(DECEMBER), messages)
        .second_channel()
        .waiting([0])
        .free(Freedom { acks_tarry: is_large(), ..Freedom::default() })
        .bound(Bounds { connects: 1, unregisters: 1, registers: 1, ..Bounds::default() })
        .seen("a row of a channel that was given up is left", |search, world| {
            world.left.unregisters == 0 && world.is_stored(search.scenario.messages[0].id)
        })
        .seen("the channel is registered again", |_, world| {
            world.left.unregisters == 0 && world.agent.channels.len() == 2
        });
    holds(&scenario);
}
