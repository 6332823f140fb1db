//! What was promised, what came, and what must not come again.
//!
//! **Promised** is what was answered 201 with a TTL. It must come at least once, unless it expired, or a message of its
//! topic that may be a later one came in its place. Two endpoint nodes make ids, and a push that was not answered may
//! have been stored: so which one is later is known only where one was answered before the other was posted.
//!
//! **Settled** is an ack after which a message must never come again: nobody is about to store it or to send it, and no
//! row of it is left. No server says when that is, so the test looks for itself:
//!
//! 1. *No endpoint is about to store it.* Its push was answered. One whose endpoint was killed, or that its sender gave
//!    up, may still be on its way to the store, and is over only when all endpoint nodes were ended.
//! 2. *No connection node is about to send it.* A node that was stopped may find the push in its port's buffer when it
//!    goes on, long after the endpoint gave it up and stored the message. So no node was stopped while the push was
//!    under way, or it has gone on since, and had time to read what was there.
//! 3. *No row of it is left.* After the ack was said and the push was answered, somebody who asks the store without any
//!    faults between began to read the whole table, and did not see it.
//!
//! It must not come on a connection that was opened after all that, nor on the one it came on last. On another that was
//! open already it may have been sent before: its user agent may have stopped reading, or its node may have read the
//! row just before it went.
//!
//! An ack without that proof may have been lost on its way, and its message may come again.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How far the clocks of two nodes may be apart. They are one machine's, in milliseconds that each began to count
/// for itself.
const CLOCKS_APART: Duration = Duration::from_millis(50);

/// How long a node that goes on may take to read what came while it was stopped.
const CATCHING_UP: Duration = Duration::from_secs(3);

/// How long the delete of an acked message may take where the store is well.
const DELETE_WAIT: Duration = Duration::from_secs(10);

/// Every message, by its number; the body begins with the number.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Times are told since then.
    began: Instant,
    messages: Vec<Message>,
    /// Acked, and not known to be settled.
    unsettled: BTreeSet<usize>,
    stops: Vec<Stop>,
    findings: Vec<String>,
    tally: Tally,
}

/// Where a message goes: one with the same slot and a topic replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) client: usize,
    pub(super) channel: usize,
    pub(super) topic: Option<&'static str>,
}

#[derive(Debug)]
struct Message {
    slot: Slot,
    ttl: Duration,
    posted_at: Instant,
    /// When it was answered, and so no endpoint is at it any more.
    answered_at: Option<Instant>,
    is_promised: bool,
    version: Option<Box<str>>,
    /// When the connection was opened that it came on last.
    came_on: Option<Instant>,
    ack_said_at: Option<Instant>,
    /// Since when its ack is known to be settled.
    settled_at: Option<Instant>,
}

/// A connection node stood still.
#[derive(Debug)]
struct Stop {
    node: usize,
    from: Instant,
    until: Option<Instant>,
}

/// What the report says of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) posted: usize,
    pub(super) accepted: usize,
    pub(super) refused: usize,
    pub(super) unanswered: usize,
    /// Came before their sender had an answer.
    pub(super) came_during_push: usize,
    /// Came first after their sender had the answer: out of storage.
    pub(super) came_later: usize,
    pub(super) again_before_ack: usize,
    pub(super) again_before_settled: usize,
    pub(super) again_after_settled: usize,
    pub(super) settled: usize,
    pub(super) replaced: usize,
    pub(super) expired: usize,
    pub(super) lost: usize,
}

impl Ledger {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            began,
            messages: Vec::new(),
            unsettled: BTreeSet::new(),
            stops: Vec::new(),
            findings: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// A message is being posted; gives its number.
    pub(super) fn post(&mut self, slot: Slot, ttl: Duration, now: Instant) -> usize {
        self.tally.posted += 1;
        self.messages.push(Message {
            slot,
            ttl,
            posted_at: now,
            answered_at: None,
            is_promised: false,
            version: None,
            came_on: None,
            ack_said_at: None,
            settled_at: None,
        });
        self.messages.len() - 1
    }

    /// It was answered 201.
    pub(super) fn accepted(&mut self, number: usize, now: Instant) {
        self.tally.accepted += 1;
        let message = &mut self.messages[number];
        message.answered_at = Some(now);
        message.is_promised = message.ttl > Duration::ZERO;
    }

    /// It was answered 503: it may be stored or not, and no endpoint is at it any more.
    pub(super) fn refused(&mut self, number: usize, now: Instant) {
        self.tally.refused += 1;
        self.messages[number].answered_at = Some(now);
    }

    /// Nobody answered.
    pub(super) fn unanswered(&mut self) {
        self.tally.unanswered += 1;
    }

    /// A connection node stands still.
    pub(super) fn stopped(&mut self, node: usize, now: Instant) {
        self.stops.push(Stop { node, from: now, until: None });
    }

    /// It goes on.
    pub(super) fn went_on(&mut self, node: usize, now: Instant) {
        let stop = self.stops.iter_mut().rfind(|stop| stop.node == node);
        stop.expect("it was stopped").until = Some(now);
    }

    /// A message came to a user agent, on a connection that was opened at that time.
    pub(super) fn came(&mut self, client: usize, opened_at: Instant, number: usize, version: &str) {
        let message = &self.messages[number];
        if message.slot.client != client {
            self.wrong(number, &format!("came to {client}, who is somebody else"));
        } else if message.version.as_deref().is_some_and(|known| known != version) {
            self.wrong(number, &format!("came again with another version, {version}"));
        } else if message.is_over_for(opened_at) {
            self.wrong(number, "came again after its ack was settled");
        }
        let message = &mut self.messages[number];
        *message.how_it_comes(opened_at, &mut self.tally) += 1;
        message.version = Some(version.into());
        message.came_on = Some(opened_at);
        message.ack_said_at = None;
        message.settled_at = None;
        self.unsettled.remove(&number);
    }

    /// The user agent acked it.
    pub(super) fn acked(&mut self, number: usize, now: Instant) {
        let message = &mut self.messages[number];
        message.ack_said_at = Some(now);
        self.unsettled.insert(number);
    }

    /// The whole table was read, from the one time to the other: these are the versions of all rows.
    pub(super) fn audited(
        &mut self,
        begun_at: Instant,
        ended_at: Instant,
        rows: &BTreeSet<String>,
    ) {
        let Self { messages, unsettled, stops, tally, .. } = self;
        unsettled.retain(|number| {
            let message = &mut messages[*number];
            let is_settled = message.is_done_with(begun_at, stops) && !message.is_among(rows);
            message.settled_at = is_settled.then_some(ended_at);
            tally.settled += usize::from(is_settled);
            !is_settled
        });
    }

    /// Something is wrong that is not about a message.
    pub(super) fn found(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// Notes what is wrong with a message.
    fn wrong(&mut self, number: usize, wrong: &str) {
        let told = self.tell(number);
        self.found(format!("{number} {wrong}: {told}"));
    }

    /// At `now` nothing was left in the table that had not expired: what was promised and did not come is lost, if
    /// there is no reason why it need not come.
    pub(super) fn drained(&mut self, now: Instant) {
        let mut by_topic: BTreeMap<Slot, Vec<usize>> = BTreeMap::new();
        for (number, message) in self.messages.iter().enumerate() {
            by_topic.entry(message.slot).or_default().push(number);
        }
        for number in 0..self.messages.len() {
            let message = &self.messages[number];
            if message.is_promised && message.version.is_none() {
                let alike = by_topic[&message.slot].iter().copied();
                let rivals: Vec<_> = alike
                    .filter(|rival| message.slot.topic.is_some() && *rival != number)
                    .collect();
                self.did_not_come(number, &rivals, now);
            }
        }
    }

    fn did_not_come(&mut self, number: usize, rivals: &[usize], now: Instant) {
        let message = &self.messages[number];
        if message.expired_by(now) {
            self.tally.expired += 1;
        } else if rivals.iter().any(|rival| self.messages[*rival].replaced(message, now)) {
            self.tally.replaced += 1;
        } else {
            self.tally.lost += 1;
            let rivals = rivals.iter().map(|rival| format!("{rival}: {}", self.tell(*rival)));
            let rivals: Vec<_> = rivals.collect();
            self.wrong(
                number,
                &format!("is lost, others of its topic are [{}]", rivals.join("; ")),
            );
        }
    }

    /// What is known of a message.
    fn tell(&self, number: usize) -> String {
        let Message { slot, ttl, posted_at, answered_at, version, ack_said_at, .. } =
            &self.messages[number];
        let since = |at: &Instant| (*at - self.began).as_secs_f32();
        let (answered_at, ack_said_at) =
            (answered_at.as_ref().map(since), ack_said_at.as_ref().map(since));
        format!(
            "{slot:?} for {} s, posted at {:.3} s, answered at {answered_at:.3?} s, \
             acked at {ack_said_at:.3?} s, version {version:?}",
            ttl.as_secs(),
            since(posted_at),
        )
    }

    /// Every endpoint node was ended since: no push is under way.
    pub(super) fn pushes_are_over(&mut self, now: Instant) {
        for message in &mut self.messages {
            message.answered_at.get_or_insert(now);
        }
    }

    /// Looks for messages that were acked long ago and have rows that did not expire. Answers whether there are any.
    pub(super) fn look_for_stuck(&mut self, now: Instant, alive: &BTreeSet<String>) -> bool {
        let is_stuck = |number: &usize| {
            let message = &self.messages[*number];
            let said_at = message.ack_said_at;
            message.is_among(alive) && said_at.is_some_and(|said_at| said_at + DELETE_WAIT < now)
        };
        let stuck: Vec<_> = self.unsettled.iter().copied().filter(is_stuck).collect();
        for number in &stuck {
            self.wrong(*number, "was acked and is still there");
        }
        !stuck.is_empty()
    }

    /// Notes where two messages came under one version.
    pub(super) fn check_versions(&mut self) {
        let mut seen = BTreeSet::new();
        let versions = self.messages.iter().enumerate();
        let twice = versions.filter(|(_, message)| {
            message.version.as_ref().is_some_and(|version| !seen.insert(version))
        });
        let twice: Vec<_> = twice.map(|(number, _)| number).collect();
        for number in twice {
            self.wrong(number, "came under another's version");
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// What is wrong, of which there should be nothing.
    pub(super) fn findings(&self) -> &[String] {
        &self.findings
    }
}

impl Message {
    /// Where the tally counts it when it comes now.
    fn how_it_comes<'a>(&self, opened_at: Instant, tally: &'a mut Tally) -> &'a mut usize {
        match (&self.version, self.answered_at, self.ack_said_at) {
            (None, None, _) => &mut tally.came_during_push,
            (None, Some(_), _) => &mut tally.came_later,
            (Some(_), _, _) if self.is_over_for(opened_at) => &mut tally.again_after_settled,
            (Some(_), _, Some(_)) => &mut tally.again_before_settled,
            (Some(_), _, None) => &mut tally.again_before_ack,
        }
    }

    /// Whether it must not come on a connection that was opened at that time: there it was sent after its ack was
    /// settled, or a second time.
    fn is_over_for(&self, opened_at: Instant) -> bool {
        let came_here = self.came_on == Some(opened_at);
        self.settled_at.is_some_and(|settled_at| settled_at <= opened_at || came_here)
    }

    /// Whether it was acked, and nobody is about to store it or to send it.
    fn is_done_with(&self, by: Instant, stops: &[Stop]) -> bool {
        let (Some(ack_said_at), Some(answered_at)) = (self.ack_said_at, self.answered_at) else {
            return false;
        };
        let met = |stop: &&Stop| {
            stop.from <= answered_at && stop.until.is_none_or(|until| self.posted_at <= until)
        };
        let is_over = |stop: &Stop| stop.until.is_some_and(|until| until + CATCHING_UP < by);
        ack_said_at < by && answered_at < by && stops.iter().filter(met).all(is_over)
    }

    fn is_among(&self, rows: &BTreeSet<String>) -> bool {
        self.version.as_deref().is_some_and(|version| rows.contains(version))
    }

    fn expired_by(&self, now: Instant) -> bool {
        self.posted_at + self.ttl <= now
    }

    /// Whether it may be why another one of its topic never came.
    fn replaced(&self, other: &Self, now: Instant) -> bool {
        let may_be_later = self
            .answered_at
            .is_none_or(|answered_at| other.posted_at <= answered_at + CLOCKS_APART);
        // One with no TTL is not stored, and takes no place of another.
        let can_replace = self.ttl > Duration::ZERO;
        may_be_later && can_replace && (self.version.is_some() || self.expired_by(now))
    }
}

impl Tally {
    pub(super) fn refusals(&self) -> String {
        format!("{}, {}", self.refused, self.unanswered)
    }

    pub(super) fn comings(&self) -> String {
        format!("{}, {}", self.came_during_push, self.came_later)
    }

    pub(super) fn reasons(&self) -> String {
        format!("{}, {}", self.expired, self.replaced)
    }
}
