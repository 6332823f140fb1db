//! More messages with the same time than a page holds.

use harness::invariants::Promise;
use state_machine::Month;
use state_machine::store::StoreOp;

use crate::models::check::is_caught;
use crate::models::mutation::Mutation;
use crate::models::node::Pending;
use crate::models::scenario::{APART, Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message};
use crate::search::{holds, is_large, tests};

fn pages() -> Scenario {
    let rows = 3;
    let pushes = usize::from(is_large());
    let messages = (0..rows + pushes).map(message).collect();
    Scenario::new("pages", Month::of(NOVEMBER), messages)
        .waiting(0..rows)
        .limits(|limits| limits.fetch_rows_max = 1)
        .bound(Bounds { connects: 1, ..Bounds::default() })
        .seen("a page was followed by another", |_, world| world.agent.unacked.len() > 1)
}

/// The endpoint of a push is behind those of the messages that wait: its id is behind the cursor of a fetch that is
/// under way.
fn pages_of_clocks_apart() -> Scenario {
    let waiting = 1..4;
    let messages: Vec<_> = (0..waiting.end).map(message).collect();
    assert!(messages[0].id < messages[1].id);
    Scenario::new("pages_of_clocks_apart", Month::of(DECEMBER), messages)
        .first_node(APART)
        .endpoints([0], -APART)
        .waiting(waiting)
        .limits(|limits| (limits.first_fetch_rows_max, limits.fetch_rows_max) = (1, 1))
        .free(Freedom { answers_travel: true, ..Freedom::default() })
        .bound(Bounds { connects: 1 + u8::from(is_large()), ..Bounds::default() })
        .seen("a message is stored behind the cursor of a fetch", |search, world| {
            let id = search.scenario.messages[0].id;
            let is_ahead = |pending: &Pending| match &pending.operation {
                StoreOp::Fetch { after: Some(after), .. } => *after.as_str() > *id.to_string(),
                _ => false,
            };
            world.is_stored(id) && world.nodes.iter().any(|node| node.queue.iter().any(is_ahead))
        })
}

tests! {
    a_message_behind_the_cursor_of_a_fetch_is_delivered_without_a_recheck:
        holds(&pages_of_clocks_apart());
    a_notification_that_is_dropped_during_a_fetch_is_noticed:
        is_caught(pages_of_clocks_apart(), Mutation::NudgeDuringFetch, Promise::FoundWhileConnected);
    messages_of_one_instant_are_delivered_page_by_page: holds(&pages());
    a_cursor_by_timestamp_is_noticed:
        is_caught(pages(), Mutation::CursorByTimestamp, Promise::AcceptedNeverLost);
}
