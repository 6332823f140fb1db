//! Both engines beside a reference: whatever is done to all, all answer the same.
//!
//! The reference is the store of the harness, which shares no code with the engines. What is compared is what the contract
//! leaves no choice in: of a fetch the messages, not the pages.

use std::collections::BTreeSet;

use harness::model_store;
use proptest::collection::{btree_set, vec};
use proptest::option::of as option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use state_machine::{
    BridgeName, BridgeRecipient, Chid, LastConnect, Message, MessageKey, Month, NodeBinding,
    NodeId, Span, Time, Topic, Uaid,
};
use storage::{
    BridgedRegistration, MonthStep, PageLimit, Registration, SettledMessages, Store, StoreAnswer,
    StoreError, StoreOp,
};
use storage_dynamodb::Dynamo;
use storage_sqlite::{Embedded, EmbeddedOptions};
use tokio::runtime::Runtime;

use crate::dynamo::things::*;
use crate::names::all_messages;

/// One call of a store.
#[derive(Debug, Clone)]
enum Call {
    Execute(StoreOp),
    Record(Uaid),
    RegisterBridged(BridgedRegistration),
    Drop(Uaid, Option<BridgeRecipient>),
    Store(Uaid, Month, Message),
    EnsureMonth(Month),
    DropMonth(Month),
    Months,
}

#[test]
fn both_engines_answer_every_call_as_the_reference() {
    let runtime = Runtime::new().unwrap();
    let mut runner =
        TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let history = vec(call(), 1..80);
    let compared = runner.run(&history, |calls| {
        let (_home, embedded, dynamo) = engines();
        let mut reference = Reference::default();
        for (number, call) in calls.into_iter().enumerate() {
            let expected = reference.answer(call.clone());
            let engines: [&dyn Store; 2] = [&embedded, &dynamo];
            for (engine, name) in engines.into_iter().zip(["embedded", "DynamoDB"]) {
                let answer = runtime.block_on(answer(engine, call.clone()));
                prop_assert_eq!(answer, &*expected, "{}: call {} {:?}", name, number, call);
            }
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
        Call::Execute(StoreOp::Fetch { uaid, month, limit, .. }) => {
            text(waiting(store, uaid, month, limit).await)
        }
        Call::Execute(op) => {
            if let StoreOp::MoveMessages { to, .. } = op {
                // The contract leaves the answer open where there is neither a message nor a table.
                store.ensure_month(to).await.unwrap();
            }
            text(store.execute(op).await)
        }
        Call::Record(uaid) => text(store.record(uaid).await),
        Call::RegisterBridged(bridged) => text(store.register_bridged(bridged).await),
        Call::Drop(uaid, None) => text(store.drop_user(uaid).await),
        Call::Drop(uaid, Some(recipient)) => text(store.drop_bridged(uaid, recipient).await),
        Call::Store(uaid, month, message) => text(store.store_message(uaid, month, message).await),
        Call::EnsureMonth(month) => text(store.ensure_month(month).await),
        Call::DropMonth(month) => text(store.drop_month(month).await),
        Call::Months => text(store.months().await),
    }
}

/// The store of the harness, and the months that have a table.
#[derive(Default)]
struct Reference {
    store: model_store::Store,
    months: BTreeSet<Month>,
}

impl Reference {
    fn answer(&mut self, call: Call) -> String {
        match call {
            Call::Execute(op) => self.execute(op),
            Call::Record(uaid) => done(self.store.records.get(&uaid).cloned()),
            Call::RegisterBridged(bridged) => done(self.store.register_bridged(bridged)),
            Call::Drop(uaid, recipient) => done(self.store.drop_user(uaid, recipient.as_ref())),
            Call::Store(_, month, _) if !self.months.contains(&month) => missing(month),
            Call::Store(uaid, month, message) => done(self.store.store(uaid, month, message)),
            Call::EnsureMonth(month) => {
                self.months.insert(month);
                done(())
            }
            Call::DropMonth(month) => {
                self.store.drop_month(month);
                done(self.months.remove(&month))
            }
            Call::Months => done(self.months.iter().collect::<Vec<_>>()),
        }
    }

    fn execute(&mut self, mut op: StoreOp) -> String {
        match &mut op {
            StoreOp::AddChannels { month, .. } | StoreOp::CreateChannels { month, .. }
                if !self.months.contains(month) =>
            {
                return missing(*month);
            }
            StoreOp::MoveMessages { to, .. } => drop(self.months.insert(*to)),
            StoreOp::Delete { uaid, months, .. } => {
                months.retain(|month| self.months.contains(month));
                let before = self.store.rows(*uaid).count();
                let uaid = *uaid;
                self.store.execute(&op);
                let deleted = before - self.store.rows(uaid).count();
                let settled = SettledMessages { deleted, ..SettledMessages::default() };
                return done(StoreAnswer::Deleted(settled));
            }
            StoreOp::Fetch { uaid, month, .. } => {
                let all = PageLimit { rows: usize::MAX, bytes: usize::MAX };
                let (uaid, month, after) = (*uaid, *month, None);
                let op = StoreOp::Fetch { uaid, month, after, limit: all, now: NOW };
                return text(self.store.execute(&op).page().unwrap().messages);
            }
            _ => {}
        }
        done(self.store.execute(&op))
    }
}

fn done(answer: impl std::fmt::Debug) -> String {
    text(Ok::<_, StoreError>(answer))
}

fn missing(month: Month) -> String {
    text(Err::<(), _>(StoreError::NoSuchMonth(month)))
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
