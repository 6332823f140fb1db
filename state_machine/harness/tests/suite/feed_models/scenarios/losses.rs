//! The store rejects an operation, or executes it and the answer is lost.

use state_machine::feed::PublisherWait;

use crate::feed_models::scenario::{Bounds, Scenario};
use crate::search::{by_size, holds, tests};

fn refusals() -> Scenario {
    Scenario::new("refusals", by_size(1, 2), 1)
        .published(&[0])
        .follower(0)
        .followed()
        .bound(Bounds { writes: 2, refusals: by_size(2, 3), ..Bounds::default() })
        .seen("a key is written while the publisher waits for its retry", |_, world| {
            world.nodes[0].waits_for(PublisherWait::Retry) && world.nodes[0].mail.is_some()
        })
        .seen("a fetch is to be made again", |_, world| {
            let running = world.followers[0].running.as_ref();
            running.is_some_and(|running| running.consumer.deadline().is_some())
        })
}

fn lost_answers() -> Scenario {
    Scenario::new("lost_answers", 2, by_size(1, 2))
        .batch(2)
        .writers(&[0])
        .published(&[0])
        .follower(0)
        .followed()
        .bound(Bounds { writes: by_size(2, 3), lost_answers: by_size(1, 2), ..Bounds::default() })
        .seen("a publication is on its way twice", |_, world| {
            let draft = world.drafts().next();
            draft.is_some_and(|draft| world.astray.contains(draft))
        })
}

tests! {
    a_store_that_refuses_delays_and_loses_nothing: holds(&refusals());
    an_answer_that_is_lost_numbers_nothing_twice: holds(&lost_answers());
}
