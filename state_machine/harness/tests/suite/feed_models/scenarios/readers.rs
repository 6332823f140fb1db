//! Pages are read one number at a time, while numbers are vacated and assigned.

use crate::feed_models::promises::Promise;

use crate::feed_models::check::is_caught;
use crate::feed_models::mutation::Mutation;
use crate::feed_models::scenario::{Bounds, Scenario};
use crate::search::{by_size, holds, tests};

/// A page holds one or two updates, and a publication may number two keys between two reads.
fn pages() -> Scenario {
    Scenario::new("pages", 3, 1)
        .batch(2)
        .page(by_size(2, 1))
        .published(&[0, 1, 2])
        .follower(0)
        .bound(Bounds { writes: by_size(2, 3), ..Bounds::default() })
        .seen("a number was given up before it was read", |_, world| {
            let is_missing = world.store.feed().keys.values().any(|row| row.feed_sync_id.is_none());
            is_missing && world.followers[0].is_half_way()
        })
        .seen("a page is read while another number is assigned", |_, world| {
            let head = world.store.feed().sequence().value;
            world.followers[0].is_half_way() && head.0 > 3
        })
}

/// Pages of two updates: in a page of one, the order and the end are trivial.
fn pages_of_two() -> Scenario {
    pages().page(2)
}

tests! {
    pages_that_are_read_meanwhile_miss_nothing: holds(&pages());
    a_reader_that_does_not_stop_at_the_head_is_noticed:
        is_caught(&pages_of_two(), Mutation::ReaderWithoutHead, &[Promise::LastStateArrives]);
    a_head_that_is_read_after_the_rows_is_noticed:
        is_caught(&pages_of_two(), Mutation::HeadReadAfterRows, &[Promise::LastStateArrives]);
    a_page_in_another_order_than_that_of_its_numbers_is_noticed:
        is_caught(&pages_of_two(), Mutation::PageByKey, &[Promise::NumbersRunForward]);
}
