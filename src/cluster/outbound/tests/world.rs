//! A directory of other nodes, and its log.

use std::fmt::{Arguments, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actors::{Clock, NodeDirectory};
use bytes::Bytes;
use slog::{Drain, KV, Key, Logger, Never, OwnedKVList, Record, Serializer, o};
use state_machine::breaker::BreakerLimits;
use state_machine::delivery::NodeAnswer;
use state_machine::{
    Chid, ClockDifference, Encoding, Message, MessageId, NodeId, Payload, Span, Time, Uaid, Urgency,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::node::{Act, Node};
use crate::cluster::outbound::{RemoteLimits, RemoteNodes};
use crate::cluster::signature::ClusterKeys;
use crate::settings::keys::Keys;
use crate::system::node_address::AllowedNodes;

pub(super) const AGENT: Uaid = Uaid([0xa1; 16]);
pub(super) const OTHER_AGENT: Uaid = Uaid([0xb2; 16]);
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";

pub(super) struct World {
    pub(super) nodes: RemoteNodes,
    pub(super) keys: Arc<ClusterKeys>,
    pub(super) clock: Clock,
    lines: UnboundedReceiver<Line>,
}

/// Longer than any test runs.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// Short enough for a test to wait.
pub(super) const SHORT: Duration = Duration::from_millis(50);

/// The backoff is longer than any test runs.
pub(super) fn limits() -> RemoteLimits {
    RemoteLimits {
        requests_max: 1000,
        connect_timeout: LONG,
        push_wait: LONG,
        hang_after: Span::from_secs(3600),
        notification_wait: LONG,
        breaker: BreakerLimits {
            backoff: Span::from_secs(3600),
            backoff_max: Span::from_secs(3600),
        },
        pending_notifications_max: 1000,
        connections_idle_max: 100,
        connection_idle: LONG,
        nodes_max: 10,
        evict_after: Span::from_secs(3600),
        log_every: Span::from_secs(3600),
        clock_skew: Span::from_secs(60),
        threads: 4,
    }
}

/// The backoff is some milliseconds.
pub(super) fn soon() -> RemoteLimits {
    RemoteLimits { breaker: BreakerLimits { backoff: Span(5), backoff_max: Span(10) }, ..limits() }
}

impl World {
    pub(super) fn new(limits: RemoteLimits) -> Self {
        Self::allowing(AllowedNodes::loopback(), limits)
    }

    pub(super) fn allowing(allowed: AllowedNodes, limits: RemoteLimits) -> Self {
        let (keys, clock) = (cluster_keys(KEY), Clock::starting_at(Time(1_796_000_000_000)));
        let (sender, lines) = unbounded_channel();
        let log = Logger::root(Lines(Mutex::new(sender)), o!());
        let nodes = RemoteNodes::new(Arc::clone(&keys), allowed, limits, clock.clone(), log);
        Self { nodes, keys, clock, lines }
    }

    /// A node with signed answers of this status.
    pub(super) async fn node(&self, status: u16) -> Node {
        self.node_that(self.answers(status)).await
    }

    pub(super) async fn node_that(&self, act: Act) -> Node {
        Node::start(&self.keys, &self.clock, act).await
    }

    /// A node with signed answers of this status, whose clock is this far ahead.
    pub(super) async fn node_ahead(&self, seconds: i64, status: u16) -> Node {
        let clock = Clock::starting_at(self.ahead(seconds));
        Node::start(&self.keys, &clock, self.answers(status)).await
    }

    /// The time of a clock that is this far ahead now.
    pub(super) fn ahead(&self, seconds: i64) -> Time {
        self.clock.now() + ClockDifference(seconds * 1000)
    }

    pub(super) fn answers(&self, status: u16) -> Act {
        Act::sign(&self.keys, status)
    }

    pub(super) fn push(&self, node: &NodeId) -> oneshot::Receiver<NodeAnswer> {
        self.nodes.deliver(node, AGENT, message())
    }

    pub(super) async fn pushed(&self, node: &NodeId) -> NodeAnswer {
        let answer = timeout(LONG, self.push(node)).await;
        answer.expect("every push ends").unwrap()
    }

    /// The answer of a push that must be answered without a request.
    pub(super) fn refused(&self, node: &NodeId) -> NodeAnswer {
        self.push(node).try_recv().expect("the push is answered at once")
    }

    /// Whether the breaker of a node is open.
    pub(super) fn is_open(&self, node: &NodeId) -> bool {
        self.push(node).try_recv() == Ok(NodeAnswer::Unreachable)
    }

    /// Waits for a line of the log, and returns its fields.
    pub(super) async fn says(&mut self, text: &str) -> String {
        let said = async {
            loop {
                let line = self.lines.recv().await.expect("the log is open");
                if line.text.contains(text) {
                    return line.fields;
                }
            }
        };
        timeout(LONG, said).await.unwrap_or_else(|_| panic!("the log has no line with: {text}"))
    }

    /// The fields of the next line, if one was logged.
    pub(super) fn fields(&mut self) -> Option<String> {
        self.lines.try_recv().ok().map(|line| line.fields)
    }

    /// The lines above debug level since the last call.
    pub(super) fn said(&mut self) -> Vec<String> {
        let lines = std::iter::from_fn(|| self.lines.try_recv().ok()).map(|line| line.text);
        lines.filter(|line| !line.starts_with("DEBG")).collect()
    }

    /// Waits until no worker runs and no push is in progress.
    pub(super) async fn rests(&self) {
        let rests = async {
            while Arc::strong_count(&self.nodes.shared) > 1 {
                yield_now().await;
            }
        };
        timeout(LONG, rests).await.expect("every worker and push ends");
    }
}

/// The keys of another cluster.
pub(super) fn other_keys() -> Arc<ClusterKeys> {
    cluster_keys(OTHER_KEY)
}

fn cluster_keys(text: &str) -> Arc<ClusterKeys> {
    let keys = Keys::from_texts(&[KEY]).unwrap().with_cluster_texts(&[text]).unwrap();
    Arc::new(ClusterKeys::derive(&keys).unwrap())
}

pub(super) fn message() -> Message {
    Message {
        id: MessageId::from_uuid_v7(0x0190_0000_0000_7000_8000_0000_0000_0002, false),
        chid: Chid([7; 16]),
        topic: None,
        urgency: Urgency::Normal,
        accepted_at: Time(1_796_000_000_000),
        ttl: Span::from_secs(60),
        offers: 0,
        receipt: None,
        payload: Some(Payload {
            data: Bytes::from_static(b"secret"),
            encoding: Encoding::Aes128Gcm,
        }),
    }
}

struct Lines(Mutex<UnboundedSender<Line>>);

struct Line {
    /// Level and text of the message.
    text: String,
    /// ` name=value` of each field.
    fields: String,
}

impl Serializer for Line {
    fn emit_arguments(&mut self, key: Key, value: &Arguments<'_>) -> slog::Result {
        Ok(write!(self.fields, " {key}={value}")?)
    }
}

impl Drain for Lines {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let text = format!("{} {}", record.level().as_short_str(), record.msg());
        let mut line = Line { text, fields: String::new() };
        record.kv().serialize(record, &mut line).expect("writing to a string does not fail");
        // A test that has ended has dropped the receiver.
        let _ = self.0.lock().unwrap().send(line);
        Ok(())
    }
}
