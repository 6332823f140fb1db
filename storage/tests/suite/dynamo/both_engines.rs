//! The two engines side by side: whatever is done to both, both answer the same.
//!
//! What is compared is what the contract leaves no choice in: of a fetch the messages, not the
//! pages.

use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use state_machine::{
    BridgeName, BridgeRecipient, Chid, LastConnect, Message, MessageKey, Month, NodeId, Span, Time,
    Topic, Uaid,
};
use storage::{BridgedRegistration, MonthStep, PageLimit, Registration, Store};
use storage_dynamodb::Dynamo;
use storage_sqlite::{Embedded, EmbeddedOptions};
use tokio::runtime::Runtime;

use crate::dynamo::things::*;
use crate::names::all_messages;
use crate::store_calls::StoreCalls;

/// One call of a store.
#[derive(Debug, Clone)]
enum Call {
    Record(Uaid),
    Register(Registration),
    RegisterBridged(BridgedRegistration),
    UpdateMonth(MonthStep),
    FinishMove(MonthStep),
    ClearNode(Uaid, NodeId, Time),
    DropUser(Uaid),
    DropBridged(Uaid, BridgeRecipient),
    Channels(Uaid, Month),
    AddChannels(Uaid, Month, BTreeSet<Chid>),
    CreateChannels(Uaid, Month, BTreeSet<Chid>),
    RemoveChannel(Uaid, Vec<Month>, Chid),
    Store(Uaid, Month, Message),
    Fetch(Uaid, Month, PageLimit),
    Delete(Uaid, Vec<Month>, Vec<MessageKey>),
    Carry(Uaid, Month, Month),
    EnsureMonth(Month),
    DropMonth(Month),
    MonthRange,
}

#[test]
fn both_engines_answer_every_call_alike() {
    let runtime = Runtime::new().unwrap();
    let mut runner =
        TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let history = vec(call(), 1..80);
    let compared = runner.run(&history, |calls| {
        let (_home, embedded, dynamo) = engines();
        for (number, call) in calls.into_iter().enumerate() {
            let answers = (
                runtime.block_on(answer(&embedded, call.clone())),
                runtime.block_on(answer(&dynamo, call.clone())),
            );
            prop_assert_eq!(&answers.0, &answers.1, "call {} {:?}", number, call);
        }
        Ok(())
    });
    compared.unwrap();
}

fn engines() -> (tempfile::TempDir, Embedded, Dynamo) {
    let home = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(home.path(), &EmbeddedOptions::new(4096)).unwrap();
    (home, embedded, Tables::new().open())
}

async fn answer(store: &dyn Store, call: Call) -> String {
    match call {
        Call::Record(uaid) => text(store.record(uaid).await),
        Call::Register(registration) => text(store.register_user(registration).await),
        Call::RegisterBridged(bridged) => text(store.register_bridged(bridged).await),
        Call::UpdateMonth(step) => text(store.update_message_month(step).await),
        Call::FinishMove(step) => text(store.finish_month_move(step).await),
        Call::ClearNode(uaid, node, at) => text(store.clear_node(uaid, node, at).await),
        Call::DropUser(uaid) => text(store.drop_user(uaid).await),
        Call::DropBridged(uaid, recipient) => text(store.drop_bridged(uaid, recipient).await),
        Call::Channels(uaid, month) => text(store.channels(uaid, month).await),
        Call::AddChannels(uaid, month, chids) => text(store.add_channels(uaid, month, chids).await),
        Call::CreateChannels(uaid, month, chids) => {
            text(store.create_channels(uaid, month, chids).await)
        }
        Call::RemoveChannel(uaid, months, chid) => {
            text(store.remove_channel(uaid, months, chid).await)
        }
        Call::Store(uaid, month, message) => text(store.store_message(uaid, month, message).await),
        Call::Fetch(uaid, month, limit) => text(waiting(store, uaid, month, limit).await),
        Call::Delete(uaid, months, refs) => text(store.delete_messages(uaid, months, refs).await),
        Call::Carry(uaid, from, to) => {
            // The contract leaves the answer open where there is neither a message nor a table.
            store.ensure_month(to).await.unwrap();
            text(store.move_messages(uaid, from, to).await)
        }
        Call::EnsureMonth(month) => text(store.ensure_month(month).await),
        Call::DropMonth(month) => text(store.drop_month(month).await),
        Call::MonthRange => text(store.months().await),
    }
}

fn text(answer: impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

/// All messages, by id.
async fn waiting(store: &dyn Store, uaid: Uaid, month: Month, limit: PageLimit) -> Vec<Message> {
    let mut messages = all_messages(store, uaid, month, limit, NOW).await;
    messages.sort_by_key(|message| message.id);
    messages
}

/// Few enough names that calls meet each other's traces.
fn call() -> impl Strategy<Value = Call> {
    let uaid = || (0..2_u8).prop_map(|number| Uaid([number; 16]));
    let at = || (1..6_u64).prop_map(Time);
    let months = || vec(month(), 0..3);
    let chids = || btree_set(chid(), 0..3);
    prop_oneof![
        2 => uaid().prop_map(Call::Record),
        4 => (uaid(), node(), at(), proptest::option::of(month())).prop_map(|(uaid, node, connected_at, create_in)| {
            Call::Register(Registration { uaid, node, connected_at, create_in, ..registration(1) })
        }),
        3 => (uaid(), recipient(), at(), proptest::option::of(month())).prop_map(|(uaid, recipient, connected_at, create_in)| {
            let last_connect = LastConnect(9);
            Call::RegisterBridged(BridgedRegistration { uaid, recipient, connected_at, last_connect, create_in })
        }),
        1 => (uaid(), recipient()).prop_map(|(uaid, recipient)| Call::DropBridged(uaid, recipient)),
        2 => step().prop_map(Call::UpdateMonth),
        2 => step().prop_map(Call::FinishMove),
        1 => (uaid(), node(), at()).prop_map(|(uaid, node, at)| Call::ClearNode(uaid, node, at)),
        1 => uaid().prop_map(Call::DropUser),
        2 => (uaid(), month()).prop_map(|(uaid, month)| Call::Channels(uaid, month)),
        2 => (uaid(), month(), chids()).prop_map(|(uaid, month, chids)| Call::CreateChannels(uaid, month, chids)),
        5 => (uaid(), month(), chids()).prop_map(|(uaid, month, chids)| Call::AddChannels(uaid, month, chids)),
        2 => (uaid(), months(), chid()).prop_map(|(uaid, months, chid)| Call::RemoveChannel(uaid, months, chid)),
        12 => (uaid(), month(), message_of()).prop_map(|(uaid, month, message)| Call::Store(uaid, month, message)),
        6 => (uaid(), month(), 1..4_usize, 0..20_usize).prop_map(|(uaid, month, rows, bytes)| {
            Call::Fetch(uaid, month, PageLimit { rows, bytes })
        }),
        4 => (uaid(), months(), vec(reference(), 0..4)).prop_map(|(uaid, months, refs)| Call::Delete(uaid, months, refs)),
        2 => (uaid(), month(), month()).prop_map(|(uaid, from, to)| Call::Carry(uaid, from, to)),
        6 => month().prop_map(Call::EnsureMonth),
        1 => month().prop_map(Call::DropMonth),
        1 => Just(Call::MonthRange),
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
    (uaid, proptest::option::of(node()), 1..6_u64, month(), month()).prop_map(
        |(uaid, node, at, from, to)| {
            let Registration { last_connect, .. } = registration(1);
            MonthStep { uaid, node, connected_at: Time(at), from, to, last_connect }
        },
    )
}

/// The TTL of messages that do not expire.
const LASTING: Span = Span::from_secs(60);

/// Ids are unique to a message: they depend on channel, topic and number.
fn message_of() -> impl Strategy<Value = Message> {
    (0..3_u8, 0..3_u32, 0..6_u32).prop_map(|(channel, topic, number)| {
        let ttl = match number {
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
