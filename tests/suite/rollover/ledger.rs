//! Tracks every message: which must arrive, which arrived, and which must not be redelivered.
//!
//! A message is **promised** if it was answered 201. It must be delivered at least once, or a newer
//! message of its topic instead.
//!
//! An ack is **settled** if the message must never be delivered again. Its delete is durable, or
//! the endpoint has the answer for a direct message, and no endpoint is about to store it. No
//! server reports this, so an ack counts as settled only if two conditions hold:
//!
//! 1. *The delete is durable.* After the ack, two writes of the same connection were answered one
//!    after the other: a channel was registered and unregistered. A ping proves only that the ack
//!    was read. One write is not enough either. A connection has at most one delete in progress,
//!    and an ack that arrives meanwhile waits for it. So the first write may overtake the delete of
//!    this ack. One agent's writes are executed in order, so the second write follows the delete.
//! 2. *No endpoint is about to store the message.* Either the push ended before the ack: it was
//!    answered, or its server was killed. Or it was posted when this connection was known to be in
//!    December, and answered before `ack_wait` ended. Then it was acked directly, or sent from the
//!    table in which it was stored. An endpoint stores an acked message only if its `ack_wait`
//!    ended, or if the month moved.
//!
//! An ack without this proof may be lost with the server, and its message may be delivered again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::harness::Answer;

/// The default of the server's `ack_wait_ms`.
const ACK_WAIT: Duration = Duration::from_millis(1000);

/// All messages; a message's number is its index, and its body contains it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    messages: Vec<Message>,
    tally: Tally,
}

/// The destination of a message. A message with a topic replaces one with the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) agent: usize,
    pub(super) channel: usize,
    pub(super) topic: Option<&'static str>,
}

#[derive(Debug)]
struct Message {
    slot: Slot,
    posted_at: Instant,
    /// The time since which no endpoint processes the push, as far as the test can observe.
    over_at: Option<Instant>,
    is_promised: bool,
    version: Option<String>,
    ack: Option<Ack>,
}

#[derive(Debug)]
struct Ack {
    said_at: Instant,
    /// The time since which the connection of the ack was known to be in December.
    ready_since: Option<Instant>,
    is_durable: bool,
}

/// The figures of the report.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    refused: usize,
    delivered: usize,
    again_before_ack: usize,
    again_before_settled: usize,
}

impl Ledger {
    /// Records that a message is posted, and returns its number.
    pub(super) fn post(&mut self, slot: Slot) -> usize {
        self.messages.push(Message {
            slot,
            posted_at: Instant::now(),
            over_at: None,
            is_promised: false,
            version: None,
            ack: None,
        });
        self.messages.len() - 1
    }

    pub(super) fn topic(&self, number: usize) -> Option<&'static str> {
        self.messages[number].slot.topic
    }

    /// The push was answered. The endpoint may be overloaded, but never answers that a subscription
    /// is gone.
    pub(super) fn answered(&mut self, number: usize, answer: &Answer) {
        self.messages[number].over_at = Some(Instant::now());
        if answer.status == 201 {
            self.messages[number].is_promised = true;
            return;
        }
        answer.assert_error(503, 201);
        assert!(answer.header("retry-after").is_some(), "{answer}");
        self.tally.refused += 1;
    }

    /// The server was killed, and with it every endpoint that had not answered.
    pub(super) fn server_died(&mut self) {
        let now = Instant::now();
        for message in &mut self.messages {
            message.over_at.get_or_insert(now);
        }
    }

    /// A user agent received a message.
    pub(super) fn delivered(&mut self, agent: usize, number: usize, version: &str) {
        let message = &mut self.messages[number];
        assert_eq!(message.slot.agent, agent, "{number} reached another agent");
        assert!(!message.is_settled(), "{number} came after its ack was settled: {message:?}");
        match (&message.version, message.ack.take()) {
            (None, _) => self.tally.delivered += 1,
            (Some(known), ack) => {
                assert_eq!(known, version, "{number} came again with another version");
                self.tally.again_before_ack += usize::from(ack.is_none());
                self.tally.again_before_settled += usize::from(ack.is_some());
            }
        }
        message.version = Some(version.to_owned());
    }

    /// The user agent acked a message, on a connection that is known to be in December since
    /// `ready_since`.
    pub(super) fn acked(&mut self, number: usize, ready_since: Option<Instant>) {
        let said_at = Instant::now();
        self.messages[number].ack = Some(Ack { said_at, ready_since, is_durable: false });
    }

    /// The deletes of these messages are durable, if the messages were not delivered again since
    /// the ack.
    pub(super) fn acks_are_durable(&mut self, numbers: &[usize]) {
        for number in numbers {
            if let Some(ack) = &mut self.messages[*number].ack {
                ack.is_durable = true;
            }
        }
    }

    /// Whether the message must never be delivered again.
    pub(super) fn is_settled(&self, number: usize) -> bool {
        self.messages[number].is_settled()
    }

    /// The number of messages answered 201.
    pub(super) fn accepted(&self) -> usize {
        self.messages.iter().filter(|message| message.is_promised).count()
    }

    /// Whether the message was answered 201.
    pub(super) fn is_promised(&self, number: usize) -> bool {
        self.messages[number].is_promised
    }

    /// The number of settled acks.
    pub(super) fn settled(&self) -> usize {
        self.messages.iter().filter(|message| message.is_settled()).count()
    }

    /// Panics unless every promised message was delivered.
    pub(super) fn nothing_is_lost(&self) {
        let mut newest: BTreeMap<Slot, usize> = BTreeMap::new();
        for (number, message) in self.messages.iter().enumerate() {
            if message.version.is_some() {
                newest.insert(message.slot, number);
            }
        }
        for (number, message) in self.messages.iter().enumerate() {
            let newest = newest.get(&message.slot).filter(|_| message.slot.topic.is_some());
            let came = message.version.is_some() || newest.is_some_and(|newest| *newest > number);
            assert!(came || !message.is_promised, "{number} is lost: {message:?}");
        }
    }

    /// Panics if two messages share a version.
    pub(super) fn versions_are_unique(&self) {
        let versions = self.messages.iter().filter_map(|message| message.version.as_ref());
        let mut seen = BTreeSet::new();
        assert!(versions.into_iter().all(|version| seen.insert(version)), "a version came twice");
    }
}

impl Message {
    fn is_settled(&self) -> bool {
        let (Some(ack), Some(over_at)) = (&self.ack, self.over_at) else { return false };
        let was_ready = ack.ready_since.is_some_and(|ready_since| ready_since < self.posted_at);
        let was_quick = over_at - self.posted_at < ACK_WAIT;
        ack.is_durable && (over_at <= ack.said_at || (was_ready && was_quick))
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (accepted, settled) = (self.accepted(), self.settled());
        let Tally { refused, delivered, again_before_ack, again_before_settled } = self.tally;
        write!(
            f,
            "{} messages posted, {accepted} accepted, {refused} refused; {delivered} delivered, \
             {again_before_ack} again before their ack, {again_before_settled} after an ack that was \
             not settled, 0 after one that was; {settled} acks settled",
            self.messages.len(),
        )
    }
}
