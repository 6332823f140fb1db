//! A whole node in one thread: registry, clients, an endpoint actor, and a store on disk.

mod gate;
mod user_agent;

pub(crate) use user_agent::UserAgent;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use actix::{Actor, Addr};
use actix_web::rt::spawn;
use actix_web::rt::task::JoinHandle;
use actors::registry::Find;
use actors::{
    ClientShared, Clock, Endpoint, EndpointLimits, EndpointShared, LocalNode, NodeDirectory,
    RegistryActor, Send,
};
use bytes::Bytes;
use slog::{Discard, Logger, o};
use state_machine::connection::{Config, Limits};
use state_machine::delivery::{NodeAnswer, Outcome};
use state_machine::wire::{EndpointUrls, VapidKey};
use state_machine::{
    Chid, ConnectionId, Encoding, Message, MessageId, Month, NodeId, Payload, Span, Time, Uaid,
    Urgency,
};
use storage::{Embedded, EmbeddedOptions, PageLimit, Store};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use gate::GatedStore;

/// In November 2026.
const NOW: Time = Time(1_793_700_000_000);

/// The channel every agent registers.
pub(crate) const CHANNEL: Chid = Chid([0xC1; 16]);

/// How long an ack is waited for.
pub(crate) const ACK_WAIT: Span = Span(1000);

/// A node.
pub(crate) struct Node {
    pub(crate) clients: Arc<ClientShared>,
    pub(crate) endpoints: Arc<EndpointShared>,
    pub(crate) registry: Addr<RegistryActor>,
    /// What the clients have under them.
    pub(crate) store: Arc<dyn Store>,
    /// What the endpoint has under it: the same, behind a gate.
    pub(crate) gate: Arc<GatedStore>,
    pub(crate) directory: Arc<LocalNode>,
    endpoint: Addr<Endpoint>,
    clock: Clock,
    messages: Cell<u32>,
    _folder: TempDir,
}

/// What can be different about a node.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) endpoint: EndpointLimits,
    pub(crate) registry_mailbox_max: usize,
    pub(crate) client_mailbox_max: usize,
    pub(crate) unacked_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            endpoint: EndpointLimits {
                answer_wait: Duration::from_millis(ACK_WAIT.0 * 2),
                ack_waiters_max: 100,
                in_flight_max: 100,
                mailbox_max: 100,
            },
            registry_mailbox_max: 100,
            client_mailbox_max: 100,
            unacked_max: Limits::default().unacked_max,
        }
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::within(Bounds::default()).await
    }

    pub(crate) async fn within(bounds: Bounds) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(Embedded::open(folder.path(), &EmbeddedOptions::default()).unwrap());
        store.ensure_month(Month::of(NOW)).await.unwrap();
        let clock = Clock::starting_at(NOW);
        let registry = RegistryActor::new(bounds.registry_mailbox_max, log()).start();
        let clients = clients(&bounds, &store, &registry, &clock);
        let gate = Arc::new(GatedStore::open(&store));
        let name = clients.config.node.clone();
        let directory = Arc::new(LocalNode::new(name, registry.clone()));
        let (nodes, behind) = (Arc::clone(&directory) as _, Arc::clone(&gate) as _);
        let endpoints = EndpointShared::new(behind, nodes, clock.clone(), bounds.endpoint, log());
        let endpoints = Arc::new(endpoints);
        Self {
            endpoint: Endpoint::new(Arc::clone(&endpoints)).start(),
            clients,
            endpoints,
            registry,
            store,
            gate,
            directory,
            clock,
            messages: Cell::new(0),
            _folder: folder,
        }
    }

    /// A message for [`CHANNEL`], a minute to live, later than all before it.
    pub(crate) fn message(&self) -> Message {
        let number = self.messages.replace(self.messages.get() + 1);
        let data = Bytes::from(format!("message {number}"));
        Message {
            id: MessageId::from_uuid_v7((u128::from(number) << 80) | 0x7000 << 64 | 0x8000, false),
            chid: CHANNEL,
            topic: None,
            urgency: Urgency::Normal,
            accepted_at: self.clock.now(),
            ttl: Span::from_secs(60),
            payload: Some(Payload { data, encoding: Encoding::Aes128Gcm }),
        }
    }

    /// An application server sends a message; what it is told.
    pub(crate) fn send(&self, uaid: Uaid, message: Message) -> JoinHandle<Outcome> {
        let sent = self.endpoint.send(Send { uaid, message });
        spawn(async { sent.await.unwrap() })
    }

    /// Hands a message to the node alone, as an endpoint does. Keep what it gives: who waits.
    pub(crate) fn deliver(&self, uaid: Uaid, message: Message) -> oneshot::Receiver<NodeAnswer> {
        self.directory.deliver(&self.clients.config.node, uaid, message)
    }

    /// The messages stored for an agent.
    pub(crate) async fn stored(&self, uaid: Uaid) -> Vec<MessageId> {
        let limit = PageLimit { rows: 1000, bytes: 1 << 20 };
        let month = Month::of(self.clock.now());
        let page = self.store.fetch_messages(uaid, month, None, limit, self.clock.now()).await;
        page.unwrap().messages.iter().map(|message| message.id).collect()
    }

    /// Waits until nothing is stored for an agent.
    pub(crate) async fn until_nothing_is_stored(&self, uaid: Uaid) {
        while !self.stored(uaid).await.is_empty() {
            yield_now().await;
        }
    }

    /// Waits until these messages, and no others, are stored for an agent.
    pub(crate) async fn until_stored(&self, uaid: Uaid, messages: &[MessageId]) {
        while self.stored(uaid).await != messages {
            yield_now().await;
        }
    }

    /// Waits until no push is under way.
    pub(crate) async fn endpoints_rest(&self) {
        while self.endpoints.in_flight() > 0 {
            yield_now().await;
        }
    }

    /// The connection found under a uaid.
    pub(crate) async fn find(&self, uaid: Uaid) -> Option<ConnectionId> {
        self.registry.send(Find { uaid }).await.unwrap()
    }
}

fn clients(
    bounds: &Bounds,
    store: &Arc<dyn Store>,
    registry: &Addr<RegistryActor>,
    clock: &Clock,
) -> Arc<ClientShared> {
    let limits =
        Limits { ack_wait: ACK_WAIT, unacked_max: bounds.unacked_max, ..Limits::default() };
    Arc::new(ClientShared {
        config: Arc::new(Config { node: NodeId::new("here"), frozen_month: None, limits }),
        store: Arc::clone(store),
        registry: registry.clone(),
        urls: Box::new(NoUrls),
        clock: clock.clone(),
        mailbox_max: bounds.client_mailbox_max,
        log: log(),
        connections: AtomicU64::new(1),
    })
}

/// Nobody looks at the URLs here.
struct NoUrls;

impl EndpointUrls for NoUrls {
    fn endpoint(&self, _: Uaid, _: Chid, _: Option<&VapidKey>) -> String {
        "https://push.example/".to_owned()
    }
}

fn log() -> Logger {
    Logger::root(Discard, o!())
}
