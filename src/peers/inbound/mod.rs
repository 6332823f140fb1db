//! The router port of a connection node: what other nodes ask of it.
//!
//! | request | what it says | answers |
//! |---|---|---|
//! | `PUT /push/{uaid}` with a [letter] | deliver this | 200 accepted, 202 unconfirmed, 404 not here, 410 no such channel, 503 busy |
//! | `PUT /notif/{uaid}` | a message was stored | 200 told, 202 nobody can say, 404 not here |
//! | `DELETE /notif/{uaid}/{connected_at}` | the agent is connected elsewhere since then | 200 told, 202 nobody can say, 404 not here |
//!
//! The node itself asks too, once at its start: `PUT /notif/{instance}` is answered 200 by no other process.
//!
//! Each answer to a signed request is signed. One that this node does not understand is answered 400, so that 404
//! always means that the agent is not here. What does not show that it comes from a node of this cluster gets an
//! answer that is not signed, which says nothing about agents.

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod over_a_socket;
mod rejection_log;
mod request;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

use actix::dev::SendError;
use actix::{Addr, Message as ActixMessage, Recipient};
use actix_web::dev::Server;
use actix_web::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use actix_web::http::{StatusCode, Uri};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use actors::handle::DirectPush;
use actors::registry::{ConnectedElsewhere, MessageStored, NotifyResult};
use actors::{Clock, RegistryActor};
use slog::{Logger, warn};
use socket2::SockRef;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span, Uaid};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::signature::{ANSWER_MAC_HEADER, ClusterKeys, Refused, Request, RequestMac};
use super::wire_message;
use crate::http::request_body_drain;
use crate::settings::Settings;
use rejection_log::RejectionLog;
use request::PeerRequest;

/// How long an idle connection is kept: longer than any node keeps one (`node_connection_idle_s`), so that none sends a
/// request just when it is closed here.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How long a socket is read on after its last answer; why it is no less, see the public port.
const LINGER: Duration = Duration::from_secs(1);

/// How long the last answers may take to go out once the port is to close.
const LAST_ANSWERS_WAIT_S: u64 = 1;

/// How long a registry that is overrun may take to look for an agent.
const NOTICE_WAIT: Duration = Duration::from_millis(250);

/// A connection node as other nodes see it.
pub struct RouterPort {
    node: NodeId,
    keys: ClusterKeys,
    /// Which process answers, where several say that they are this node.
    instance: Uaid,
    registry: Registry,
    clock: Clock,
    limits: PortLimits,
    rejection_log: RejectionLog,
    log: Logger,
}

/// What bounds the router port.
#[derive(Debug, Clone, Copy)]
pub struct PortLimits {
    /// How far the clock of a node that asks may be from this one's.
    pub clock_skew: Span,
    /// How long the answer of a connection is waited for.
    pub answer_wait: Duration,
    /// Bytes of a body.
    pub body_bytes_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long a request's headers may take to arrive.
    pub headers_timeout: Duration,
    /// Connections of other nodes.
    pub connections_max: usize,
    /// How long a peer may take to confirm sent bytes.
    pub user_timeout: Duration,
    /// Threads that answer.
    pub workers: usize,
}

/// The registry, as far as it is asked here.
struct Registry {
    pushes: Recipient<DirectPush>,
    nudges: Recipient<MessageStored>,
    moves: Recipient<ConnectedElsewhere>,
}

/// A request that does not show where it comes from: its answer is not signed.
#[derive(Debug, thiserror::Error)]
enum Unauthenticated {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(
        "the body is larger than the largest message of this node: every node needs the same payload_bytes_max"
    )]
    TooLarge,
    #[error("the body did not come in time")]
    TooSlow,
    #[error("the body ended too early")]
    CutShort,
}

/// A request of another node that this one does not understand.
#[derive(Debug, thiserror::Error)]
enum BadRequest {
    #[error("no node is asked for this: are there nodes of another version?")]
    Unknown,
    #[error(transparent)]
    Message(#[from] wire_message::WireMessageError),
}

impl From<&Settings> for PortLimits {
    fn from(settings: &Settings) -> Self {
        let payload_bytes_max = settings.payload_bytes_max.max(settings.aesgcm_bytes_max());
        Self {
            clock_skew: Span::from_secs(settings.cluster_clock_skew_s),
            answer_wait: Duration::from_millis(settings.ack_wait_ms + settings.answer_grace_ms),
            body_bytes_max: wire_message::bytes_max(payload_bytes_max),
            body_timeout: Duration::from_millis(settings.request_body_timeout_ms),
            headers_timeout: Duration::from_millis(settings.request_headers_timeout_ms),
            connections_max: settings.router_connections_max,
            user_timeout: Duration::from_millis(settings.tcp_user_timeout_ms),
            workers: settings.worker_threads(),
        }
    }
}

impl RouterPort {
    /// The port of `node`, whose user agents are in `registry`.
    pub fn new(
        node: NodeId,
        keys: ClusterKeys,
        registry: &Addr<RegistryActor>,
        clock: Clock,
        limits: PortLimits,
        log: Logger,
    ) -> Self {
        let registry = Registry {
            pushes: registry.clone().recipient(),
            nudges: registry.clone().recipient(),
            moves: registry.clone().recipient(),
        };
        let instance = Uaid(Uuid::new_v4().into_bytes());
        let rejection_log = RejectionLog::default();
        Self { node, keys, instance, registry, clock, limits, rejection_log, log }
    }

    /// An agent that this process says is here, and no other does: by it, it knows its own answer.
    pub fn instance(&self) -> Uaid {
        self.instance
    }

    /// A server that answers on `listener`.
    pub fn serve(self, listener: TcpListener) -> io::Result<Server> {
        let PortLimits { workers, connections_max, headers_timeout, user_timeout, .. } =
            self.limits;
        let port = Data::new(self);
        let server = HttpServer::new(move || App::new().configure(Self::routes(&port)))
            .workers(workers)
            .max_connections(connections_max.div_ceil(workers))
            .client_request_timeout(headers_timeout)
            .keep_alive(KEEP_ALIVE)
            .client_disconnect_timeout(LINGER)
            // Who hangs up no longer waits: its connection is told that the answer is lost.
            .h1_allow_half_closed(false)
            .shutdown_timeout(LAST_ANSWERS_WAIT_S)
            .disable_signals()
            .on_connect(move |io, _| tune(io, user_timeout))
            .listen(listener)?;
        Ok(server.run())
    }

    fn routes(port: &Data<Self>) -> impl FnOnce(&mut ServiceConfig) + use<> {
        let port = port.clone();
        move |service| {
            let all = web::scope("")
                .wrap(from_fn(request_body_drain::hold_until_answered))
                .app_data(port);
            service.service(all.default_service(web::to(answer)));
        }
    }

    /// Does what a node of this cluster asks; a request of anybody else is refused.
    async fn take(
        &self,
        request: &HttpRequest,
        payload: Payload,
    ) -> Result<(RequestMac, StatusCode), Unauthenticated> {
        let headers = request.headers();
        let signature = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let signature = signature.ok_or(Refused::Unsigned)?;
        let body = self.read_body(payload).await?;
        let (method, path) = (request.method().as_str(), path(request.uri()));
        let signed = Request { method, path, node: &self.node, body: &body };
        let (now, skew) = (self.clock.now(), self.limits.clock_skew);
        let mac = self.keys.verify(&signed, signature, now, skew)?;
        let status = self.handle(method, path, &body).await.unwrap_or_else(|bad_request| {
            self.log_rejection(request, &bad_request);
            StatusCode::BAD_REQUEST
        });
        Ok((mac, status))
    }

    async fn read_body(&self, payload: Payload) -> Result<Bytes, Unauthenticated> {
        let body = payload.to_bytes_limited(self.limits.body_bytes_max);
        match timeout(self.limits.body_timeout, body).await {
            Ok(Ok(Ok(body))) => Ok(body),
            Ok(Ok(Err(_))) => Err(Unauthenticated::CutShort),
            Ok(Err(_)) => Err(Unauthenticated::TooLarge),
            Err(_) => Err(Unauthenticated::TooSlow),
        }
    }

    async fn handle(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<StatusCode, BadRequest> {
        match PeerRequest::read(method, path).ok_or(BadRequest::Unknown)? {
            PeerRequest::Deliver(uaid) => {
                let message = wire_message::from_bytes(body)?;
                Ok(status_of_push(self.deliver(uaid, message).await))
            }
            PeerRequest::MessageStored(uaid) if uaid == self.instance => Ok(StatusCode::OK),
            PeerRequest::MessageStored(uaid) => {
                Ok(tell(&self.registry.nudges, MessageStored { uaid }).await)
            }
            PeerRequest::ConnectedElsewhere(uaid, connected_at) => {
                let moved = ConnectedElsewhere { uaid, connected_at };
                Ok(tell(&self.registry.moves, moved).await)
            }
        }
    }

    async fn deliver(&self, uaid: Uaid, message: state_machine::Message) -> NodeAnswer {
        let (reply, answer) = oneshot::channel();
        match self.registry.pushes.try_send(DirectPush { uaid, message, reply }) {
            Ok(()) => {}
            // It was not sent. Its connection is not told to look for it: the endpoint does that once it is stored.
            Err(SendError::Full(_) | SendError::Closed(_)) => return NodeAnswer::Busy,
        }
        // Given up after that time, as by an endpoint of this process: the connection notices.
        match timeout(self.limits.answer_wait, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => NodeAnswer::Unconfirmed,
        }
    }

    /// Tells the operator, and not too often.
    fn log_rejection(&self, request: &HttpRequest, reason: &dyn fmt::Display) {
        if let Some(refused) = self.rejection_log.add(Instant::now()) {
            let peer = request.peer_addr().map(|peer| peer.to_string());
            warn!(self.log, "refused a request of another node";
                "reason" => %reason, "peer" => peer, "refused" => refused);
        }
    }
}

/// Answers a request, whoever it is from.
async fn answer(request: HttpRequest, payload: Payload, port: Data<RouterPort>) -> HttpResponse {
    match port.take(&request, payload).await {
        Ok((mac, status)) => {
            let signature = port.keys.sign_answer(&mac, status.as_u16());
            HttpResponse::build(status).insert_header((ANSWER_MAC_HEADER, signature)).finish()
        }
        Err(refusal) => {
            port.log_rejection(&request, &refusal);
            refusal.answer()
        }
    }
}

impl Unauthenticated {
    /// The last answer on its connection: a place that others need.
    fn answer(&self) -> HttpResponse {
        let mut answer = match self {
            Self::Refused(_) => HttpResponse::Unauthorized(),
            Self::TooLarge => HttpResponse::PayloadTooLarge(),
            Self::TooSlow => HttpResponse::RequestTimeout(),
            Self::CutShort => HttpResponse::BadRequest(),
        };
        if let Self::Refused(_) = self {
            answer.insert_header((WWW_AUTHENTICATE, "Kalends"));
        }
        answer.force_close().finish()
    }
}

/// The path as it was sent, with all that is behind it.
fn path(uri: &Uri) -> &str {
    uri.path_and_query().map_or("", |path| path.as_str())
}

/// What other nodes are told of a push.
fn status_of_push(answer: NodeAnswer) -> StatusCode {
    match answer {
        NodeAnswer::Accepted => StatusCode::OK,
        NodeAnswer::Unconfirmed | NodeAnswer::Unreachable => StatusCode::ACCEPTED,
        NodeAnswer::NotHere => StatusCode::NOT_FOUND,
        NodeAnswer::NoSuchChannel => StatusCode::GONE,
        NodeAnswer::Busy => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Has a connection told something.
async fn tell<M>(registry: &Recipient<M>, notice: M) -> StatusCode
where
    M: ActixMessage<Result = NotifyResult> + Send + 'static,
{
    match timeout(NOTICE_WAIT, registry.send(notice)).await {
        Ok(Ok(NotifyResult::Delivered)) => StatusCode::OK,
        Ok(Ok(NotifyResult::NotConnected)) => StatusCode::NOT_FOUND,
        Ok(Err(_)) | Err(_) => StatusCode::ACCEPTED,
    }
}

fn tune(io: &dyn Any, user_timeout: Duration) {
    if let Some(stream) = io.downcast_ref::<TcpStream>() {
        let socket = SockRef::from(stream);
        // A socket that is gone by now ends by itself.
        let _ = socket.set_tcp_user_timeout(Some(user_timeout));
        let _ = socket.set_tcp_nodelay(true);
    }
}
