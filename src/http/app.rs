//! What every request can reach, and which request goes where.

use std::cell::OnceCell;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Addr};
use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, ResponseError, Route};
use actors::{ClientShared, Clock, Endpoint, EndpointShared, Feeds, RegistryActor};
use slog::Logger;
use state_machine::{MessageId, Span, Time};
use storage::Store;
use uuid::{ContextV7, Timestamp, Uuid};

use super::feeds::FeedService;
use super::location::Locations;
use super::token::{TokenVersion, Tokens};
use super::vapid::Vapid;
use super::{PushError, feeds, health, messages, push, socket};

/// What all workers share.
pub struct App {
    /// Where endpoint URLs begin.
    pub origin: String,
    /// Endpoint tokens.
    pub tokens: Arc<Tokens>,
    /// Message locations.
    pub locations: Locations,
    /// VAPID verification.
    pub vapid: Vapid,
    /// The limits of a request.
    pub limits: RequestLimits,
    /// What clients share.
    pub clients: Arc<ClientShared>,
    /// What endpoint actors share.
    pub endpoints: Arc<EndpointShared>,
    /// The registry.
    pub registry: Addr<RegistryActor>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The feeds.
    pub feeds: Feeds,
    /// The feeds for other programs.
    pub feed_service: Data<FeedService>,
    /// The clock.
    pub clock: Clock,
    /// Makes message ids.
    pub ids: MessageIds,
    /// The log.
    pub log: Logger,
}

/// What bounds one request.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    /// Bytes of a body in aes128gcm.
    pub payload_bytes_max: usize,
    /// Bytes of a body in aesgcm.
    pub aesgcm_bytes_max: usize,
    /// Bytes of a WebSocket message.
    pub frame_bytes_max: usize,
    /// How long a message is kept at most.
    pub ttl_max: Span,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// What `Retry-After` says when the store is overrun or down.
    pub retry_after: Span,
}

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

/// The routes of one worker.
pub fn routes(app: &Data<App>) -> impl FnOnce(&mut ServiceConfig) + use<> {
    let app = app.clone();
    move |service| {
        service
            .app_data(Data::new(LocalEndpoint::new(Arc::clone(&app.endpoints))))
            .app_data(app.feed_service.clone())
            .app_data(app)
            .configure(feeds::routes)
            .service(page("/", web::get().to(socket::connect)))
            .service(
                web::scope("/wpush")
                    .wrap(cors())
                    .service(push::resource("/v1/{token}", TokenVersion::V1))
                    .service(push::resource("/v2/{token}", TokenVersion::V2))
                    .service(push::resource("/r/{token}", TokenVersion::Restricted))
                    .service(push::resource("/{token}", TokenVersion::Short))
                    .default_service(nothing_here()),
            )
            .service(
                web::scope("/m")
                    .wrap(cors())
                    .service(
                        web::resource("/{id}")
                            .delete(messages::delete)
                            .default_service(preflight_or_refused("DELETE, OPTIONS")),
                    )
                    .default_service(nothing_here()),
            )
            .service(page("/__heartbeat__", web::get().to(health::heartbeat)))
            .service(page("/health", web::get().to(health::heartbeat)))
            .service(page("/__lbheartbeat__", web::get().to(health::alive)))
            .service(page("/__version__", web::get().to(health::version)))
            .service(page("/status", web::get().to(health::version)))
            .default_service(nothing_here());
    }
}

/// Web pages may push too (RFC 8030 §5 says nothing of origins, and endpoints are capabilities).
fn cors() -> DefaultHeaders {
    DefaultHeaders::new().add((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")).add((
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        "location, ttl, link, retry-after, www-authenticate",
    ))
}

/// Answers a CORS preflight; any method but those in `allow` is not allowed here.
pub(super) fn preflight_or_refused(allow: &'static str) -> Route {
    web::route().to(move |request: HttpRequest| {
        let is_preflight = *request.method() == Method::OPTIONS;
        ready(if is_preflight { preflight() } else { refused(allow) })
    })
}

fn preflight() -> HttpResponse {
    HttpResponse::NoContent()
        .insert_header((header::ACCESS_CONTROL_ALLOW_METHODS, "POST, DELETE"))
        .insert_header((
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-encoding, content-type, crypto-key, encryption, prefer, \
             topic, ttl, urgency",
        ))
        .insert_header((header::ACCESS_CONTROL_MAX_AGE, "86400"))
        .finish()
}

/// What can be read and nothing else.
fn page(path: &str, get: Route) -> Resource {
    web::resource(path).route(get).default_service(web::route().to(async || refused("GET")))
}

/// A 405 names the methods that are allowed (RFC 9110 §15.5.6).
fn refused(allow: &'static str) -> HttpResponse {
    let mut response = PushError::Http(StatusCode::METHOD_NOT_ALLOWED).error_response();
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allow));
    response
}

fn nothing_here() -> Route {
    web::route().to(async || PushError::NotFound.error_response())
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
