//! A whole node in one thread: registry, clients, an endpoint actor, and a store on disk.

mod gate;
mod neighbours;
mod order_gate;
mod user_agent;

pub(crate) use neighbours::{Neighbours, Way};
pub(crate) use order_gate::{Act, Fate};
pub(crate) use user_agent::UserAgent;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use actix_web::rt::spawn;
use actix_web::rt::task::JoinHandle;
use actors::broadcasts::BroadcastView;
use actors::registry::{CountConnections, Lookup};
use actors::{
    BoundedAddr, Bridge, BridgedAgents, BridgedLimits, ClientShared, Clock, DeliverPush, Directory,
    Endpoint, EndpointLimits, EndpointShared, FrameLimits, NoBridges, NoPeers, NodeDirectory,
    RegistryActor,
};
use bytes::Bytes;
use slog::{Discard, Logger, o};
use state_machine::connection::{Config, Limits};
use state_machine::delivery::{NodeAnswer, Outcome};
use state_machine::wire::{EndpointUrls, VapidKey};
use state_machine::{
    Chid, ConnectionId, Encoding, Message, MessageId, Month, NodeId, Payload, Span, Time, Uaid,
};
use storage::{Cursor, PageLimit, Store, StoreOp, WaitingBound, WaitingLimits};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;
use tokio::sync::oneshot;
use unkind_store::UnkindStore;

use crate::clockwork;
use crate::traces;
use gate::{Gate, GatedStore};
use order_gate::{OrderGate, OrderedStore};

const NOW: Time = Time(1_793_700_000_000);

/// The channel every agent registers.
pub(crate) const CHANNEL: Chid = Chid([0xC1; 16]);

/// How long an ack is waited for.
pub(crate) const ACK_WAIT: Span = Span(1000);

pub(crate) struct Node {
    pub(crate) clients: Arc<ClientShared>,
    pub(crate) endpoints: Arc<EndpointShared>,
    pub(crate) registry: BoundedAddr<RegistryActor>,
    pub(crate) store: Arc<dyn Store>,
    /// What the clients have under them: that store, behind a gate.
    pub(crate) orders: Arc<OrderedStore>,
    /// What the endpoint has under it: the same, behind a gate of its own.
    pub(crate) gate: Arc<GatedStore>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) endpoint: BoundedAddr<Endpoint>,
    clock: Clock,
    ground: Ground,
}

/// What a node stands on. Nodes on one ground have the store and their neighbours in common.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) store: Arc<dyn Store>,
    /// The ways between the nodes.
    pub(crate) neighbours: Neighbours,
    messages: Rc<Cell<u32>>,
    _folder: Option<Rc<TempDir>>,
}

/// Bytes of a message at most.
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// What can be different about a node.
#[derive(Clone)]
pub(crate) struct Bounds {
    pub(crate) endpoint: EndpointLimits,
    pub(crate) registry_mailbox_max: usize,
    pub(crate) client_mailbox_max: usize,
    /// 0 is no limit.
    pub(crate) frames_per_second_max: usize,
    pub(crate) limits: Limits,
    /// Its name in router records.
    pub(crate) name: &'static str,
    /// Where rotation is off.
    pub(crate) frozen_month: Option<Month>,
    /// What its clock shows at first.
    pub(crate) now: Time,
    /// None on a node without broadcasts.
    pub(crate) broadcasts: Option<BroadcastView>,
    /// The peers that its registry has.
    pub(crate) peers: Arc<dyn NodeDirectory>,
    /// What its endpoint sends to agents behind bridges with.
    pub(crate) bridge: Arc<dyn Bridge>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            endpoint: EndpointLimits {
                answer_wait: Duration::from_millis(ACK_WAIT.0 * 2),
                pushes_awaiting_ack_max: 100,
                agent_pushes_awaiting_ack_max: 100,
                agent_pushes_awaiting_bridge_max: 3,
                in_flight_max: 100,
                mailbox_max: 100,
            },
            registry_mailbox_max: 100,
            client_mailbox_max: 100,
            frames_per_second_max: 0,
            limits: Limits { ack_wait: ACK_WAIT, ..harness::transcript::default_limits() },
            name: "here",
            frozen_month: None,
            now: NOW,
            broadcasts: None,
            peers: Arc::new(NoPeers(NodeAnswer::NotHere)),
            bridge: Arc::new(NoBridges),
        }
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::within(Bounds::default()).await
    }

    pub(crate) async fn within(bounds: Bounds) -> Self {
        Self::on(&Ground::on_disk().await, &bounds)
    }

    /// A node, and an agent that is connected to it.
    pub(crate) async fn with_agent(bounds: Bounds) -> (Self, UserAgent) {
        let node = Self::within(bounds).await;
        let agent = UserAgent::new(&node, 1).await;
        (node, agent)
    }

    /// A node on a store that is there.
    pub(crate) fn on(ground: &Ground, bounds: &Bounds) -> Self {
        let Ground { store, neighbours, .. } = ground.clone();
        let clock = Clock::starting_at(bounds.now);
        let peers = Arc::clone(&bounds.peers);
        let registry = RegistryActor::new(bounds.registry_mailbox_max, peers, log());
        let directory = Arc::new(Directory::start(registry, Some(NodeId::new(bounds.name))));
        let orders = Arc::new(OrderGate::open(&store));
        let nodes: Arc<dyn NodeDirectory> = Arc::new(neighbours.clone());
        let clients = clients(bounds, &orders, &directory, &nodes, &clock);
        let gate = Arc::new(Gate::open(&store));
        neighbours.join(clients.config.node.clone(), &directory);
        let behind = Arc::clone(&gate) as _;
        let bridged_limits = BridgedLimits {
            channels_max: bounds.limits.channels_max,
            last_connect_shards: bounds.limits.last_connect_shards,
            frozen_month: bounds.frozen_month,
        };
        let store_of_agents = Arc::clone(&gate) as _;
        let agents = BridgedAgents::new(store_of_agents, clock.clone(), bridged_limits, log());
        let bridge = (Arc::clone(&bounds.bridge), Arc::new(agents));
        let endpoints =
            EndpointShared::new(behind, nodes, bridge, clock.clone(), bounds.endpoint, log());
        let endpoints = Arc::new(endpoints);
        Self {
            endpoint: BoundedAddr::start(Endpoint::new(Arc::clone(&endpoints))),
            clients,
            endpoints,
            registry: directory.registry().clone(),
            store,
            orders,
            gate,
            directory,
            clock,
            ground: ground.clone(),
        }
    }

    /// A message for [`CHANNEL`], a minute to live, later than all before it.
    pub(crate) fn message(&self) -> Message {
        let number = self.ground.messages.replace(self.ground.messages.get() + 1);
        Message { accepted_at: self.clock.now(), ..message_of(number) }
    }

    /// An application server sends a message. Returns the outcome.
    pub(crate) fn send(&self, uaid: Uaid, message: Message) -> JoinHandle<Outcome> {
        let sent =
            self.endpoint.send(DeliverPush { uaid, message: message.clone(), is_repeated: false });
        spawn(async move {
            let outcome = sent.await.unwrap().outcome;
            traces::told(uaid, message, outcome);
            outcome
        })
    }

    /// Sends an agent here or elsewhere a message, which it has not acked yet. Returns the message and its outcome.
    pub(crate) async fn sends(&self, agent: &mut UserAgent) -> (MessageId, JoinHandle<Outcome>) {
        let message = self.message();
        let id = message.id;
        let sent = self.send(agent.uaid, message);
        assert_eq!(agent.is_notified().await, id);
        (id, sent)
    }

    /// Delivers a message directly, which the agent acks.
    pub(crate) async fn delivers(&self, agent: &mut UserAgent) {
        let (id, sent) = self.sends(agent).await;
        agent.acks(id);
        assert_eq!(sent.await.unwrap(), Outcome::Delivered);
    }

    /// Sends a message, which is stored with no time gone by.
    pub(crate) async fn stores(&self, uaid: Uaid) -> MessageId {
        let message = self.message();
        let id = message.id;
        assert_eq!(self.send(uaid, message).await.unwrap(), Outcome::Stored);
        id
    }

    /// The agent is notified of a stored message, and acks it.
    pub(crate) async fn is_taken(&self, agent: &mut UserAgent, id: MessageId) {
        assert_eq!(agent.is_notified().await, id);
        agent.acks(id);
        self.until_nothing_is_stored(agent.uaid).await;
    }

    /// Hands a message to the node alone, as an endpoint does. Keep what it gives: who waits.
    pub(crate) fn deliver(&self, uaid: Uaid, message: Message) -> oneshot::Receiver<NodeAnswer> {
        self.directory.deliver(&self.clients.config.node, uaid, message)
    }

    /// The messages stored for an agent.
    pub(crate) async fn stored(&self, uaid: Uaid) -> Vec<MessageId> {
        let now = self.clock.now();
        let stored = stored_messages(&*self.store, uaid, Month::of(now), now).await;
        stored.iter().map(|message| message.id).collect()
    }

    /// Waits until nothing is stored for an agent.
    pub(crate) async fn until_nothing_is_stored(&self, uaid: Uaid) {
        self.until_stored(uaid, &[]).await;
    }

    /// Waits until these messages, and no others, are stored for an agent.
    pub(crate) async fn until_stored(&self, uaid: Uaid, messages: &[MessageId]) {
        clockwork::until("stored", async || self.stored(uaid).await, |stored| stored == messages)
            .await;
    }

    /// Waits until no push is under way.
    pub(crate) async fn endpoints_rest(&self) {
        let in_flight = async || self.endpoints.in_flight();
        clockwork::until("pushes in flight", in_flight, |count| *count == 0).await;
    }

    /// The connection found under a uaid.
    pub(crate) async fn find(&self, uaid: Uaid) -> Option<ConnectionId> {
        self.registry.send(Lookup { uaid }).await.unwrap()
    }
}

/// Fills the mailbox of a registry, as far as this address may.
pub(crate) fn fill(registry: &BoundedAddr<RegistryActor>) {
    let sent = (0..10_000).take_while(|_| registry.try_send(CountConnections).is_ok());
    assert!(sent.count() < 10_000, "the mailbox has no bound");
}

/// Messages that may wait for an agent.
pub(crate) const WAITING_MAX: u64 = 300;

const PAGE: PageLimit = PageLimit { rows: 1000, bytes: 1 << 20 };

/// All messages that are stored for an agent in a month.
pub(crate) async fn stored_messages(
    store: &dyn Store,
    uaid: Uaid,
    month: Month,
    now: Time,
) -> Vec<Message> {
    all_pages(store, |after| StoreOp::Fetch { uaid, month, after, limit: PAGE, now }).await
}

/// The SimplePush versions that wait for an agent.
pub(crate) async fn stored_versions(store: &dyn Store, uaid: Uaid, now: Time) -> Vec<Message> {
    all_pages(store, |after| StoreOp::FetchVersions { uaid, after, limit: PAGE, now }).await
}

async fn all_pages(store: &dyn Store, op: impl Fn(Option<Cursor>) -> StoreOp) -> Vec<Message> {
    let (mut messages, mut after) = (Vec::new(), None);
    loop {
        let page = store.execute(op(after)).await.unwrap().page().unwrap();
        messages.extend(page.messages);
        after = page.next;
        if after.is_none() {
            return messages;
        }
    }
}

impl Ground {
    /// The same, on another store.
    pub(crate) fn with(self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self }
    }

    /// A new store, with a table for this month.
    pub(crate) async fn on_disk() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let user = WaitingBound { messages_max: WAITING_MAX, bytes_max: 0 };
        let waiting = WaitingLimits { user, ..WaitingLimits::NONE };
        let options = EmbeddedOptions { waiting, ..EmbeddedOptions::new(4096) };
        let store = Arc::new(Embedded::open(folder.path(), &options).unwrap());
        let store: Arc<dyn Store> = Arc::new(UnkindStore::with_short_pages(store));
        store.ensure_month(Month::of(NOW)).await.unwrap();
        Self { _folder: Some(Rc::new(folder)), ..Self::of(store) }
    }

    /// A store that the caller keeps.
    pub(crate) fn of(store: Arc<dyn Store>) -> Self {
        Self { store, neighbours: Neighbours::default(), messages: Rc::default(), _folder: None }
    }
}

fn clients(
    bounds: &Bounds,
    store: &Arc<OrderedStore>,
    directory: &Directory,
    nodes: &Arc<dyn NodeDirectory>,
    clock: &Clock,
) -> Arc<ClientShared> {
    let Bounds { limits, name, frozen_month, broadcasts, .. } = bounds.clone();
    Arc::new(ClientShared {
        config: Arc::new(Config {
            node: NodeId::new(name),
            frozen_month,
            simplepush: false,
            vapid_keys: [].into(),
            limits,
        }),
        store: Arc::clone(store) as _,
        registry: directory.registry().clone(),
        nodes: Arc::clone(nodes),
        counters: Arc::clone(directory.clients()),
        broadcasts,
        receipts: None,
        urls: Box::new(NoUrls),
        register_refused: Box::new(|_, _| {}),
        clock: clock.clone(),
        mailbox_max: bounds.client_mailbox_max,
        frame_limits: Arc::new(frame_limits(bounds.frames_per_second_max, clock)),
        log: log(),
        connections: AtomicU64::new(1),
    })
}

/// Messages of a few KiB. A rate of 0 is none.
pub(crate) fn frame_limits(per_second_max: usize, clock: &Clock) -> FrameLimits {
    FrameLimits::new(MESSAGE_BYTES_MAX, per_second_max, clock.clone(), log())
}

/// The message of this number.
pub(crate) fn message_of(number: u32) -> Message {
    let data = Bytes::from(format!("message {number}"));
    let payload = Some(Payload { data, encoding: Encoding::Aes128Gcm });
    let id = MessageId::from_uuid_v7((u128::from(number) << 80) | 0x7000 << 64 | 0x8000, false);
    Message { payload, ..Message::new(id, CHANNEL, NOW, Span::from_secs(60)) }
}

/// No test looks at the URLs.
pub(crate) struct NoUrls;

impl EndpointUrls for NoUrls {
    fn endpoint(&self, _: Uaid, _: Chid, _: Option<&VapidKey>) -> String {
        "https://push.example/".to_owned()
    }
}

pub(crate) fn log() -> Logger {
    Logger::root(Discard, o!())
}
