//! The state that request handlers share, by role: connection node, endpoint node, or both.

use std::cell::OnceCell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix_web::web::Data;
use actors::counters::Counters;
use actors::{
    Access, BoundedAddr, ClientShared, Clock, Endpoint, EndpointShared, Feeds, NodeDirectory,
};
use parking_lot::Mutex;
use slog::Logger;
use state_machine::{MessageId, Span, Time};
use storage::Store;
use storage::maintenance::{RecordsByMonth, WaitingPage};
use uuid::{ContextV7, Timestamp, Uuid};

use super::bridges::Bridges;
use super::judge::Judge;
use super::origins::Origins;
use super::port::accept_failures::AcceptFailures;
use super::port::access::AccessCheck;
use super::port::origin_check::OriginCheck;
use super::port::request_id::RequestIds;
use super::push_counters::PushCounters;
use super::push_history::PushHistory;
use super::refusals::Refusals;
use super::request::push_headers::PushRules;
use super::request::receipts::{ReceiptLimits, ReceiptUrls, ReceiptsFull};
use super::urls::endpoint_token::EndpointTokens;
use super::urls::message_url::MessageUrls;
use super::vapid::Vapid;
use super::web::WebPage;
use crate::limits::Limits;
use crate::settings::Role;
use crate::system::telemetry::LogState;
use crate::system::tls::certificates::Certificates;
use crate::system::tls::tickets::Tickets;

/// The results of attempts to open the operator's page. Those `over_limit` were not checked slowly.
pub const OPERATOR_LOGINS: [&str; 3] = ["succeeded", "refused", "over_limit"];

/// The state of a process, which has at least one of the two roles.
#[derive(Clone)]
pub struct AppState {
    pub common: Data<SharedState>,
    pub connections: Option<Data<WebSocketRole>>,
    pub endpoints: Option<Data<EndpointRole>>,
}

/// The state of every process, whatever its role.
pub struct SharedState {
    /// For people: its name in router records; of an endpoint node, its host with the port of its public API.
    pub name: String,
    pub store: Arc<dyn Store>,
    /// Serves feed clients on an endpoint node, and broadcasts on a connection node.
    pub feeds: Feeds,
    /// The access tokens: user agents need one on a closed server.
    pub access: Access,
    pub clock: Clock,
    /// Set once when the shutdown begins, and never reset.
    pub draining: AtomicBool,
    pub accept_failures: Arc<AcceptFailures>,
    pub limits: Arc<Limits>,
    pub request_ids: RequestIds,
    /// The last requests that were refused.
    pub refusals: Arc<Refusals>,
    /// Messages that were deleted because they had expired.
    pub messages_expired: AtomicU64,
    /// Attempts to open the operator's page, by their [result](OPERATOR_LOGINS).
    pub operator_logins: Counters<{ OPERATOR_LOGINS.len() }>,
    pub judge: Judge,
    /// What the public port presents, if it speaks TLS.
    pub certificates: Arc<Certificates>,
    /// With which sessions of TLS resume.
    pub tickets: Arc<Tickets>,
    /// The messages that waited in the store when they were counted last; none if that is not known.
    pub waiting: Mutex<Option<WaitingPage>>,
    /// When this process counted all records last, and what it found; none if it did not.
    pub records: Mutex<Option<(Time, RecordsByMonth)>>,
    pub log_state: Arc<LogState>,
    pub log: Logger,
}

/// The state of a connection node.
pub struct WebSocketRole {
    pub common: Data<SharedState>,
    pub clients: Arc<ClientShared>,
    pub origin_check: OriginCheck,
    pub access: AccessCheck,
    /// The page of a browser that opens the address of the server, if there is one.
    pub page: Option<WebPage>,
}

/// The state of an endpoint node.
pub struct EndpointRole {
    pub common: Data<SharedState>,
    pub origins: Arc<Origins>,
    pub tokens: Arc<EndpointTokens>,
    pub message_urls: MessageUrls,
    pub receipt_urls: ReceiptUrls,
    /// Pushes whose receipt subscription was full.
    pub receipts_full: ReceiptsFull,
    pub vapid: Vapid,
    pub limits: PushLimits,
    /// Whether this node is a Matrix push gateway for its endpoints.
    pub matrix_gateway: bool,
    /// Whether endpoints accept the PUT of SimplePush.
    pub simplepush: bool,
    pub shared: Arc<EndpointShared>,
    /// For their counts in `/health`.
    pub bridges: Arc<Bridges>,
    pub ids: MessageIds,
    pub counters: PushCounters,
    pub history: Arc<PushHistory>,
}

/// The limits of one push.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// Maximum size of a body in aes128gcm.
    pub payload_bytes_max: usize,
    /// Maximum size of a body in aesgcm.
    pub aesgcm_bytes_max: usize,
    /// Upper bound of the TTL; a greater one is lowered to it.
    pub ttl_max: Span,
    pub rules: PushRules,
    pub receipts: ReceiptLimits,
    /// Maximum time for a body to arrive.
    pub body_timeout: Duration,
}

/// Generates message ids. The process has one sequence, so that ids of the same millisecond are
/// ordered too, and the sequence continues that of the previous process.
pub struct MessageIds {
    counter: Mutex<ContextV7>,
    floor: Time,
}

/// The state of one worker thread of an endpoint node, with the endpoint actor of the thread.
pub struct LocalEndpoint {
    role: Data<EndpointRole>,
    started: OnceCell<BoundedAddr<Endpoint>>,
}

impl AppState {
    pub fn role(&self) -> Role {
        match (&self.connections, &self.endpoints) {
            (Some(_), Some(_)) => Role::All,
            (Some(_), None) => Role::Connection,
            (None, _) => Role::Endpoint,
        }
    }

    /// The other nodes that this one calls.
    pub fn nodes(&self) -> Option<&dyn NodeDirectory> {
        let Self { connections, endpoints, .. } = self;
        let of_endpoints = endpoints.as_ref().map(|role| &*role.shared.nodes);
        of_endpoints.or_else(|| connections.as_ref().map(|role| &*role.clients.nodes))
    }
}

impl SharedState {
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

impl MessageIds {
    /// Ids are later than `floor`, even if the clock is behind it.
    pub fn after(floor: Time) -> Self {
        Self { counter: Mutex::default(), floor }
    }

    /// The time in an id minted at `now`.
    pub fn time(&self, now: Time) -> Time {
        now.max(self.floor)
    }

    /// A new id for a message that arrived at `now`.
    pub fn mint(&self, now: Time, has_topic: bool) -> MessageId {
        const NANOS_A_MS: u64 = 1_000_000;
        let time = self.time(now);
        let nanos = u32::try_from(time.0 % 1000 * NANOS_A_MS).expect("less than a second");
        let timestamp = {
            let counter = self.counter.lock();
            Timestamp::from_unix(&*counter, time.as_secs(), nanos)
        };
        MessageId::from_uuid_v7(Uuid::new_v7(timestamp).as_u128(), has_topic).with_receipt(false)
    }
}

impl LocalEndpoint {
    /// The actor starts with the worker's first push.
    pub fn new(role: Data<EndpointRole>) -> Self {
        Self { role, started: OnceCell::new() }
    }

    pub fn address(&self) -> &BoundedAddr<Endpoint> {
        let shared = &self.role.shared;
        self.started.get_or_init(|| BoundedAddr::start(Endpoint::new(Arc::clone(shared))))
    }
}

impl Deref for LocalEndpoint {
    type Target = EndpointRole;

    fn deref(&self) -> &EndpointRole {
        &self.role
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_while_the_clock_stands_still_or_is_set_back() {
        let ids = MessageIds::after(Time(1_000_000));
        let times = [5_000_000, 5_000_000, 4_000_000, 10, 5_000_000, 5_000_001].map(Time);
        let minted: Vec<MessageId> =
            times.iter().cycle().take(6000).map(|time| ids.mint(*time, false)).collect();
        assert!(minted.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn ids_continue_after_those_of_the_previous_process() {
        let before = MessageIds::after(Time(0)).mint(Time(9_000_000), true);
        let after = MessageIds::after(Time(9_120_000)).mint(Time(10), true);
        assert!(before < after);
    }
}
