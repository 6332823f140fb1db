//! A delivery script describes one push to one agent, for engineers who read or write a test: what the endpoint orders,
//! and what the store, the agent's node and the bridge answer.
//!
//! ```text
//! # A push without an ack in time is stored, and the node is notified after the second look at the record.
//! at 2026-11-03T10:00:00Z
//!
//! push> U1 M1 C1 ttl=60s
//! store< record U1
//! store> record node=there at=-5m curmonth=2026_11
//! node< deliver there M1 C1
//! node> unconfirmed
//! store< store U1 2026_11 M1 C1
//! store> stored
//! store< record U1
//! store> record node=there at=-5m curmonth=2026_11
//! node< message_stored there U1
//! push< stored
//! ```
//!
//! The title, the head and the lines have the form of a session script. There is one order at a time, so answers have no
//! number.
//!
//! | head line | default | meaning |
//! |---|---|---|
//! | `at 2026-11-03T10:00:00Z` | required | when the push arrived, by the endpoint's clock |
//! | `frozen 2026_10` | none | the month that stays in use without rotation |
//!
//! | input | meaning |
//! |---|---|
//! | `push> U1 M1 C1 ttl=60s` | the first input: a push to an agent, with the fields of one in a session |
//! | `store> record node=there at=-5m curmonth=2026_11` | the record; without `node=` the agent is not connected |
//! | `store> record at=-5m curmonth=2026_11 bridge=fcm app=shop token=t1` | the record of an agent behind a bridge |
//! | `store> record none` | the agent has no record |
//! | `store> other_protocol` | the record is one of SimplePush and the message is not, or the reverse |
//! | `store> channels [C1, C2]`, `store> channels none` | the channels, or no table of channels |
//! | `store> stored`, `no_such_channel`, `no_such_month` | the message is durable, or why it is not |
//! | `store> outranked M2t` | a message of the topic with this greater id waits |
//! | `store> full user`, `store> full channel` | as many messages wait as may |
//! | `store> node_cleared`, `deleted` | the operation was executed |
//! | `store> dropped yes`, `dropped no` | whether the record still had that recipient |
//! | `store> failed` | the operation failed, or its outcome is unknown |
//! | `node> accepted` | the answer of the agent's node; also `unconfirmed`, `busy`, `not_here`, `no_such_channel` |
//! | `node> unreachable` | the node did not answer |
//! | `bridge> accepted` | the answer of the bridge; also `recipient_gone`, `unknown_app`, `misconfigured`, |
//! | | `unauthorized`, `unavailable`, `timed_out`, `too_large max=4096`, `busy`, `busy retry=30s` |
//!
//! A record may also have `oldmonth=`, and a recipient of APNs `aps=`.
//!
//! | effect | meaning |
//! |---|---|
//! | `store< record U1` | read the record |
//! | `node< deliver there M1 C1` | send the push to the agent's node |
//! | `store< clear_node U1 there at=-5m` | remove the node from the record |
//! | `store< channels U1 2026_11` | read whether the channel is registered |
//! | `store< store U1 2026_11 M1 C1` | store the message |
//! | `store< delete U1 2026_10 [M1 C1]` | delete it from the month that the agent has left |
//! | `node< message_stored there U1` | notify the node; there is no answer |
//! | `store< move_agent U1` | move an agent behind a bridge to this month; the answer is its record |
//! | `bridge< send fcm app=shop token=t1 M1 C1` | send the message to the bridge |
//! | `store< drop U1 fcm app=shop token=t1` | drop the record, if it has this recipient |
//! | `push< stored` | the answer to the sender, and the end: also `delivered`, `dropped` (its TTL is 0), |
//! | | `outranked M2t` (it is repeated), `no_such_user`, `user_went_away`, `other_protocol`, `no_such_channel`, |
//! | | `full user`, `full channel`, `unavailable`, and what a bridge answered, such as `bridge recipient_gone` |

mod parse;
mod world;
mod write;

use std::collections::BTreeSet;

use state_machine::delivery::{DeliveryEvent, Route};
use state_machine::{Chid, Message, Month, Time, Uaid};

use crate::script::Step;

/// A parsed delivery script, ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryScript {
    /// The sentence of the first line.
    pub title: String,
    /// When the push arrived, by the endpoint's clock.
    pub start: Time,
    /// The month that stays in use without rotation.
    pub frozen_month: Option<Month>,
    /// The push and the answers, each with its expected effects.
    pub steps: Vec<Step<Input>>,
}

/// An input of a delivery script: one line with `>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The push of an application server to an agent.
    Push(Uaid, Box<Message>),
    /// The record, which answers two orders: to read it, and to move the agent.
    Record(Option<Route>),
    /// The registered channels; none if there is no table of them.
    Channels(Option<BTreeSet<Chid>>),
    /// The store did nothing, or the outcome is unknown.
    Failed,
    /// The answer to one kind of order.
    Event(DeliveryEvent),
}
