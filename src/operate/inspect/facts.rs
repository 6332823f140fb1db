//! The facts of `kalends inspect`. They contain no payload, no key and no token.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use state_machine::{MessageId, Month, Uaid};

use crate::push::push_history::{PushRecord, STORED};
use crate::push::refusals::Refusal;

/// All facts. Times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    pub at_ms: u64,
    pub uaid: Uaid,
    /// The endpoint that was asked for.
    pub endpoint: Option<EndpointFacts>,
    /// The message that was asked for.
    pub message: Option<MessageFacts>,
    /// The access token that the agent first connected with.
    pub access: Option<AccessFacts>,
    /// None for an agent that is unknown here.
    pub record: Option<RecordFacts>,
    /// Its current month, and the month that an unfinished move leaves.
    pub months: Vec<MonthFacts>,
    pub waiting: Waiting,
    pub connection: Connection,
    /// Whether two programs use this uaid, as far as the process that answers has seen.
    pub has_rivals: bool,
    /// The last pushes of the process that answers, the newest first; those of other nodes are not among them. None if
    /// it takes no pushes.
    pub pushes: Option<Vec<PushFacts>>,
    /// The last refusals of the same process, the newest first.
    pub refusals: Vec<Refusal>,
    /// Settings that refuse requests of this agent or pushes to this channel now.
    pub limits_reached: Vec<String>,
    /// Why a push may not arrive, the most important reason first.
    pub findings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointFacts {
    /// Such as `short`, or `v2` for one of autopush.
    pub kind: String,
    pub channel: String,
    /// The first bytes of the SHA-256 of the VAPID key that the endpoint is restricted to, in hex.
    pub restricted_to: Option<String>,
    /// The place of the key in `crypto_keys` that opened the token, from 1.
    pub crypto_key: usize,
    pub crypto_key_fingerprint: String,
    /// The origin of the URL.
    pub origin: Option<String>,
    /// The origin of the server's own endpoints, if it is another one.
    pub other_origin: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageFacts {
    pub id: String,
    pub channel: String,
    pub is_waiting: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessFacts {
    pub name: String,
    /// Whether it was revoked or has expired.
    pub has_ended: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFacts {
    pub router_type: String,
    /// The application at the bridge.
    pub bridge_app: Option<String>,
    pub curmonth: Month,
    pub oldmonth: Option<Month>,
    pub connected_at_ms: u64,
    /// `YYYYMMDDHH` and four digits.
    pub last_connect: u64,
    pub node: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonthFacts {
    pub month: Month,
    pub has_table: bool,
    /// Number of registered channels; none if the agent has no row in the month.
    pub channels: Option<usize>,
    /// Whether the channel that was asked for is one of them.
    pub has_channel: Option<bool>,
}

/// The messages in storage that wait for the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub messages: u64,
    pub bytes: u64,
    /// Messages with a topic.
    pub topics: u64,
    pub by_urgency: BTreeMap<String, u64>,
    /// When the oldest of them was accepted.
    pub oldest_ms: Option<u64>,
    /// Those of the channel that was asked for.
    pub of_channel: Option<u64>,
    /// Whether more wait than were read.
    pub is_partial: bool,
}

/// Whether the agent is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Connection {
    /// To the process that answers.
    Here(SessionFacts),
    /// To the process that answers, whose client does not answer at the moment.
    HereAndBusy,
    /// To another node, which answers.
    OnNode { node: String },
    /// The record names a node to which the agent is not connected.
    Ended { node: String },
    /// The record names a node that does not answer.
    NodeDown { node: String, why: String },
    /// The record names no node.
    None,
    /// The record names this node, and the process that answers is not its server.
    Unknown { node: String },
    /// No server runs on the store.
    Stopped,
    /// Reached over this bridge.
    Bridge { bridge: String },
}

/// A push, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushFacts {
    pub at_ms: u64,
    pub took_ms: u64,
    pub channel: String,
    /// None if the push was refused before it got one.
    pub message: Option<String>,
    pub ttl_s: u64,
    pub urgency: String,
    /// The outcome as metrics name it, or `over_limit`.
    pub outcome: String,
    /// Why the message was stored.
    pub reason: Option<String>,
    /// Whether a message that was stored still waits. None if that is not known.
    pub waits: Option<bool>,
}

impl PushFacts {
    /// With what `waits` knows of a stored message.
    pub fn new(push: &PushRecord, waits: impl Fn(MessageId) -> Option<bool>) -> Self {
        let stored = push.id.filter(|_| push.outcome == STORED);
        Self {
            at_ms: push.at.0,
            took_ms: push.took.0,
            channel: push.chid.to_string(),
            message: push.id.map(|id| id.to_string()),
            ttl_s: push.ttl.0 / 1000,
            urgency: push.urgency.as_str().to_owned(),
            outcome: push.outcome.to_owned(),
            reason: push.reason.map(str::to_owned),
            waits: stored.and_then(waits),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFacts {
    pub phase: String,
    /// Whether pushes are sent in this phase.
    pub is_ready: bool,
    pub unacked: usize,
    /// Those of them that have waited for more than `ack_wait_ms`: they are stored, and stop no further ones.
    pub overdue: usize,
    /// When the oldest of the others was sent.
    pub unacked_since_ms: Option<u64>,
    /// So many unacked messages stop further ones.
    pub unacked_max: usize,
    /// Pushes whose senders wait for the ack.
    pub pushes_waiting: usize,
    /// The next deadline, and what it is for.
    pub deadline_ms: Option<u64>,
    pub deadline_of: Option<String>,
}
