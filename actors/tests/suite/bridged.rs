//! User agents behind a bridge: their registrations, their pushes and their month.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::{Arc, Mutex};

use actors::{Bridge, BridgedAgents, BridgedLimits, Clock, DeliverPush};
use futures_util::future::{BoxFuture, join_all};
use state_machine::bridged_call::BridgedError;
use state_machine::delivery::Outcome;
use state_machine::{
    BridgeName, BridgeOutcome, BridgeRecipient, Chid, LastConnect, Message, Month, RouterRecord,
    Span, Time, Uaid,
};
use storage::{BridgedRegistration, Store, StoreOp};
use tokio::sync::watch;

use crate::clockwork;
use crate::node::{Bounds, CHANNEL, Node, log};

const OTHER: Chid = Chid([0xC2; 16]);
const UAID: Uaid = Uaid([9; 16]);
const CHANNELS_MAX: usize = 3;
/// In November 2026, the time of a node.
const NOW: Time = Time(1_793_700_000_000);

/// Answers each message with `outcome`, as soon as it is open.
struct TestBridge {
    sent: Mutex<Vec<String>>,
    outcome: Mutex<BridgeOutcome>,
    is_open: watch::Sender<bool>,
}

impl TestBridge {
    fn answering(outcome: BridgeOutcome) -> Arc<Self> {
        let is_open = watch::Sender::new(true);
        Arc::new(Self { sent: Mutex::default(), outcome: Mutex::new(outcome), is_open })
    }

    /// The tokens that messages were sent to.
    fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }

    async fn has_sent(&self, messages: usize) {
        clockwork::until("sent", async || self.sent(), |sent| sent.len() >= messages).await;
    }
}

impl Bridge for TestBridge {
    fn send(
        &self,
        recipient: &BridgeRecipient,
        message: &Message,
    ) -> BoxFuture<'static, BridgeOutcome> {
        assert_eq!(message.chid, CHANNEL);
        self.sent.lock().unwrap().push(recipient.token.to_string());
        let (outcome, mut is_open) = (*self.outcome.lock().unwrap(), self.is_open.subscribe());
        if *is_open.borrow() {
            return Box::pin(ready(outcome));
        }
        Box::pin(async move {
            is_open.wait_for(|is_open| *is_open).await.unwrap();
            outcome
        })
    }
}

async fn node_with(bridge: &Arc<TestBridge>, in_flight_max: usize) -> Node {
    let mut bounds = Bounds { bridge: Arc::clone(bridge) as _, ..Bounds::default() };
    bounds.endpoint.in_flight_max = in_flight_max;
    let node = Node::within(bounds).await;
    node.store.ensure_month(october()).await.unwrap();
    node
}

/// A node whose bridge accepts each message.
async fn accepting(in_flight_max: usize) -> (Arc<TestBridge>, Node) {
    let bridge = TestBridge::answering(BridgeOutcome::Accepted);
    let node = node_with(&bridge, in_flight_max).await;
    (bridge, node)
}

fn agents_of(node: &Node) -> &BridgedAgents {
    &node.endpoints.bridged_agents
}

/// The same agents on a node of its own clock.
fn agents(store: &Arc<dyn Store>, now: Time, frozen_month: Option<Month>) -> BridgedAgents {
    let limits = BridgedLimits { channels_max: CHANNELS_MAX, last_connect_shards: 1, frozen_month };
    BridgedAgents::new(Arc::clone(store), Clock::starting_at(now), limits, log())
}

fn october() -> Month {
    november().previous()
}

fn november() -> Month {
    Month::of(NOW)
}

fn recipient(token: &str) -> BridgeRecipient {
    let (bridge, app, token) = (BridgeName::Fcm, "app".into(), token.into());
    BridgeRecipient { bridge, app, token, aps: None }
}

/// An agent that was registered in October and has not been seen since.
async fn of_october(store: &Arc<dyn Store>) {
    let then = NOW - Span::from_secs(40 * 24 * 3600);
    let registration = BridgedRegistration {
        uaid: UAID,
        recipient: recipient("one"),
        connected_at: then,
        last_connect: LastConnect::of(then, UAID, 1),
        create_in: Some(october()),
    };
    store.register_bridged(registration).await.unwrap();
    let channels = BTreeSet::from([CHANNEL]);
    let op = StoreOp::AddChannels { uaid: UAID, month: october(), channels };
    store.execute(op).await.unwrap();
}

async fn record(store: &Arc<dyn Store>) -> RouterRecord {
    store.record(UAID).await.unwrap().unwrap()
}

async fn push(node: &Node, uaid: Uaid) -> Outcome {
    node.endpoint
        .send(DeliverPush { uaid, message: node.message(), is_repeated: false })
        .await
        .unwrap()
        .outcome
}

#[clockwork::test(run_in_real_time)]
async fn a_push_is_sent_to_the_bridge_of_the_agent_and_not_stored() {
    let (bridge, node) = accepting(10).await;
    let uaid = agents_of(&node).register(recipient("one"), CHANNEL).await.unwrap();
    assert_eq!(push(&node, uaid).await, Outcome::Delivered);
    agents_of(&node).update(uaid, recipient("two")).await.unwrap();
    assert_eq!(push(&node, uaid).await, Outcome::Delivered);
    assert_eq!(bridge.sent(), ["one", "two"]);
    assert_eq!(node.stored(uaid).await, []);
    assert_eq!(node.endpoints.in_flight(), 0);
    agents_of(&node).unsubscribe(uaid, CHANNEL).await.unwrap();
    assert_eq!(push(&node, uaid).await, Outcome::NoSuchChannel);
}

#[clockwork::test(run_in_real_time)]
async fn a_push_moves_an_agent_of_an_earlier_month() {
    let (_bridge, node) = accepting(10).await;
    of_october(&node.store).await;
    assert_eq!(push(&node, UAID).await, Outcome::Delivered);
    let record = record(&node.store).await;
    assert_eq!((record.curmonth, record.oldmonth), (november(), None));
    assert_eq!(record.last_connect, LastConnect::of(NOW, UAID, 10));
    let channels = node.store.channels(UAID, november()).await;
    assert_eq!(channels, Ok(Some(BTreeSet::from([CHANNEL]))));
}

#[clockwork::test(run_in_real_time)]
async fn a_push_is_sent_although_the_agent_cannot_move() {
    let (_bridge, node) = accepting(10).await;
    of_october(&node.store).await;
    node.store.drop_month(november()).await.unwrap();
    for _push in 0..2 {
        assert_eq!(push(&node, UAID).await, Outcome::Delivered);
        let record = record(&node.store).await;
        assert_eq!((record.curmonth, record.oldmonth), (november(), Some(october())));
    }
    let refused = agents_of(&node).subscribe(UAID, OTHER).await;
    assert_eq!(refused, Err(BridgedError::Unavailable));
    node.store.ensure_month(november()).await.unwrap();
    agents_of(&node).subscribe(UAID, OTHER).await.unwrap();
    let channels = agents_of(&node).channels(UAID).await;
    assert_eq!(channels, Ok(BTreeSet::from([CHANNEL, OTHER])));
}

#[clockwork::test(run_in_real_time)]
async fn a_recipient_that_is_gone_loses_its_record() {
    let bridge = TestBridge::answering(BridgeOutcome::RecipientGone);
    let node = node_with(&bridge, 10).await;
    let uaid = agents_of(&node).register(recipient("one"), CHANNEL).await.unwrap();
    let gone = Outcome::Bridge(BridgeOutcome::RecipientGone);
    assert_eq!(push(&node, uaid).await, gone);
    assert_eq!(node.store.record(uaid).await, Ok(None));
    assert_eq!(push(&node, uaid).await, Outcome::NoSuchUser);
    let unknown = agents_of(&node).update(uaid, recipient("two")).await;
    assert_eq!(unknown, Err(BridgedError::UnknownAgent));
}

#[clockwork::test(run_in_real_time)]
async fn a_slow_bridge_leaves_the_places_of_pushes_that_need_the_store_free() {
    let (bridge, node) = accepting(1).await;
    let uaid = agents_of(&node).register(recipient("one"), CHANNEL).await.unwrap();
    bridge.is_open.send_replace(false);
    let mut slow = Vec::new();
    for number in 1..=3 {
        let message = node.message();
        slow.push(node.endpoint.send(DeliverPush { uaid, message, is_repeated: false }));
        bridge.has_sent(number).await;
    }
    assert_eq!(push(&node, UAID).await, Outcome::NoSuchUser, "and not a refusal");
    assert_eq!(node.endpoints.in_flight(), 3);
    bridge.is_open.send_replace(true);
    for answer in slow {
        assert_eq!(answer.await.unwrap().outcome, Outcome::Delivered);
    }
    node.endpoints_rest().await;
}

#[clockwork::test(run_in_real_time)]
async fn the_pushes_to_one_agent_leave_places_at_its_bridge_to_another() {
    let (bridge, node) = accepting(10).await;
    let flooded = agents_of(&node).register(recipient("one"), CHANNEL).await.unwrap();
    let victim = agents_of(&node).register(recipient("two"), CHANNEL).await.unwrap();
    bridge.is_open.send_replace(false);
    let message = || node.message();
    let slow = [flooded, flooded, flooded, victim].map(|uaid| {
        node.endpoint.send(DeliverPush { uaid, message: message(), is_repeated: false })
    });
    bridge.has_sent(4).await;
    let busy = Outcome::Bridge(BridgeOutcome::Busy { retry_after: None });
    assert_eq!(push(&node, flooded).await, busy);
    assert_eq!((bridge.sent().len(), node.endpoints.bridge_refused()), (4, 1));
    bridge.is_open.send_replace(true);
    for answer in slow {
        assert_eq!(answer.await.unwrap().outcome, Outcome::Delivered);
    }
    assert_eq!(push(&node, flooded).await, Outcome::Delivered);
    node.endpoints_rest().await;
}

#[clockwork::test(run_in_real_time)]
async fn channels_are_registered_within_their_limit_and_unregistered_once() {
    let node = Node::start().await;
    let agents = agents(&node.store, NOW, None);
    let uaid = agents.register(recipient("one"), CHANNEL).await.unwrap();
    assert_eq!(agents.recipient(uaid).await, Ok(recipient("one")));
    let more = [OTHER, Chid([3; 16])];
    for chid in more {
        for _again in 0..2 {
            agents.subscribe(uaid, chid).await.unwrap();
        }
    }
    let refused = agents.subscribe(uaid, Chid([4; 16])).await;
    assert_eq!(refused, Err(BridgedError::TooManyChannels));
    agents.unsubscribe(uaid, OTHER).await.unwrap();
    let again = agents.unsubscribe(uaid, OTHER).await;
    assert_eq!(again, Err(BridgedError::NoSuchChannel));
    let left = BTreeSet::from([CHANNEL, more[1]]);
    assert_eq!(agents.channels(uaid).await, Ok(left));
    agents.unregister(uaid).await.unwrap();
    for unknown in [
        agents.unregister(uaid).await,
        agents.subscribe(uaid, OTHER).await,
        agents.channels(uaid).await.map(drop),
        agents.recipient(uaid).await.map(drop),
    ] {
        assert_eq!(unknown, Err(BridgedError::UnknownAgent));
    }
}

/// Each of them on a record of October: the call finds it in the month in which it leaves it.
#[clockwork::test(run_in_real_time)]
async fn every_operation_moves_the_agent_first() {
    for operation in 0..4 {
        let node = Node::start().await;
        node.store.ensure_month(october()).await.unwrap();
        of_october(&node.store).await;
        let agents = agents(&node.store, NOW, None);
        match operation {
            0 => assert_eq!(agents.channels(UAID).await, Ok(BTreeSet::from([CHANNEL]))),
            1 => agents.subscribe(UAID, OTHER).await.unwrap(),
            2 => agents.unsubscribe(UAID, CHANNEL).await.unwrap(),
            _ => agents.update(UAID, recipient("two")).await.unwrap(),
        }
        let record = record(&node.store).await;
        assert_eq!((record.curmonth, record.oldmonth), (november(), None));
        let channels = node.store.channels(UAID, november()).await.unwrap().unwrap();
        assert_eq!(channels.contains(&CHANNEL), operation != 2);
        assert_eq!(channels.contains(&OTHER), operation == 1);
    }
}

#[clockwork::test(run_in_real_time)]
async fn without_rotation_a_call_keeps_the_month_and_shows_that_the_agent_exists() {
    let node = Node::start().await;
    node.store.ensure_month(october()).await.unwrap();
    of_october(&node.store).await;
    let agents = agents(&node.store, NOW, Some(october()));
    let before = record(&node.store).await;
    for _again in 0..2 {
        agents.channels(UAID).await.unwrap();
        let seen = RouterRecord {
            connected_at: before.connected_at + Span(1),
            last_connect: LastConnect::of(NOW, UAID, 1),
            ..before.clone()
        };
        assert_eq!(record(&node.store).await, seen);
    }
}

/// The clock of the first node is behind that of the second one.
#[clockwork::test(run_in_real_time)]
async fn a_recipient_is_replaced_by_a_node_whose_clock_is_behind() {
    let node = Node::start().await;
    let behind = agents(&node.store, NOW - Span::from_secs(60), None);
    let uaid = agents(&node.store, NOW, None).register(recipient("one"), CHANNEL).await.unwrap();
    behind.update(uaid, recipient("two")).await.unwrap();
    assert_eq!(behind.recipient(uaid).await, Ok(recipient("two")));
}

#[clockwork::test(run_in_real_time)]
async fn recipients_that_are_replaced_at_once_are_written_one_after_the_other() {
    let node = Node::start().await;
    let agents = agents(&node.store, NOW, None);
    let uaid = agents.register(recipient("one"), CHANNEL).await.unwrap();
    let updates = ["two", "three"].map(|token| agents.update(uaid, recipient(token)));
    assert_eq!(join_all(updates).await, [Ok(()), Ok(())]);
}

#[clockwork::test(run_in_real_time)]
async fn a_store_that_is_closed_makes_every_operation_unavailable() {
    let node = Node::start().await;
    let agents = agents(&node.store, NOW, None);
    let uaid = agents.register(recipient("one"), CHANNEL).await.unwrap();
    node.store.close().await.unwrap();
    for refused in [
        agents.register(recipient("two"), CHANNEL).await.map(drop),
        agents.update(uaid, recipient("two")).await,
        agents.channels(uaid).await.map(drop),
        agents.subscribe(uaid, OTHER).await,
        agents.unsubscribe(uaid, CHANNEL).await,
        agents.unregister(uaid).await,
    ] {
        assert_eq!(refused, Err(BridgedError::Unavailable));
    }
}
