//! Builds the parts of a node that its role needs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use actix_web::web::Data;
use actors::broadcasts::{self, BroadcastLimits};
use actors::counters::Counters;
use actors::{
    Bridge, BridgedAgents, ClientShared, Clock, Directory, EndpointShared, Feeds, FrameLimits,
    NoPeers, NodeDirectory, RegistryActor,
};
use parking_lot::Mutex;
use rustix::system::uname;
use slog::Logger;
use state_machine::connection::Config;
use state_machine::delivery::NodeAnswer;
use state_machine::wire::{EndpointUrls, VapidKey};
use state_machine::{Chid, Month, NodeId, Span, Uaid};
use storage::data_dir::DirLock;
use storage::{FeedTables, Store, StoreAdmin};

use super::error::ServeError;
use super::listen::{BoundSockets, PublicApis};
use super::maintenance::Upkeep;
use super::open_store::{self, OpenedStore};
use super::router_url_check::RouterUrl;
use super::{limits, other_servers};
use crate::cluster::about::AboutNode;
use crate::cluster::callers::Callers;
use crate::cluster::inbound::RouterPort;
use crate::cluster::outbound::{NodeAccess, RemoteNodes};
use crate::cluster::signature::ClusterKeys;
use crate::feeds::http::service::FeedService;
use crate::limits::Limits;
use crate::push::accept_failures::AcceptFailures;
use crate::push::access::AccessCheck;
use crate::push::app::{AppState, EndpointRole, MessageIds, SharedState, WebSocketRole};
use crate::push::bridges::Bridges;
use crate::push::endpoint_token::EndpointTokens;
use crate::push::judge::{Judge, RefusedCall};
use crate::push::message_url::MessageUrls;
use crate::push::origin_check::OriginCheck;
use crate::push::origins::Origins;
use crate::push::push_counters::PushCounters;
use crate::push::push_history::PushHistory;
use crate::push::receipts::{ReceiptUrls, ReceiptsFull};
use crate::push::registration::{RegistrationSecrets, RegistrationService};
use crate::push::request_id::RequestIds;
use crate::push::vapid::Vapid;
use crate::push::web::WebPage;
use crate::settings::keys::{Keys, ticket_roots};
use crate::settings::{AccessMode, ListenAddress, PublicUrl, Role, Settings, StoreKind};
use crate::system::build::Build;
use crate::system::telemetry::LogState;
use crate::system::tls::tickets::Tickets;

/// Name of a single node in router records. It is fixed, so that the records stay valid when the
/// server moves to another address.
const SINGLE_NODE: &str = "local";

/// Time that an endpoint waits beyond the timeout of its request to another node. If it gave up
/// first, a node that hangs would not be noticed.
const REMOTE_GRACE: Duration = Duration::from_millis(250);

/// Length of the file of a socket in the name of a node, in characters.
const NAMED_FILE_CHARS_MAX: usize = 40;

/// A node whose actors run and whose ports are not open yet.
pub(super) struct Node {
    pub(super) app: AppState,
    pub(super) apis: PublicApis,
    pub(super) router: Option<RouterPort>,
    /// That of a connection node.
    pub(super) router_url: Option<RouterUrl>,
    pub(super) store: Arc<dyn StoreAdmin>,
    pub(super) upkeep: Upkeep,
    /// The origin of endpoint URLs.
    pub(super) origin: String,
    /// Calls other nodes for an operator. None of a single node.
    pub(super) peers: Option<NodeAccess>,
    pub(super) nodes: Directory,
    /// The lock of the data directory, if the store has none of its own.
    pub(super) lock: Option<DirLock>,
}

/// Endpoint URLs: the public origin and an encrypted token.
pub(super) struct SealedUrls {
    origin: String,
    tokens: Arc<EndpointTokens>,
}

/// Opens keys and store and starts the actors of the role.
pub(super) async fn assemble(
    role: Role,
    settings: &Settings,
    sockets: &BoundSockets,
    clock: &Clock,
    (log, log_state): (&Logger, &Arc<LogState>),
) -> Result<Node, ServeError> {
    let origin = settings.public_origin(&sockets.public.address);
    let origin = origin.expect("a Unix socket has public_url (Settings::check)");
    // Before the store is opened: a wrong file of bridges is reported at once.
    let bridges = role.has_endpoints().then(|| Bridges::load(settings, clock.clone(), log));
    let bridges = bridges.transpose()?;
    let opened = open_store::open(role, settings, clock.now(), log).await?;
    other_servers::compare(role, settings, origin.as_str(), &*opened.store, log).await?;
    let OpenedStore { lock, keys, store, upkeep, frozen_month } = opened;
    let feeds = Arc::clone(&store) as Arc<dyn FeedTables>;
    let feeds = Feeds::start(feeds, clock.clone(), limits::of_feeds(settings), log.clone());
    let access = actors::access::load(&feeds, clock.clone()).await;
    let name = name_of(role, settings, sockets);
    let common = Data::new(SharedState {
        name: name.to_string(),
        store: Arc::clone(&store) as Arc<dyn Store>,
        feeds,
        access: access.map_err(ServeError::AccessTokens)?,
        clock: clock.clone(),
        draining: AtomicBool::new(false),
        accept_failures: AcceptFailures::watch(clock.clone(), log.clone()),
        limits: Limits::new(settings, clock.clone(), log.clone()),
        request_ids: RequestIds::default(),
        refusals: Arc::default(),
        messages_expired: AtomicU64::new(0),
        operator_logins: Counters::default(),
        judge: Judge::new(settings, clock.now()),
        certificates: Arc::default(),
        tickets: Arc::new(Tickets::new(ticket_roots(&keys), clock.clone())),
        waiting: Mutex::default(),
        records: Mutex::default(),
        log_state: Arc::clone(log_state),
        log: log.clone(),
    });
    let callers = Arc::default();
    let parts = NodeParts { settings, common: &common, keys: &keys, origin: &origin, callers };
    let nodes = parts.directory(role, &name);
    let connections = match role.has_connections() {
        true => Some(parts.connections(&name, &nodes, frozen_month).await?),
        false => None,
    };
    let router = (role == Role::Connection).then(|| parts.router_port(name.clone(), &nodes));
    let peers = (role != Role::All).then(|| NodeAccess::of(&keys, settings)).flatten();
    let peers = peers.map(|access| access.with_callers(Arc::clone(&parts.callers)));
    let router_url = router.as_ref().zip(peers.clone()).map(|(router, access)| RouterUrl {
        access,
        node: name,
        instance: router.instance(),
        clock: clock.clone(),
    });
    let (apis, endpoints) = match bridges {
        Some(bridges) => {
            let (apis, agents) = parts.apis(&bridges, frozen_month);
            let ids = upkeep.message_ids();
            (apis, Some(parts.endpoints(role, nodes.clone(), (bridges, agents), ids)))
        }
        None => (PublicApis::default(), None),
    };
    let (origin, app) = (origin.as_str().to_owned(), AppState { common, connections, endpoints });
    Ok(Node { app, apis, router, router_url, store, upkeep, origin, peers, nodes, lock })
}

/// The name of a node in router records. No record names an endpoint node: people know it by its host and the port of its
/// public API.
fn name_of(role: Role, settings: &Settings, sockets: &BoundSockets) -> NodeId {
    let router = sockets.router.as_ref().and_then(|router| router.address.tcp());
    match (role, router) {
        (Role::Endpoint, _) => {
            let port = match &sockets.public.address {
                ListenAddress::Tcp(address) => address.port().to_string(),
                ListenAddress::Unix(path) => in_name(path),
            };
            NodeId::new(&format!("{}:{port}", uname().nodename().to_string_lossy()))
        }
        (Role::All | Role::Connection, Some(router)) => settings.node_id(router),
        (Role::All | Role::Connection, None) => NodeId::new(SINGLE_NODE),
    }
}

/// The file of a socket in the name of a node, which is short and plain (`cluster::about`).
fn in_name(socket: &Path) -> String {
    let file = socket.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    file.chars().map(plain).take(NAMED_FILE_CHARS_MAX).collect()
}

/// What the parts of a node are built from.
struct NodeParts<'a> {
    settings: &'a Settings,
    common: &'a Data<SharedState>,
    keys: &'a Keys,
    origin: &'a PublicUrl,
    callers: Arc<Callers>,
}

impl NodeParts<'_> {
    /// Starts the registry, which looks agents and other nodes up.
    fn directory(&self, role: Role, name: &NodeId) -> Directory {
        let SharedState { feeds, access, clock, log, .. } = &***self.common;
        let peers: Arc<dyn NodeDirectory> = match role {
            // No other node is called. Shared tables may be used by several nodes.
            Role::All => Arc::new(NoPeers(match self.settings.store {
                StoreKind::Embedded => NodeAnswer::NotHere,
                StoreKind::DynamoDb | StoreKind::PostgreSql => NodeAnswer::Unreachable,
            })),
            Role::Connection | Role::Endpoint => {
                let (keys, allowed) = (self.cluster_keys(), self.settings.nodes_allowed.clone());
                let (limits, callers) = (self.settings.into(), Arc::clone(&self.callers));
                let (clock, log) = (clock.clone(), log.clone());
                let nodes = RemoteNodes::new(keys, allowed, limits, callers, clock, log);
                nodes.introduce(name.as_str(), role.name());
                Arc::new(nodes)
            }
        };
        let registry = RegistryActor::new(self.settings.registry_mailbox_max, peers, log.clone());
        let registry = registry.with_access(access.clone());
        let directory = Directory::start(registry, role.has_connections().then(|| name.clone()));
        access.follow(feeds, directory.registry().clone(), log.clone());
        directory
    }

    fn router_port(&self, name: NodeId, directory: &Directory) -> RouterPort {
        let (common, clients) = (Data::clone(self.common), Arc::clone(directory.clients()));
        let (clock, log) = (common.clock.clone(), common.log.clone());
        let about = move || AboutNode {
            version: Build::TEXT.to_owned(),
            drains: common.is_draining(),
            agents: clients.identified(),
            ..AboutNode::default()
        };
        let (keys, limits) = (self.cluster_keys(), self.settings.into());
        let common = Data::clone(self.common);
        let on_other_day = move |from, ahead| {
            let call = RefusedCall { at: common.clock.now(), from, ahead };
            *common.judge.refused_call.lock() = Some(call);
        };
        RouterPort::new(name, keys, directory, Box::new(about), clock, limits, log)
            .with_callers(Arc::clone(&self.callers))
            .on_other_day(Box::new(on_other_day))
    }

    /// Whether user agents need an access token.
    fn is_closed(&self) -> bool {
        self.settings.access == AccessMode::Token
    }

    fn cluster_keys(&self) -> Arc<ClusterKeys> {
        let keys = ClusterKeys::derive(self.keys);
        Arc::new(keys.expect("open_store refuses a cluster node without cluster keys"))
    }

    async fn connections(
        &self,
        name: &NodeId,
        directory: &Directory,
        frozen_month: Option<Month>,
    ) -> Result<Data<WebSocketRole>, ServeError> {
        let Self { settings, common, keys, origin, .. } = self;
        let SharedState { feeds, clock, log, .. } = &****common;
        let limits = BroadcastLimits {
            spread: Span(settings.broadcast_fanout_ms),
            mailbox_max: settings.feed_mailbox_max,
        };
        // It returns when it has read the broadcasts in the store.
        let broadcasts = broadcasts::start(feeds, limits, clock.clone(), log.clone()).await;
        let (refusals, of_refusals) = (Arc::clone(&common.refusals), clock.clone());
        let clients = ClientShared {
            config: Arc::new(Config {
                node: name.clone(),
                frozen_month,
                simplepush: settings.simplepush,
                vapid_keys: settings.vapid_keys_allowed.keys().into(),
                limits: limits::of_session(settings),
            }),
            store: Arc::clone(&common.store),
            registry: directory.registry().clone(),
            nodes: Arc::new(directory.clone()),
            counters: Arc::clone(directory.clients()),
            broadcasts: Some(broadcasts.map_err(ServeError::Broadcasts)?),
            receipts: Some(feeds.clone()),
            urls: SealedUrls::boxed(origin.as_str(), Arc::new(EndpointTokens::new(keys))),
            register_refused: Box::new(move |status, reason| {
                let asked = ("register", "over a WebSocket");
                refusals.note_as((status, 0), reason, asked, "", of_refusals.now());
            }),
            clock: clock.clone(),
            mailbox_max: settings.client_mailbox_max,
            frame_limits: Arc::new(FrameLimits::new(
                settings.frame_bytes_max,
                settings.agent_frames_per_second_max,
                clock.clone(),
                log.clone(),
            )),
            log: log.clone(),
            connections: AtomicU64::new(0),
        };
        Ok(Data::new(WebSocketRole {
            common: Data::clone(common),
            clients: Arc::new(clients),
            access: AccessCheck::new(self.is_closed(), common.access.clone()),
            origin_check: OriginCheck::new(
                PublicUrl::clone(origin),
                settings.origins_allowed.clone(),
            ),
            page: settings.web_page.then(|| WebPage::new(origin.as_str().to_owned())),
        }))
    }

    /// What is served beside pushes, with the user agents behind the bridges.
    fn apis(
        &self,
        bridges: &Bridges,
        frozen_month: Option<Month>,
    ) -> (PublicApis, Arc<BridgedAgents>) {
        let Self { settings, common, keys, origin, .. } = self;
        let SharedState { store, feeds, clock, limits, log, .. } = &****common;
        let agent_limits = limits::of_bridged_agents(settings, frozen_month);
        let (store, time) = (Arc::clone(store), clock.clone());
        let agents = Arc::new(BridgedAgents::new(store, time, agent_limits, log.clone()));
        let feeds = FeedService::new(settings, keys, feeds.clone(), clock.clone(), log.clone());
        let registration = (!bridges.is_empty()).then(|| RegistrationService {
            agents: Arc::clone(&agents),
            apps: bridges.apps(),
            secrets: RegistrationSecrets::new(keys.auth_keys()),
            urls: SealedUrls::boxed(origin.as_str(), Arc::new(EndpointTokens::new(keys))),
            limits: Arc::clone(limits),
            vapid_keys: settings.vapid_keys_allowed.clone(),
            is_closed: self.is_closed(),
            body_timeout: Duration::from_millis(settings.request_body_timeout_ms),
            log: log.clone(),
        });
        let registration = registration.map(Data::new);
        (PublicApis { feeds: Some(Data::new(feeds)), registration, clock: None }, agents)
    }

    fn endpoints(
        &self,
        role: Role,
        directory: Directory,
        (bridges, agents): (Arc<Bridges>, Arc<BridgedAgents>),
        ids: MessageIds,
    ) -> Data<EndpointRole> {
        let Self { settings, common, keys, origin, .. } = self;
        let SharedState { store, clock, log, .. } = &****common;
        let grace = match role {
            Role::Endpoint => Duration::from_millis(settings.node_answer_grace_ms) + REMOTE_GRACE,
            Role::All | Role::Connection => Duration::ZERO,
        };
        let limits = limits::of_pushes(settings, grace);
        let shared = EndpointShared::new(
            Arc::clone(store),
            Arc::new(directory),
            (Arc::clone(&bridges) as Arc<dyn Bridge>, agents),
            clock.clone(),
            limits,
            log.clone(),
        );
        let origins = Origins::new(PublicUrl::clone(origin), settings.former_urls.clone());
        let origins = Arc::new(origins);
        Data::new(EndpointRole {
            common: Data::clone(common),
            origins: Arc::clone(&origins),
            tokens: Arc::new(EndpointTokens::new(keys)),
            message_urls: MessageUrls::new(keys),
            receipt_urls: ReceiptUrls::new(keys),
            receipts_full: ReceiptsFull::default(),
            vapid: Vapid::new(
                origins,
                settings.vapid_keys_allowed.clone(),
                settings.vapid_cache_bytes_max,
            ),
            limits: limits::of_a_push(settings),
            matrix_gateway: settings.matrix_gateway,
            simplepush: settings.simplepush,
            shared: Arc::new(shared),
            bridges,
            ids,
            counters: PushCounters::default(),
            history: Arc::new(PushHistory::new(settings.push_history_max)),
        })
    }
}

impl SealedUrls {
    pub(super) fn boxed(origin: &str, tokens: Arc<EndpointTokens>) -> Box<Self> {
        Box::new(Self { origin: origin.to_owned(), tokens })
    }
}

impl EndpointUrls for SealedUrls {
    fn endpoint(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String {
        let path = self.tokens.encrypt(uaid, chid, key);
        format!("{}{path}", self.origin)
    }
}
