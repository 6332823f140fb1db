//! All engines beside a reference: whatever is done to all, all answer the same.
//!
//! What is compared is what the contract leaves no choice in: of a fetch the messages, not the pages.

use proptest::collection::{btree_set, vec};
use proptest::option::of as option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use state_machine::{
    BridgeName, BridgeRecipient, Chid, LastConnect, Message, MessageKey, Month, NodeBinding,
    NodeId, Span, Time, Topic, Uaid,
};
use storage::{BridgedRegistration, MonthStep, PageLimit, Registration, StoreAdmin, StoreOp};
use storage_dynamodb::Dynamo;
use storage_postgresql::Postgres;
use storage_sqlite::{Embedded, EmbeddedOptions};
use tokio::runtime::Runtime;

use crate::dynamo::things::*;
use crate::engines::fresh_schema;
use crate::reference::{Call, Reference, answer};

#[test]
fn every_engine_answers_every_call_as_the_reference() {
    let runtime = Runtime::new().unwrap();
    let mut runner =
        TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let history = vec(call(), 1..80);
    let compared = runner.run(&history, |calls| {
        let (_home, embedded, dynamo, postgres) = engines();
        let mut reference = Reference::default();
        for (number, call) in calls.into_iter().enumerate() {
            let expected = reference.answer(call.clone());
            let engines: [&dyn StoreAdmin; 3] = [&embedded, &dynamo, &postgres];
            for (engine, name) in engines.into_iter().zip(["embedded", "DynamoDB", "PostgreSQL"]) {
                let answer = runtime.block_on(answer(engine, call.clone()));
                prop_assert_eq!(answer, &*expected, "{}: call {} {:?}", name, number, call);
            }
        }
        Ok(())
    });
    compared.unwrap();
}

fn engines() -> (tempfile::TempDir, Embedded, Dynamo, Postgres) {
    let home = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(home.path(), &EmbeddedOptions::new(4096)).unwrap();
    (home, embedded, Tables::new().open(), storage_postgresql::open(&fresh_schema()).unwrap())
}

/// Few enough names that calls meet each other's traces.
fn call() -> impl Strategy<Value = Call> {
    let uaid = || (0..2_u8).prop_map(|number| Uaid([number; 16]));
    let at = || (1..6_u64).prop_map(Time);
    let months = || vec(month(), 0..3);
    let chids = || btree_set(chid(), 0..3);
    let operation = prop_oneof![
        4 => (uaid(), node(), at(), option(month())).prop_map(|(uaid, node, connected_at, create_in)| {
            StoreOp::Register(Registration { uaid, node, connected_at, create_in, ..registration(1) })
        }),
        2 => step().prop_map(StoreOp::UpdateMonth),
        2 => step().prop_map(StoreOp::FinishMove),
        1 => (uaid(), node(), at()).prop_map(|(uaid, node, connected_at)| {
            StoreOp::ClearNode { uaid, binding: NodeBinding { node, connected_at } }
        }),
        2 => (uaid(), month()).prop_map(|(uaid, month)| StoreOp::ReadChannels { uaid, month }),
        2 => (uaid(), month(), chids()).prop_map(|(uaid, month, channels)| {
            StoreOp::CreateChannels { uaid, month, channels }
        }),
        5 => (uaid(), month(), chids()).prop_map(|(uaid, month, channels)| {
            StoreOp::AddChannels { uaid, month, channels }
        }),
        2 => (uaid(), months(), chid()).prop_map(|(uaid, months, chid)| {
            StoreOp::RemoveChannel { uaid, months, chid }
        }),
        6 => (uaid(), month(), 1..4_usize, 0..20_usize).prop_map(|(uaid, month, rows, bytes)| {
            StoreOp::Fetch { uaid, month, after: None, limit: PageLimit { rows, bytes }, now: NOW }
        }),
        4 => (uaid(), months(), vec(reference(), 0..4)).prop_map(|(uaid, months, messages)| {
            StoreOp::Delete { uaid, months, messages, acks: Vec::new() }
        }),
        2 => (uaid(), month(), month()).prop_map(|(uaid, from, to)| StoreOp::MoveMessages { uaid, from, to }),
    ];
    prop_oneof![
        32 => operation.prop_map(Call::Execute),
        2 => uaid().prop_map(Call::Record),
        3 => (uaid(), recipient(), at(), option(month())).prop_map(|(uaid, recipient, connected_at, create_in)| {
            let last_connect = LastConnect(9);
            Call::RegisterBridged(BridgedRegistration { uaid, recipient, connected_at, last_connect, create_in })
        }),
        2 => (uaid(), option(recipient())).prop_map(|(uaid, recipient)| Call::Drop(uaid, recipient)),
        12 => (uaid(), month(), message_of()).prop_map(|(uaid, month, message)| Call::Store(uaid, month, message)),
        6 => month().prop_map(Call::EnsureMonth),
        1 => month().prop_map(Call::DropMonth),
        1 => Just(Call::Months),
    ]
}

fn month() -> impl Strategy<Value = Month> {
    prop_oneof![Just(november()), Just(december()), Just(december().next())]
}

fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![Just("a"), Just("b")].prop_map(NodeId::new)
}

fn recipient() -> impl Strategy<Value = BridgeRecipient> {
    (0..2_usize, 0..2_u8).prop_map(|(bridge, token)| BridgeRecipient {
        bridge: BridgeName::ALL[bridge],
        app: "app".into(),
        token: token.to_string().into(),
        aps: None,
    })
}

fn chid() -> impl Strategy<Value = Chid> {
    (0..3_u8).prop_map(|number| Chid([number; 16]))
}

fn step() -> impl Strategy<Value = MonthStep> {
    let uaid = (0..2_u8).prop_map(|number| Uaid([number; 16]));
    (uaid, option(node()), 1..6_u64, month(), month()).prop_map(|(uaid, node, at, from, to)| {
        let Registration { last_connect, .. } = registration(1);
        MonthStep { uaid, node, connected_at: Time(at), from, to, last_connect }
    })
}

/// The TTL of messages that do not expire.
const LASTING: Span = Span::from_secs(60);

/// Ids are unique to a message: they depend on channel, topic and number. Those with a topic do not expire: the contract
/// leaves open when an expired row goes, and until then it outranks older messages of its topic.
fn message_of() -> impl Strategy<Value = Message> {
    (0..3_u8, 0..3_u32, 0..6_u32).prop_map(|(channel, topic, number)| {
        let ttl = match number {
            _ if topic > 0 => LASTING,
            4 => Span(1),
            5 => Span::ZERO,
            _ => LASTING,
        };
        let id = id(number * 100 + topic * 10 + u32::from(channel), topic > 0);
        let named = || Topic::parse(&format!("topic-{topic}")).unwrap();
        let topic = (topic > 0).then(named);
        Message { id, topic, ttl, chid: Chid([channel; 16]), ..message(number) }
    })
}

/// Of a message that may be there, with its topic or without, and sometimes of a wrong channel. The contract leaves open
/// whether an expired one is still there.
fn reference() -> impl Strategy<Value = MessageKey> {
    let lasting = message_of().prop_filter("it lasts", |message| message.ttl == LASTING);
    (lasting, any::<bool>(), 0..8_u8).prop_map(|(message, knows_topic, luck)| {
        let mut reference = message.key();
        reference.topic = reference.topic.filter(|_| knows_topic);
        if luck == 0 {
            reference.chid = Chid([9; 16]);
        }
        reference
    })
}
