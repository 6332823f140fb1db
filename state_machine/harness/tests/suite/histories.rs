//! Random histories of a small world around the real machines. Each must end with every promise
//! kept.

use crate::cases::config;
use crate::world::{CHANNELS, EndpointClock, How, Lifetime, NODES, Op, Parting, World};
use proptest::collection::vec;
use proptest::prelude::*;
use state_machine::Urgency;

fn parting() -> impl Strategy<Value = Parting> {
    prop_oneof![Just(Parting::HangUp), Just(Parting::Vanish), Just(Parting::Linger)]
}

fn urgency() -> impl Strategy<Value = Urgency> {
    prop_oneof![
        4 => Just(Urgency::Normal),
        1 => Just(Urgency::VeryLow),
        1 => Just(Urgency::Low),
        1 => Just(Urgency::High),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        6 => Just(How::Well),
        2 => Just(How::Early),
        1 => Just(How::AckReplyLost),
        1 => Just(How::NotDone),
        1 => Just(How::NoSpace),
    ]
}

fn push() -> impl Strategy<Value = Op> {
    let topic = prop_oneof![2 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    let lifetime = prop_oneof![
        7 => Just(Lifetime::Long),
        2 => Just(Lifetime::Short),
        1 => Just(Lifetime::Zero),
    ];
    let clock = prop_oneof![
        Just(EndpointClock::Behind),
        Just(EndpointClock::Right),
        Just(EndpointClock::Ahead),
    ];
    let shape = (0..CHANNELS, topic, lifetime, urgency(), clock);
    shape.prop_map(|(channel, topic, lifetime, urgency, clock)| {
        // A message that expires would take the message with it that it has replaced.
        let is_kept = topic.is_some() && lifetime == Lifetime::Short;
        let lifetime = if is_kept { Lifetime::Long } else { lifetime };
        Op::Push { channel, topic, lifetime, urgency, clock }
    })
}

fn connect() -> impl Strategy<Value = Op> {
    (0..NODES, parting()).prop_map(|(node, parting)| Op::Connect { node, parting })
}

fn go() -> impl Strategy<Value = Op> {
    (0..64_usize, how()).prop_map(|(which, how)| Op::Go { which, how })
}

fn ack() -> impl Strategy<Value = Op> {
    prop_oneof![2 => (0..8_usize).prop_map(|nth| Op::AckOne { nth }), 1 => Just(Op::AckAll)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => connect(),
        1 => parting().prop_map(|parting| Op::Leave { parting }),
        6 => (0..CHANNELS).prop_map(|channel| Op::Register { channel }),
        1 => Just(Op::Unregister),
        1 => urgency().prop_map(|min| Op::Urgency { min }),
        16 => push(),
        12 => ack(),
        40 => go(),
        8 => Just(Op::GoAll),
        3 => (1..3000_u64).prop_map(|ms| Op::Wait { ms }),
        6 => Just(Op::ToDeadline),
        1 => days(),
        1 => Just(Op::NextMonth),
        1 => (0..NODES).prop_map(|node| Op::ShutDown { node }),
    ]
}

/// Sessions end meanwhile, for their age or because their peer is silent.
fn days() -> impl Strategy<Value = Op> {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    (1..20_u64).prop_map(|days| Op::Wait { ms: days * DAY_MS })
}

/// An operation while an agent moves to another month.
fn op_of_a_move() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => connect(),
        1 => (0..CHANNELS).prop_map(|channel| Op::Register { channel }),
        8 => push(),
        5 => ack(),
        30 => go(),
        1 => Just(Op::ToDeadline),
        1 => days(),
    ]
}

/// An operation while an agent moves between nodes that stop and restart.
fn op_of_a_journey() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => connect(),
        4 => push(),
        4 => ack(),
        24 => go(),
        1 => Just(Op::GoAll),
        2 => (1..3000_u64).prop_map(|ms| Op::Wait { ms }),
        2 => Just(Op::ToDeadline),
        2 => (0..NODES).prop_map(|node| Op::ShutDown { node }),
    ]
}

/// An agent with two channels, connected and at rest.
fn subscribed() -> Vec<Op> {
    vec![
        Op::Connect { node: 0, parting: Parting::HangUp },
        Op::Register { channel: 0 },
        Op::GoAll,
        Op::Register { channel: 1 },
        Op::GoAll,
    ]
}

/// Some messages are stored for an agent that is away, and it reconnects in the next month.
fn the_month_turns() -> impl Strategy<Value = Vec<Op>> {
    let stored = (vec(push(), 0..6), connect()).prop_map(|(pushes, back)| {
        let away = [Op::Leave { parting: Parting::HangUp }];
        let turned = [Op::GoAll, Op::NextMonth, back];
        away.into_iter().chain(pushes).chain(turned).collect()
    });
    joined([Just(subscribed()).boxed(), stored.boxed(), vec(op_of_a_move(), 1..60).boxed()])
}

fn joined(parts: [BoxedStrategy<Vec<Op>>; 3]) -> impl Strategy<Value = Vec<Op>> {
    parts.prop_map(|parts| parts.concat())
}

fn goes_well(ops: &[Op]) -> Result<(), TestCaseError> {
    goes_well_in(World::new(), ops)
}

fn goes_well_in(mut world: World, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut run = || {
        ops.iter().try_for_each(|op| world.happens(op))?;
        world.comes_to_rest()
    };
    run().map_err(|wrong| TestCaseError::fail(format!("{wrong}\n\n{}\n\n{wrong}", world.log())))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_subscribed_agent_gets_what_it_was_promised(ops in vec(op(), 1..80)) {
        goes_well(&[subscribed(), ops].concat())?;
    }

    #[test]
    fn a_new_agent_gets_what_it_was_promised(ops in vec(op(), 1..60)) {
        goes_well(&ops)?;
    }

    #[test]
    fn an_agent_that_moves_between_nodes_gets_what_it_was_promised(
        ops in vec(op_of_a_journey(), 1..80),
    ) {
        goes_well(&[subscribed(), ops].concat())?;
    }

    #[test]
    fn an_agent_of_simplepush_gets_the_highest_version_of_each_channel(ops in vec(op(), 1..80)) {
        goes_well_in(World::of_simplepush(), &[subscribed(), ops].concat())?;
    }

    #[test]
    fn an_agent_of_simplepush_that_moves_to_another_month_loses_no_version(
        ops in the_month_turns(),
    ) {
        goes_well_in(World::of_simplepush(), &ops)?;
    }

    #[test]
    fn an_agent_that_moves_to_another_month_gets_what_it_was_promised(ops in the_month_turns()) {
        goes_well(&ops)?;
    }
}
