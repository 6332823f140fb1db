//! What a client allocates while nothing happens, and what a push to it allocates.
//!
//! `make idle` prints it.

mod peers;
mod store;

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use actix_service::{Service, ServiceFactory};
use actix_web::HttpRequest;
use actix_web::rt::spawn;
use actix_web::web::{self, ServiceConfig};
use actors::handle::DirectPush;
use actors::{ClientShared, Clock, Directory, NoPeers, RegistryActor};
use allocations::Counts;
use state_machine::connection::{Config, ConnectionSeed};
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span, Uaid};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::clockwork::{self, settle};
use crate::net;
use crate::node::{self, Bounds, message_of};
use crate::store_double::StoreDouble;
use crate::wire::Unlimited;
use store::NothingStored;

/// Clients before and after. What does not grow with them drops out.
const CLIENTS: [usize; 2] = [1000, 2000];

/// What a client may allocate, 3 % more than it did when this was written.
const BYTES_AFTER_HELLO_MAX: i64 = 2055;
const BYTES_WITH_CHANNEL_MAX: i64 = 2070;

/// What a direct push may allocate from the look-up of its connection to its answer, as when this was written.
const ALLOCATIONS_OF_PUSH_MAX: u64 = 14;

/// What an HTTP connection may allocate that was idle for [`PARKED_AFTER`].
const BYTES_PARKED_MAX: i64 = 2048;

/// A time without requests in which a connection gives its buffers back.
const PARKED_AFTER: Span = Span::from_secs(3);

/// Pushes before they are counted, and counted ones.
const PUSHES: [u32; 2] = [16, 16];

/// What has an allocation of this size, or is a node of a tree of that size. Other sizes were not there when this was
/// written.
const PARTS: [(usize, &str); 13] = [
    (16, "channels; actix's mailbox, empty: a node of a queue"),
    (24, "actix's mailbox, empty: a node of a queue"),
    (32, "limits by sender"),
    (72, "mailbox and signals"),
    (96, "socket and what it has not sent; actix's mailbox, empty"),
    (112, "stream of frames and mail"),
    (192, "deadlines of the thread"),
    (256, "tokio's part of the socket; its task"),
    (272, "session"),
    (288, "deadlines of the thread"),
    (368, "registry"),
    (464, "registry"),
    (688, "connection: the actor, its context and its machine"),
];

/// What a client allocates.
struct PerClient {
    /// By size, with the average number of allocations.
    by_size: Vec<(usize, f64)>,
    bytes: i64,
}

struct Server {
    address: SocketAddr,
    shared: Arc<ClientShared>,
    directory: Directory,
}

impl Server {
    async fn start() -> Self {
        let (shared, directory) = shared();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn(serve(listener, Arc::clone(&shared)));
        Self { address, shared, directory }
    }

    /// What a client more allocates once all are idle.
    async fn per_client(&self, has_channel: bool) -> PerClient {
        let [before, after] = CLIENTS;
        let _first = peers::connect(self.address, before, has_channel).await;
        settle().await;
        let counts = Counts::of_thread();
        let _more = peers::connect(self.address, after - before, has_channel).await;
        settle().await;
        let more = Counts::of_thread().since(&counts);
        let clients = after - before;
        let of_client = |(bytes, count)| (bytes, f64::from(count) / clients as f64);
        PerClient {
            by_size: more.by_size().map(of_client).collect(),
            bytes: more.bytes() / clients as i64,
        }
    }

    /// What an HTTP connection more allocates once it is idle, in bytes.
    async fn per_idle_connection(&self) -> i64 {
        let [before, after] = CLIENTS;
        let _first = peers::ask(self.address, before).await;
        clockwork::pass(PARKED_AFTER).await;
        let counts = Counts::of_thread();
        let _more = peers::ask(self.address, after - before).await;
        clockwork::pass(PARKED_AFTER).await;
        Counts::of_thread().since(&counts).bytes() / (after - before) as i64
    }

    /// What clients that have ended still allocate, in bytes.
    async fn left_by(&self, clients: usize) -> i64 {
        let _others = peers::connect(self.address, 10, true).await;
        settle().await;
        let before = (Counts::of_thread(), self.shared.counters.counts());
        drop(peers::connect(self.address, clients, true).await);
        let clients = async || self.shared.counters.counts();
        clockwork::until("clients", clients, |clients| *clients == before.1).await;
        settle().await;
        Counts::of_thread().since(&before.0).bytes()
    }

    /// How many allocations a direct push makes, from the registry to its answer.
    async fn per_push(&self) -> u64 {
        let mut agents = peers::connect(self.address, 1, true).await;
        let mut number = 0;
        let [first, counted] = PUSHES;
        let mut made = 0;
        for _ in 0..first + counted {
            made = if number == first { 0 } else { made };
            number += 1;
            made += self.push(&mut agents[0], number).await;
        }
        made / u64::from(counted)
    }

    async fn push(&self, agent: &mut TcpStream, number: u32) -> u64 {
        let message = message_of(number);
        let (id, (reply, answer)) = (message.id, oneshot::channel());
        let before = Counts::of_thread();
        let push = DirectPush { uaid: uaid(1), message, reply };
        self.directory.deliver_here(push);
        settle().await;
        let sent = Counts::of_thread().since(&before);
        peers::ack(agent, id);
        let before = Counts::of_thread();
        assert_eq!(answer.await, Ok(NodeAnswer::Accepted));
        sent.made() + Counts::of_thread().since(&before).made()
    }
}

fn shared() -> (Arc<ClientShared>, Directory) {
    let Bounds { limits, now, .. } = Bounds::default();
    let clock = Clock::starting_at(now);
    let peers = Arc::new(NoPeers(NodeAnswer::NotHere));
    let directory = Directory::start(RegistryActor::new(10_000, peers, node::log()), None);
    let config = Config {
        node: NodeId::new("here"),
        frozen_month: None,
        simplepush: false,
        vapid_keys: [].into(),
        limits,
    };
    let shared = ClientShared {
        config: Arc::new(config),
        store: Arc::new(StoreDouble(NothingStored)),
        registry: directory.registry().clone(),
        nodes: Arc::new(NoPeers(NodeAnswer::NotHere)),
        counters: Arc::clone(directory.clients()),
        broadcasts: None,
        receipts: None,
        urls: Box::new(node::NoUrls),
        register_refused: Box::new(|_, _| {}),
        frame_limits: Arc::new(node::frame_limits(100, &clock)),
        clock,
        mailbox_max: 256,
        log: node::log(),
        connections: AtomicU64::new(1),
    };
    (Arc::new(shared), directory)
}

/// Serves each connection as the server does: in a task that also holds what counts it.
async fn serve(listener: TcpListener, shared: Arc<ClientShared>) {
    let (limits, agents) = (Arc::new(()), Cell::new(0));
    let connect = move |request: HttpRequest| {
        agents.set(agents.get() + 1);
        let seed = ConnectionSeed { fresh_uaid: uaid(agents.get()), jitter: 0 };
        // As large as the limits of the server.
        let admission = Unlimited((Arc::clone(&limits), None::<IpAddr>));
        let upgraded =
            actors::socket::upgrade(Arc::clone(&shared), seed, Box::new(admission), &request);
        async { upgraded }
    };
    let connect = std::rc::Rc::new(connect);
    let routes = move |service: &mut ServiceConfig| {
        service.route("/", web::get().to(move |request: HttpRequest| connect(request)));
    };
    let service = actors::socket::service(&net::options(), routes).new_service(()).await.unwrap();
    let (opened, counter) = (Arc::new(()), Arc::new(()));
    loop {
        let (stream, address) = listener.accept().await.unwrap();
        let (served, opened) =
            (service.call((stream, Some(address), Arc::default())), Arc::clone(&opened));
        let counted = async move {
            let ended = served.await;
            drop(opened);
            ended
        };
        let guard = (0_usize, Arc::clone(&counter));
        spawn(async move {
            let _ = counted.await;
            drop(guard);
        });
    }
}

/// Uaids in no order, the same ones in each run.
fn uaid(number: u64) -> Uaid {
    let scattered = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    Uaid(scattered.to_be_bytes())
}

fn print(title: &str, client: &PerClient) {
    println!("{title}: {} bytes", client.bytes);
    for &(bytes, count) in &client.by_size {
        let part = PARTS.iter().find(|(size, _)| *size == bytes).map_or("", |(_, part)| part);
        println!("{:>7.1} = {count:.3} * {bytes:<4} {part}", bytes as f64 * count);
    }
}

#[clockwork::test]
async fn an_idle_client_allocates_no_more_than_it_did() {
    let client = Server::start().await.per_client(false).await;
    print("after hello", &client);
    assert!(client.bytes <= BYTES_AFTER_HELLO_MAX, "{} bytes", client.bytes);
}

#[clockwork::test]
async fn an_idle_client_with_a_channel_allocates_no_more_than_it_did() {
    let client = Server::start().await.per_client(true).await;
    print("with a channel", &client);
    assert!(client.bytes <= BYTES_WITH_CHANNEL_MAX, "{} bytes", client.bytes);
}

#[clockwork::test]
async fn an_idle_http_connection_has_no_buffers() {
    let bytes = Server::start().await.per_idle_connection().await;
    println!("an idle HTTP connection: {bytes} bytes");
    assert!(bytes <= BYTES_PARKED_MAX, "{bytes} bytes");
}

#[clockwork::test]
async fn clients_that_have_ended_allocate_nothing() {
    let left = Server::start().await.left_by(500).await;
    assert!(left < BYTES_AFTER_HELLO_MAX, "{left} bytes");
}

#[clockwork::test]
async fn a_direct_push_makes_no_more_allocations_than_it_did() {
    let made = Server::start().await.per_push().await;
    println!("a direct push: {made} allocations");
    assert!(made <= ALLOCATIONS_OF_PUSH_MAX, "{made} allocations");
}
