//! What the embedded store costs: CPU µs of the whole process for one operation.
//!
//! `cargo run --release -p storage --example store_bench [TASKS] [PAYLOAD_BYTES] [DIR]`
//!
//! TASKS callers (16) each wait for their answer before they ask again, so the batches that are
//! committed together are about that large. 500 user agents, 100,000 messages of PAYLOAD_BYTES
//! (256).

mod measure;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use state_machine::{
    Chid, Encoding, LastConnect, Message, MessageId, MessageKey, Month, NodeId, Payload,
    RouterType, Span, Time, Topic, Uaid,
};
use storage::{Page, PageLimit, Registration, Store, StoreAnswer, StoreOp, Stored};
use storage_sqlite::{Embedded, EmbeddedOptions};

const AGENTS: u32 = 500;
const MESSAGES: u32 = 100_000;
const PAGE: PageLimit = PageLimit { rows: 20, bytes: 64 * 1024 };
const NOW: Time = Time(1_793_700_000_000);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let tasks = args.next().map_or(16, |text| text.parse().expect("TASKS is a number"));
    let bytes = args.next().map_or(256, |text| text.parse().expect("PAYLOAD_BYTES is a number"));
    let temporary = tempfile::tempdir().expect("a temporary directory can be made");
    let dir = args.next().map_or(temporary.path().to_owned(), Into::into);
    println!("{tasks} tasks, {bytes} bytes of payload, {AGENTS} user agents, in {}", dir.display());
    run(&dir, tasks, bytes).await;
}

async fn run(dir: &Path, tasks: u32, bytes: usize) {
    let store = Embedded::open(dir, &EmbeddedOptions::new(4096)).expect("the directory is usable");
    let bench = Bench { store: Arc::new(store), tasks, payload: Bytes::from(vec![0xaa; bytes]) };
    bench.store.ensure_month(month()).await.expect("made");
    bench.measure("connect: register_user", AGENTS, connect).await;
    bench.measure("register: add_channels", AGENTS, add_channel).await;
    bench.measure("look-up: record", MESSAGES, look_up).await;
    bench.measure("look-up: channels", MESSAGES, channels).await;
    bench.measure("durable put: store_message", MESSAGES, put).await;
    bench.measure("look-up while full: record", MESSAGES, look_up).await;
    bench.measure("drain: fetch a page, delete singly", MESSAGES, drain).await;
    bench.measure("durable put of a topic", MESSAGES, put_topic).await;
    bench.measure("look-up and put in turn", MESSAGES, look_up_and_put).await;
    bench.measure("drain: fetch a page, delete it whole", MESSAGES, drain_pages).await;
    bench.store.close().await.expect("closed");
}

#[derive(Clone)]
struct Bench {
    store: Arc<dyn Store>,
    tasks: u32,
    payload: Bytes,
}

impl Bench {
    async fn measure<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        count: u32,
        operation: fn(Self, u32) -> F,
    ) {
        measure::measure(self, self.tasks, name, count, operation).await;
    }

    fn message(&self, number: u32, topic: Option<&str>) -> Message {
        let id = (u128::from(number) << 80) | u128::from(number);
        let id = MessageId::from_uuid_v7(id, topic.is_some());
        Message {
            topic: topic.map(|text| Topic::parse(text).expect("a topic")),
            payload: Some(Payload { data: self.payload.clone(), encoding: Encoding::Aes128Gcm }),
            ..Message::new(id, Chid([7; 16]), NOW, Span::from_secs(3600))
        }
    }
}

async fn connect(bench: Bench, number: u32) {
    let uaid = agent(number);
    let registration = Registration {
        uaid,
        router_type: RouterType::WebPush,
        node: NodeId::new("http://127.0.0.1:8081"),
        connected_at: NOW,
        last_connect: LastConnect::of(NOW, uaid, LastConnect::SHARDS),
        create_in: Some(month()),
    };
    bench.store.execute(StoreOp::Register(registration)).await.expect("registered");
}

async fn add_channel(bench: Bench, number: u32) {
    let channels = BTreeSet::from([Chid([7; 16])]);
    let op = StoreOp::AddChannels { uaid: agent(number), month: month(), channels };
    bench.store.execute(op).await.expect("added");
}

async fn look_up(bench: Bench, number: u32) {
    assert!(bench.store.record(agent(number)).await.expect("read").is_some());
}

async fn channels(bench: Bench, number: u32) {
    assert!(bench.store.channels(agent(number), month()).await.expect("read").is_some());
}

async fn put(bench: Bench, number: u32) {
    let stored = bench.store.store_message(agent(number), month(), bench.message(number, None));
    assert_eq!(stored.await, Ok(Stored::Done));
}

async fn put_topic(bench: Bench, number: u32) {
    let message = bench.message(number, Some("a-topic"));
    let stored = bench.store.store_message(agent(number), month(), message);
    assert_eq!(stored.await, Ok(Stored::Done));
}

async fn look_up_and_put(bench: Bench, number: u32) {
    look_up(bench.clone(), number).await;
    put(bench.clone(), number).await;
    look_up(bench, number).await;
}

/// One message in twenty fetches its page, and every message is deleted alone, as by an ack.
async fn drain(bench: Bench, number: u32) {
    let uaid = agent(number / PAGE.rows as u32);
    if number.is_multiple_of(PAGE.rows as u32) {
        assert!(!fetch(&bench, uaid).await.messages.is_empty());
    }
    let reference = vec![bench.message(agent_message(number), None).key()];
    assert_eq!(delete(&bench, uaid, reference).await, 1);
}

async fn drain_pages(bench: Bench, number: u32) {
    if !number.is_multiple_of(PAGE.rows as u32) {
        return;
    }
    let uaid = agent(number / PAGE.rows as u32);
    let page = fetch(&bench, uaid).await;
    delete(&bench, uaid, page.messages.iter().map(Message::key).collect()).await;
}

async fn fetch(bench: &Bench, uaid: Uaid) -> Page {
    let op = StoreOp::Fetch { uaid, month: month(), after: None, limit: PAGE, now: NOW };
    bench.store.execute(op).await.expect("read").page().expect("a page")
}

async fn delete(bench: &Bench, uaid: Uaid, messages: Vec<MessageKey>) -> usize {
    let op = StoreOp::Delete { uaid, months: vec![month()], messages, acks: Vec::new() };
    match bench.store.execute(op).await.expect("deleted") {
        StoreAnswer::Deleted(settled) => settled.deleted,
        answer => panic!("{answer:?}"),
    }
}

/// The message that is taken as number `number` when each agent's are taken a page at a time.
fn agent_message(number: u32) -> u32 {
    let page = PAGE.rows as u32;
    let (turn, in_page) = (number / page, number % page);
    let (agent, round) = (turn % AGENTS, turn / AGENTS);
    (round * page + in_page) * AGENTS + agent
}

fn agent(number: u32) -> Uaid {
    let factor = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    Uaid((u128::from(number % AGENTS) + 1).wrapping_mul(factor).to_be_bytes())
}

fn month() -> Month {
    Month::of(NOW)
}
