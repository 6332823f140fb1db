//! A router port for the tests of this folder, with a registry that follows a script.

use std::future::pending;
use std::sync::{Arc, Mutex};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, WrapFuture};
use actix_web::http::Method;
use actix_web::test::{TestRequest, call_service, init_service};
use actors::mailbox::{BoundedActor, Mailbox, Queued};
use slog::{Discard, o};
use state_machine::Time;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::cluster::about::Introduction;
pub(super) use crate::cluster::fixture::{KEY, Log, NOW, OTHER_KEY, cluster_keys, message};

pub(super) const AGENT: Uaid = Uaid([0xab; 16]);
pub(super) const INSTANCE: Uaid = Uaid([0xef; 16]);
pub(super) const NODE: &str = "http://127.0.0.1:8081";
pub(super) const BODY_BYTES_MAX: usize = 4000;

/// A port, and what its registry receives.
pub(super) struct Scene {
    pub(super) port: Data<RouterPort>,
    pub(super) pushes: UnboundedReceiver<DirectPush>,
    pub(super) notices: Notices,
}

/// Notifications of the registry: the agent, and the time of a connection elsewhere.
type Notices = Arc<Mutex<Vec<(Uaid, Option<Time>)>>>;

/// The status of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// With a valid signature.
    Signed(u16),
    Unsigned(u16),
    /// 401 with the signed time of the node.
    OtherTime(Time),
}

/// A request to sign and send.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
    /// The node, keys and time of the signature.
    pub(super) node: &'static str,
    pub(super) keys: Arc<ClusterKeys>,
    pub(super) at: Time,
}

/// A registry with fixed answers.
struct Script {
    notices: Notices,
    heard: NotifyResult,
    state: State,
}

enum State {
    Running,
    /// Never handles a message, so that its mailbox fills up.
    Overloaded,
    Stopped,
}

impl Scene {
    /// With a registry that answers notifications with `heard`.
    pub(super) fn of(heard: NotifyResult) -> Self {
        Self::before(heard, State::Running, Logger::root(Discard, o!()))
    }

    /// With a registry that handles no message and has a full mailbox.
    pub(super) fn overrun() -> Self {
        let scene =
            Self::before(NotifyResult::Delivered, State::Overloaded, Logger::root(Discard, o!()));
        let Registry { stored, moves, .. } = &scene.port.registry;
        // Each sender has room for one, however full the mailbox is.
        fill(|| stored.try_send(MessageStored { uaid: AGENT }).is_ok());
        fill(|| moves.try_send(ConnectedElsewhere { uaid: AGENT, connected_at: NOW }).is_ok());
        scene
    }

    /// With a registry that has stopped.
    pub(super) fn gone() -> Self {
        Self::before(NotifyResult::Delivered, State::Stopped, Logger::root(Discard, o!()))
    }

    pub(super) fn logging(log: Logger) -> Self {
        Self::before(NotifyResult::Delivered, State::Running, log)
    }

    fn before(heard: NotifyResult, state: State, log: Logger) -> Self {
        let (sender, pushes) = unbounded_channel();
        let notices = Notices::default();
        let script = Script { notices: notices.clone(), heard, state };
        let script = actors::BoundedAddr::start(script);
        let registry = Registry {
            deliver: Box::new(move |push| sender.send(push).unwrap()),
            stored: script.recipient(),
            moves: script.recipient(),
        };
        Self { port: Data::new(port(registry, log)), pushes, notices }
    }

    pub(super) async fn ask(&self, asked: Asked) -> Told {
        ask(&self.port, asked).await
    }

    /// Number of pushes that the connections received.
    pub(super) fn pushed(&mut self) -> usize {
        std::iter::from_fn(|| self.pushes.try_recv().ok()).count()
    }
}

impl Asked {
    pub(super) fn new(method: Method, path: &str, body: Vec<u8>) -> Self {
        Self { method, path: path.to_owned(), body, node: NODE, keys: cluster_keys(KEY), at: NOW }
    }

    pub(super) fn push(message: &Message) -> Self {
        Self::new(Method::PUT, &format!("/push/{AGENT}"), wire_message::to_bytes(message))
    }

    pub(super) fn stored() -> Self {
        Self::new(Method::PUT, &format!("/notif/{AGENT}"), Vec::new())
    }

    /// An endpoint node of this name introduces itself.
    pub(super) fn introduction(name: &str) -> Self {
        let (name, role) = (name.to_owned(), "endpoint".to_owned());
        let introduction = Introduction { name, role, version: "1.2.3".to_owned(), time_ms: NOW.0 };
        Self { body: introduction.to_text().into_bytes(), ..Self::stored() }
    }

    pub(super) fn moved(since: u64) -> Self {
        Self::new(Method::DELETE, &format!("/notif/{AGENT}/{since}"), Vec::new())
    }

    /// The `authorization` header, and the signature.
    pub(super) fn sign(&self) -> (String, RequestMac) {
        let (method, node) = (self.method.as_str(), &NodeId::new(self.node));
        let signed = Request { method, path: &self.path, node, body: &self.body };
        self.keys.sign(&signed, self.at)
    }
}

/// Signs and sends a request.
pub(super) async fn ask(port: &Data<RouterPort>, asked: Asked) -> Told {
    let (signature, mac) = asked.sign();
    let request = TestRequest::with_uri(&asked.path).method(asked.method.clone());
    let request = request.insert_header((AUTHORIZATION, signature));
    send(port, request.set_payload(asked.body.clone()), Some((&asked.keys, mac))).await
}

/// Sends a request, and verifies the signature of its answer if it has one.
pub(super) async fn send(
    port: &Data<RouterPort>,
    request: TestRequest,
    signed: Option<(&ClusterKeys, RequestMac)>,
) -> Told {
    let service = init_service(actix_web::App::new().configure(RouterPort::routes(port))).await;
    let answer = call_service(&service, request.to_request()).await;
    let status = answer.status().as_u16();
    let Some(signature) = answer.headers().get(ANSWER_MAC_HEADER) else {
        return Told::Unsigned(status);
    };
    let (keys, mac) = signed.expect("an unsigned request has an unsigned answer");
    if let Some(time) = answer.headers().get(TIME_HEADER) {
        let (time, signature) = (time.to_str().unwrap(), signature.to_str().unwrap());
        assert_eq!(status, 401);
        return Told::OtherTime(keys.verify_time(&mac, time, signature).unwrap());
    }
    assert!(keys.verify_answer(&mac, status, signature.to_str().unwrap()));
    Told::Signed(status)
}

pub(super) fn port(registry: Registry, log: Logger) -> RouterPort {
    RouterPort {
        node: NodeId::new(NODE),
        keys: cluster_keys(KEY),
        instance: INSTANCE,
        registry,
        about: Box::new(about),
        on_other_day: Box::new(|_, _| ()),
        callers: Arc::default(),
        clock: Clock::starting_at(NOW),
        limits: limits(),
        rejection_limiter: SharedLogLimiter::new(LOG_EVERY),
        log,
    }
}

pub(super) fn about() -> AboutNode {
    AboutNode { version: "1.2.3".to_owned(), agents: 7, ..AboutNode::default() }
}

pub(super) fn limits() -> PortLimits {
    PortLimits {
        clock_skew: Span::from_secs(60),
        answer_wait: Duration::from_millis(1500),
        body_bytes_max: BODY_BYTES_MAX,
        body_timeout: Duration::from_secs(10),
        port: HttpPortLimits {
            workers: 1,
            worker_connections_max: 100,
            headers_timeout: Duration::from_secs(5),
            shutdown_timeout: Duration::from_secs(1),
            allows_half_closed: false,
            unread_max: None,
        },
    }
}

fn fill(send: impl Fn() -> bool) {
    let refused = (0..100).find(|_| !send());
    refused.expect("a mailbox is bounded");
}

impl Actor for Script {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        match self.state {
            State::Running => {}
            State::Stopped => ctx.stop(),
            State::Overloaded => ctx.wait(pending().into_actor(self)),
        }
    }
}

impl BoundedActor for Script {
    fn mailbox(&self) -> Mailbox {
        Mailbox::new(16)
    }
}

impl Handler<Queued<MessageStored>> for Script {
    type Result = NotifyResult;

    fn handle(&mut self, stored: Queued<MessageStored>, _: &mut Self::Context) -> NotifyResult {
        self.notices.lock().unwrap().push((stored.take().uaid, None));
        self.heard
    }
}

impl Handler<Queued<ConnectedElsewhere>> for Script {
    type Result = NotifyResult;

    fn handle(&mut self, moved: Queued<ConnectedElsewhere>, _: &mut Self::Context) -> NotifyResult {
        let ConnectedElsewhere { uaid, connected_at } = moved.take();
        self.notices.lock().unwrap().push((uaid, Some(connected_at)));
        self.heard
    }
}
