//! Random histories. At the end of each, every write must be published and consumed.

use harness::feed::transcript::{ConsumerStep, PublisherStep};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

use crate::cases::config;
use crate::feeds::trial::{KEYS, NODES, Op, Trial};

#[test]
fn every_consumer_ends_with_the_last_state_of_every_key() {
    let ran = TestRunner::new(config()).run(&history(), |history| goes_well(&history, false));
    assert!(ran.is_ok(), "{}", ran.unwrap_err());
}

#[test]
fn publishers_that_take_the_greatest_number_and_one_lose_updates() {
    let ran = TestRunner::new(config()).run(&history(), |history| goes_well(&history, true));
    let Err(TestError::Fail(reason, _)) = ran else { panic!("nothing was noticed") };
    assert!(reason.message().contains("misses"), "{reason}");
}

fn goes_well((batch_max, ops): &History, is_naive: bool) -> Result<(), TestCaseError> {
    let mut trial = Trial::new(is_naive, *batch_max).map_err(TestCaseError::fail)?;
    let happened = ops.iter().try_for_each(|op| trial.happens(op));
    let ended = happened.and_then(|()| trial.comes_to_rest());
    ended.map_err(|wrong| TestCaseError::fail(format!("{wrong}\n\n{}", trial.history())))
}

/// The keys per publication, and the operations.
type History = (usize, Vec<Op>);

fn history() -> impl Strategy<Value = History> {
    (1..3_usize, vec(op(), 1..80))
}

fn op() -> impl Strategy<Value = Op> {
    let place = || (0..NODES, 0..KEYS);
    let node = || 0..NODES;
    prop_oneof![
        8 => place().prop_map(|(node, key)| Op::Write { node, key }),
        2 => place().prop_map(|(node, key)| Op::Republish { node, key }),
        2 => place().prop_map(|(node, key)| Op::Delete { node, key }),
        6 => node().prop_map(|node| Op::Tell { node }),
        4 => node().prop_map(|node| Op::Hear { node }),
        20 => (node(), publisher_step()).prop_map(|(node, step)| Op::Publisher { node, step }),
        16 => (node(), consumer_step()).prop_map(|(node, step)| Op::Consumer { node, step }),
        3 => Just(Op::ToDeadline),
    ]
}

fn publisher_step() -> impl Strategy<Value = PublisherStep> {
    prop_oneof![
        6 => Just(PublisherStep::Finds),
        6 => Just(PublisherStep::Reads),
        6 => Just(PublisherStep::Commits),
        1 => Just(PublisherStep::CommitsUnheard),
        4 => Just(PublisherStep::Publishes),
        3 => Just(PublisherStep::Fails),
        1 => Just(PublisherStep::Crashes),
        1 => any::<bool>().prop_map(PublisherStep::Watched),
    ]
}

fn consumer_step() -> impl Strategy<Value = ConsumerStep> {
    prop_oneof![
        4 => Just(ConsumerStep::ReadsHead),
        4 => Just(ConsumerStep::ReadsUpdates),
        3 => Just(ConsumerStep::Fetches),
        6 => Just(ConsumerStep::Consumed),
        1 => Just(ConsumerStep::Fails),
        1 => Just(ConsumerStep::Crashes),
    ]
}
