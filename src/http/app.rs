//! What requests can reach, by what the process is: a connection node, an endpoint node, or both.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Addr};
use actix_web::web::Data;
use actors::{ClientShared, Clock, Endpoint, EndpointShared, Feeds};
use slog::Logger;
use state_machine::{MessageId, Span, Time};
use storage::Store;
use uuid::{ContextV7, Timestamp, Uuid};

use super::connect_limiter::ConnectLimiter;
use super::endpoint_token::EndpointTokens;
use super::message_url::MessageUrls;
use super::vapid::Vapid;
use crate::feeds::http::FeedService;

/// What a process is. At least one of the two.
#[derive(Clone)]
pub struct AppState {
    /// What every process has.
    pub common: Data<SharedState>,
    /// What a connection node has: here user agents connect.
    pub connections: Option<Data<WebSocketRole>>,
    /// What an endpoint node has: here application servers send.
    pub endpoints: Option<Data<EndpointRole>>,
}

/// What every process has.
pub struct SharedState {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The feeds: of an endpoint node for whoever may use them, of a connection node for broadcasts.
    pub feeds: Feeds,
    /// The clock.
    pub clock: Clock,
    /// What `Retry-After` says when something is overrun or down.
    pub retry_after: Span,
    /// Whether the end has begun.
    pub draining: Draining,
    /// The log.
    pub log: Logger,
}

/// What user agents connect to.
pub struct WebSocketRole {
    /// What every process has.
    pub common: Data<SharedState>,
    /// What clients share.
    pub clients: Arc<ClientShared>,
    /// Who may connect now.
    pub connect_limiter: ConnectLimiter,
    /// Bytes of a WebSocket message.
    pub frame_bytes_max: usize,
}

/// What application servers send to.
pub struct EndpointRole {
    /// What every process has.
    pub common: Data<SharedState>,
    /// Where endpoint URLs begin.
    pub origin: String,
    /// Endpoint tokens.
    pub tokens: Arc<EndpointTokens>,
    /// Message locations.
    pub message_urls: MessageUrls,
    /// VAPID verification.
    pub vapid: Vapid,
    /// The limits of a push.
    pub limits: PushLimits,
    /// What endpoint actors share.
    pub shared: Arc<EndpointShared>,
    /// The feeds for other programs.
    pub feed_service: Data<FeedService>,
    /// Makes message ids.
    pub ids: MessageIds,
}

/// What bounds one push.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// Bytes of a body in aes128gcm.
    pub payload_bytes_max: usize,
    /// Bytes of a body in aesgcm.
    pub aesgcm_bytes_max: usize,
    /// How long a message is kept at most.
    pub ttl_max: Span,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
}

/// Whether the end has begun. Once it has, it has.
#[derive(Debug, Default)]
pub struct Draining(AtomicBool);

/// Makes the ids of messages: one sequence for the process, so that ids made in the same
/// millisecond are in order too, and one that goes on from the process before.
pub struct MessageIds {
    counter: Mutex<ContextV7>,
    floor: Time,
}

/// This worker's endpoint actor.
pub struct LocalEndpoint {
    shared: Arc<EndpointShared>,
    started: OnceCell<Addr<Endpoint>>,
}

impl Draining {
    /// The end begins.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl MessageIds {
    /// Ids that are later than `floor`, however early the clock is.
    pub fn after(floor: Time) -> Self {
        Self { counter: Mutex::default(), floor }
    }

    /// The time that an id made at `now` tells.
    pub fn time(&self, now: Time) -> Time {
        now.max(self.floor)
    }

    /// The id of a message that arrived at `now`.
    pub fn mint(&self, now: Time, has_topic: bool) -> MessageId {
        const NANOS_A_MS: u64 = 1_000_000;
        let time = self.time(now);
        let nanos = u32::try_from(time.0 % 1000 * NANOS_A_MS).expect("less than a second");
        // A worker that panicked while it held the lock left a counter, not a half-made one.
        let counter = self.counter.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let timestamp = Timestamp::from_unix(&*counter, time.as_secs(), nanos);
        MessageId::from_uuid_v7(Uuid::new_v7(timestamp).as_u128(), has_topic)
    }
}

impl LocalEndpoint {
    /// An endpoint actor that starts with the worker's first push.
    pub fn new(shared: Arc<EndpointShared>) -> Self {
        Self { shared, started: OnceCell::new() }
    }

    /// The actor.
    pub fn address(&self) -> &Addr<Endpoint> {
        self.started.get_or_init(|| Endpoint::new(Arc::clone(&self.shared)).start())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_though_the_clock_stands_still_or_goes_back() {
        let ids = MessageIds::after(Time(1_000_000));
        let times = [5_000_000, 5_000_000, 4_000_000, 10, 5_000_000, 5_000_001].map(Time);
        let minted: Vec<MessageId> =
            times.iter().cycle().take(6000).map(|time| ids.mint(*time, false)).collect();
        assert!(minted.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn ids_begin_after_those_of_the_process_before() {
        let before = MessageIds::after(Time(0)).mint(Time(9_000_000), true);
        let after = MessageIds::after(Time(9_120_000)).mint(Time(10), true);
        assert!(before < after);
    }
}
