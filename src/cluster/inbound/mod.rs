//! The router port of a connection node. Requests of other nodes enter. Pushes and notifications to the registry, and
//! signed answers, leave.
//!
//! | request | meaning | answers |
//! |---|---|---|
//! | `PUT /push/{uaid}` with a [message](wire_message) | deliver the message | 200 accepted, 202 unconfirmed, 404 not here, 410 no such channel, 503 busy |
//! | `PUT /notif/{uaid}` | a message was stored | 200 notified, 202 unknown, 404 not here |
//! | `DELETE /notif/{uaid}/{connected_at}` | the agent connected to another node | 200 notified, 202 unknown, 404 not here |
//!
//! To `PUT /notif/{uaid}` of an operator, whose uaid no agent has, the node also says [what it is](AboutNode). A
//! notification with a body introduces [its sender](Callers).
//!
//! At its start a node checks its own URL: only its own process answers `PUT /notif/{instance}`
//! 200.
//!
//! Each answer to a signed request is signed. An unknown request is answered 400, so that 404
//! always means that the agent is not here. A request without a valid signature gets an unsigned
//! answer, which reveals nothing about agents. One that another node of the cluster signed at
//! another time is answered 401 with the time of this node, and has no effect.

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod socket_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Message as ActixMessage;
use actix_server::Server;
use actix_web::http::StatusCode;
use actix_web::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use actix_web::middleware::from_fn;
use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use actors::handle::DirectPush;
use actors::mailbox::BoundedRecipient;
use actors::registry::{ConnectedElsewhere, MessageStored, NotifyResult};
use actors::{Clock, Directory, SharedLogLimiter};
use slog::{Logger, warn};
use state_machine::delivery::NodeAnswer;
use state_machine::{ClockDifference, Message, NodeId, Span, Uaid};
use storage::maintenance::PREFLIGHT_UAID;
use tokio::sync::oneshot;
use tokio::time::timeout;
use uuid::Uuid;

use super::about::AboutNode;
use super::callers::{Callers, NAMED_MAX};
use super::request::PeerRequest;
use super::signature::{
    ABOUT_HEADER, ABOUT_MAC_HEADER, ANSWER_MAC_HEADER, ClusterKeys, Refused, Request, RequestMac,
    Signature, TIME_HEADER,
};
use super::wire_message::{self, WireMessageError};
use crate::push::request_body_drain;
use crate::settings::Settings;
use crate::system::http_port;
use crate::system::http_port::{Admitted, HttpPortLimits, Listener};

/// Time to send the last answers after the port is closed.
const LAST_ANSWERS_WAIT: Duration = Duration::from_secs(1);

/// Timeout for the registry to look up an agent.
const REGISTRY_WAIT: Duration = Duration::from_millis(250);

/// Minimum time between two log lines about rejected requests.
const LOG_EVERY: Span = Span::from_secs(1);

/// The router port, before it listens.
pub struct RouterPort {
    node: NodeId,
    keys: Arc<ClusterKeys>,
    /// Distinguishes this process from another with the same node name.
    instance: Uaid,
    registry: Registry,
    about: Box<dyn Fn() -> AboutNode + Send + Sync>,
    on_other_day: OnOtherDay,
    callers: Arc<Callers>,
    clock: Clock,
    limits: PortLimits,
    rejection_limiter: SharedLogLimiter,
    log: Logger,
}

/// Learns the address of a caller whose time is refused without a look at its signature, and how far its clock is ahead.
pub type OnOtherDay = Box<dyn Fn(IpAddr, ClockDifference) + Send + Sync>;

/// The limits of the router port.
#[derive(Debug, Clone, Copy)]
pub struct PortLimits {
    /// Maximum difference between the clocks of two nodes.
    pub clock_skew: Span,
    /// Maximum time for a connection to answer a push.
    pub answer_wait: Duration,
    pub body_bytes_max: usize,
    /// Maximum time for a body to arrive.
    pub body_timeout: Duration,
    pub port: HttpPortLimits,
}

struct Registry {
    /// Sends a push to the connection of its agent.
    deliver: Box<dyn Fn(DirectPush) + Send + Sync>,
    stored: BoundedRecipient<MessageStored>,
    moves: BoundedRecipient<ConnectedElsewhere>,
}

/// A request of this cluster, and the status of its answer.
struct Processed {
    mac: RequestMac,
    status: StatusCode,
    is_of_operator: bool,
}

/// Why a request is not authenticated. Its answer is not signed, unless only its time is wrong.
#[derive(Debug, thiserror::Error)]
enum Unauthenticated {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(
        "the body is larger than the largest message of this node: every node needs the same payload_bytes_max"
    )]
    TooLarge,
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("the body ended too early")]
    CutShort,
}

/// Why an authenticated request is rejected.
#[derive(Debug, thiserror::Error)]
enum BadRequest {
    #[error("the request is unknown: do the nodes run different versions?")]
    Unknown,
    #[error(transparent)]
    Message(#[from] WireMessageError),
}

impl From<&Settings> for PortLimits {
    fn from(settings: &Settings) -> Self {
        let payload_bytes_max = settings.payload_bytes_max.max(settings.aesgcm_bytes_max());
        Self {
            clock_skew: Span::from_secs(settings.cluster_clock_skew_s),
            answer_wait: Duration::from_millis(settings.ack_wait_ms + settings.answer_grace_ms),
            body_bytes_max: wire_message::bytes_max(payload_bytes_max),
            body_timeout: Duration::from_millis(settings.request_body_timeout_ms),
            port: HttpPortLimits {
                workers: settings.worker_threads(),
                worker_connections_max: settings
                    .router_connections_max
                    .div_ceil(settings.worker_threads()),
                headers_timeout: Duration::from_millis(settings.request_headers_timeout_ms),
                shutdown_timeout: LAST_ANSWERS_WAIT,
                // A node that closes its connection has given up its request.
                allows_half_closed: false,
                unread_max: None,
            },
        }
    }
}

impl RouterPort {
    /// The port of `node`, which hands out `directory`. It adds the callers to what `about` says.
    pub fn new(
        node: NodeId,
        keys: Arc<ClusterKeys>,
        directory: &Directory,
        about: Box<dyn Fn() -> AboutNode + Send + Sync>,
        clock: Clock,
        limits: PortLimits,
        log: Logger,
    ) -> Self {
        let (registry, directory) = (directory.registry(), directory.clone());
        let registry = Registry {
            deliver: Box::new(move |push| directory.deliver_here(push)),
            stored: registry.recipient(),
            moves: registry.recipient(),
        };
        Self {
            node,
            keys,
            instance: Uaid(Uuid::new_v4().into_bytes()),
            registry,
            about,
            on_other_day: Box::new(|_, _| ()),
            callers: Arc::default(),
            clock,
            limits,
            rejection_limiter: SharedLogLimiter::new(LOG_EVERY),
            log,
        }
    }

    pub fn on_other_day(self, on_other_day: OnOtherDay) -> Self {
        Self { on_other_day, ..self }
    }

    pub fn with_callers(self, callers: Arc<Callers>) -> Self {
        Self { callers, ..self }
    }

    /// An agent id for which only this process answers that it is here.
    pub fn instance(&self) -> Uaid {
        self.instance
    }

    /// Starts a server on `listener`. Each connection holds what `open` returns.
    pub fn serve<G: 'static>(
        self,
        listener: impl Into<Listener>,
        open: impl Fn() -> G + Send + Clone + 'static,
    ) -> io::Result<Server> {
        let limits = self.limits.port;
        let port = Data::new(self);
        let open = move |_| Ok(Admitted::new(open()));
        http_port::serve(listener, limits, None, open, move || Self::routes(&port))
    }

    fn routes(port: &Data<Self>) -> impl FnOnce(&mut ServiceConfig) + Clone + use<> {
        let port = port.clone();
        move |service| {
            let all = web::scope("")
                .wrap(from_fn(request_body_drain::hold_until_answered))
                .app_data(port);
            service.service(all.default_service(web::to(answer)));
        }
    }

    /// Authenticates a request, and processes it.
    async fn process(
        &self,
        request: &HttpRequest,
        payload: Payload,
    ) -> Result<Processed, Unauthenticated> {
        let signature = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (now, skew) = (self.clock.now(), self.limits.clock_skew);
        let signature = Signature::read(signature.ok_or(Refused::Unsigned)?, now, skew)?;
        let body = payload.to_bytes_limited(self.limits.body_bytes_max);
        let body = match timeout(self.limits.body_timeout, body).await {
            Ok(Ok(Ok(body))) => body,
            Ok(Ok(Err(_))) => return Err(Unauthenticated::CutShort),
            Ok(Err(_)) => return Err(Unauthenticated::TooLarge),
            Err(_) => return Err(Unauthenticated::TooSlow),
        };
        let method = request.method().as_str();
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        let signed = Request { method, path, node: &self.node, body: &body };
        let mac = self.keys.verify(&signed, &signature)?;
        let asked = PeerRequest::parse(method, path);
        let status = self.handle(asked, &body).await.unwrap_or_else(|bad_request| {
            self.log_rejection(request, &bad_request);
            StatusCode::BAD_REQUEST
        });
        let is_of_operator = asked == Some(PeerRequest::MessageStored(PREFLIGHT_UAID));
        Ok(Processed { mac, status, is_of_operator })
    }

    async fn handle(
        &self,
        asked: Option<PeerRequest>,
        body: &Bytes,
    ) -> Result<StatusCode, BadRequest> {
        Ok(match asked.ok_or(BadRequest::Unknown)? {
            PeerRequest::DeliverPush(uaid) => {
                match self.deliver(uaid, wire_message::from_bytes(body)?).await {
                    NodeAnswer::Accepted => StatusCode::OK,
                    NodeAnswer::Unconfirmed | NodeAnswer::Unreachable => StatusCode::ACCEPTED,
                    NodeAnswer::NotHere => StatusCode::NOT_FOUND,
                    NodeAnswer::NoSuchChannel => StatusCode::GONE,
                    NodeAnswer::Busy => StatusCode::SERVICE_UNAVAILABLE,
                }
            }
            PeerRequest::MessageStored(uaid) if uaid == self.instance => StatusCode::OK,
            PeerRequest::MessageStored(uaid) => {
                if !body.is_empty() {
                    self.callers.note(body, self.clock.now());
                }
                notify(&self.registry.stored, MessageStored { uaid }).await
            }
            PeerRequest::ConnectedElsewhere(uaid, connected_at) => {
                notify(&self.registry.moves, ConnectedElsewhere { uaid, connected_at }).await
            }
        })
    }

    async fn deliver(&self, uaid: Uaid, message: Message) -> NodeAnswer {
        let (reply, answer) = oneshot::channel();
        (self.registry.deliver)(DirectPush { uaid, message, reply });
        // After the timeout the connection notices that the receiver is dropped.
        match timeout(self.limits.answer_wait, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => NodeAnswer::Unconfirmed,
        }
    }

    fn log_rejection(&self, request: &HttpRequest, reason: &dyn fmt::Display) {
        if let Some(rejected) = self.rejection_limiter.count(self.clock.now()) {
            let peer = request.peer_addr().map(|peer| peer.to_string());
            warn!(self.log, "rejected a request of another node";
                "reason" => %reason, "peer" => peer, "rejected" => rejected);
        }
    }
}

async fn answer(request: HttpRequest, payload: Payload, port: Data<RouterPort>) -> HttpResponse {
    let refusal = match port.process(&request, payload).await {
        Ok(Processed { mac, status, is_of_operator }) => {
            let signature = port.keys.sign_answer(&mac, status.as_u16());
            let mut answer = HttpResponse::build(status);
            answer.insert_header((ANSWER_MAC_HEADER, signature));
            if is_of_operator {
                let (callers, callers_left_out) = port.callers.some(port.clock.now(), NAMED_MAX);
                let about = AboutNode { callers, callers_left_out, ..(port.about)() }.to_text();
                let signature = port.keys.sign_about(&mac, status.as_u16(), &about);
                answer.insert_header((ABOUT_HEADER, about));
                answer.insert_header((ABOUT_MAC_HEADER, signature));
            }
            return answer.finish();
        }
        Err(refusal) => refusal,
    };
    port.log_rejection(&request, &refusal);
    if let (Unauthenticated::Refused(Refused::OtherDay(ahead)), Some(peer)) =
        (&refusal, request.peer_addr())
    {
        (port.on_other_day)(peer.ip(), *ahead);
    }
    let mut answer = match refusal {
        Unauthenticated::Refused(_) => HttpResponse::Unauthorized(),
        Unauthenticated::TooLarge => HttpResponse::PayloadTooLarge(),
        Unauthenticated::TooSlow => HttpResponse::RequestTimeout(),
        Unauthenticated::CutShort => HttpResponse::BadRequest(),
    };
    if let Unauthenticated::Refused(_) = refusal {
        answer.insert_header((WWW_AUTHENTICATE, "Kalends"));
    }
    if let Unauthenticated::Refused(Refused::OtherTime { request, .. }) = refusal {
        let (time, signature) = port.keys.sign_time(&request, port.clock.now());
        answer.insert_header((TIME_HEADER, time));
        // The node calls again on this connection.
        return answer.insert_header((ANSWER_MAC_HEADER, signature)).finish();
    }
    // The connection is closed, because other nodes need its place.
    answer.force_close().finish()
}

/// Notifies the connection of an agent through the registry, and returns the status of the result.
async fn notify<M>(registry: &BoundedRecipient<M>, notification: M) -> StatusCode
where
    M: ActixMessage<Result = NotifyResult> + Send + 'static,
{
    match timeout(REGISTRY_WAIT, registry.send(notification)).await {
        Ok(Ok(NotifyResult::Delivered)) => StatusCode::OK,
        Ok(Ok(NotifyResult::NotConnected)) => StatusCode::NOT_FOUND,
        Ok(Err(_)) | Err(_) => StatusCode::ACCEPTED,
    }
}
