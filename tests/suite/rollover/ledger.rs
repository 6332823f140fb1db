//! What was promised, what came, and what must not come again.
//!
//! **Promised** is what was answered 201. It must come at least once, or a newer message of its topic in
//! its place.
//!
//! **Settled** is an ack after which a message must never come again: its delete is durable, or the
//! endpoint has the answer (of a direct message), and no endpoint is about to store the message. The server does not
//! say when that is, so an ack counts as settled only where what can be seen from outside proves it:
//!
//! 1. *Its delete is durable.* After the ack, two writes of the same connection were answered one after the
//!    other (a channel registered, and given up). A ping would not do: it proves that the ack was read, not that its
//!    delete is on disk. One write would not either: at most one delete of a connection is under way, and an ack that comes meanwhile
//!    waits for it; so the first write may overtake this ack's delete, and proves only that the delete before it
//!    is done, with which this one begins. One user agent's writes are in order, so the second write comes after it.
//! 2. *No endpoint is about to store it.* Either the push was over before the ack was said: answered, or its
//!    server dead. Or it was posted when this connection was known to be in December, and answered sooner than `ack_wait`: then it
//!    was either acked directly, or sent from the table that it was stored in; an endpoint that stores what was acked before
//!    is one that waited in vain for `ack_wait`, or one that saw the month move.
//!
//! An ack without that proof may be lost with the server, and its message may come again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::harness::Answer;

/// The server's `ack_wait_ms`, which stays at its default.
const ACK_WAIT: Duration = Duration::from_millis(1000);

/// Every message, by its number; the body says the number.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    messages: Vec<Message>,
    tally: Tally,
}

/// Where a message goes: one with the same slot and a topic replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) traveller: usize,
    pub(super) channel: usize,
    pub(super) topic: Option<&'static str>,
}

#[derive(Debug)]
struct Message {
    slot: Slot,
    posted_at: Instant,
    /// Since when no endpoint is at it, as far as can be seen.
    over_at: Option<Instant>,
    is_promised: bool,
    version: Option<String>,
    ack: Option<Ack>,
}

#[derive(Debug)]
struct Ack {
    said_at: Instant,
    /// Since when the connection it was said on was known to be in December.
    ready_since: Option<Instant>,
    is_durable: bool,
}

/// What the report says.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    refused: usize,
    delivered: usize,
    again_before_ack: usize,
    again_before_settled: usize,
}

impl Ledger {
    /// A message is being posted; gives its number.
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

    /// Its topic.
    pub(super) fn topic(&self, number: usize) -> Option<&'static str> {
        self.messages[number].slot.topic
    }

    /// The endpoint answered. It may be overrun; it may not say that a subscription is gone.
    pub(super) fn answered(&mut self, number: usize, answer: &Answer) {
        self.messages[number].over_at = Some(Instant::now());
        if answer.status == 201 {
            self.messages[number].is_promised = true;
            return;
        }
        answer.refused(503, 201);
        assert!(answer.header("retry-after").is_some(), "{answer}");
        self.tally.refused += 1;
    }

    /// The server is dead, and with it every endpoint that has not answered.
    pub(super) fn server_died(&mut self) {
        let now = Instant::now();
        for message in &mut self.messages {
            message.over_at.get_or_insert(now);
        }
    }

    /// A message came to a user agent.
    pub(super) fn came(&mut self, traveller: usize, number: usize, version: &str) {
        let message = &mut self.messages[number];
        assert_eq!(message.slot.traveller, traveller, "{number} came to somebody else");
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

    /// The user agent acked it, on a connection that is known to be in December since then.
    pub(super) fn acked(&mut self, number: usize, ready_since: Option<Instant>) {
        let said_at = Instant::now();
        self.messages[number].ack = Some(Ack { said_at, ready_since, is_durable: false });
    }

    /// The deletes of these are durable, if they have not come again since they were acked.
    pub(super) fn acks_are_durable(&mut self, numbers: &[usize]) {
        for number in numbers {
            if let Some(ack) = &mut self.messages[*number].ack {
                ack.is_durable = true;
            }
        }
    }

    /// Whether it must never come again.
    pub(super) fn is_settled(&self, number: usize) -> bool {
        self.messages[number].is_settled()
    }

    /// How many were answered 201.
    pub(super) fn accepted(&self) -> usize {
        self.messages.iter().filter(|message| message.is_promised).count()
    }

    /// Whether it was answered 201.
    pub(super) fn is_promised(&self, number: usize) -> bool {
        self.messages[number].is_promised
    }

    /// How many acks are settled.
    pub(super) fn settled(&self) -> usize {
        self.messages.iter().filter(|message| message.is_settled()).count()
    }

    /// Fails unless all that was promised came.
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

    /// Fails where two messages came under one version.
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
