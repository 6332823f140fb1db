//! Tracks every message of a run: which must arrive, which arrived, and which must not be
//! redelivered.
//!
//! A message is **promised** if it was answered 201 with a TTL. It must be delivered at least once,
//! unless it expired or a message with the same topic, possibly later, was delivered instead. Of two
//! pushes, the one that was posted after the other's answer is the later one, whatever the clocks of
//! their endpoint nodes say. An unanswered push may be later than any other.
//!
//! A message **expires** when its TTL has passed by the clock of any connection node, since the time
//! that its endpoint node has written. If the former is ahead of the latter, that is earlier than its
//! TTL, and otherwise later.
//!
//! A message has one **version**. A push with a topic may meet a greater id, which an endpoint node
//! with a clock ahead has made. It is repeated with an id above that, and the agent may have received
//! it with the first. So a message with a topic may arrive as two **copies**, each with its version.
//! Each copy counts as a message below.
//!
//! An ack is **settled** if the message must never be delivered again: no node is about to store or
//! send it, and no row of it is left. No server reports this, so the test derives it from three
//! conditions:
//!
//! 1. *No endpoint is about to store the message.* Its push was answered. A push whose endpoint
//!    node was killed, or which the sender abandoned, may still reach the store. It is over only
//!    when all endpoint nodes have ended.
//! 2. *No connection node is about to send the message.* A stopped node may find the push in its
//!    socket buffer when it continues, long after the endpoint stored the message. So no node was
//!    stopped during the push, or the node has continued since and had time to read its buffer.
//! 3. *No row of the message is left.* The auditor began to read the whole table after the ack and
//!    the answer, and did not find the message.
//!
//! The message must not be delivered on a connection that was opened after all this, nor on the one
//! that received it last. On another connection that was open already it may have been sent before:
//! its agent may have stopped reading, or its node may have read the row before the delete.
//!
//! An ack without this proof may have been lost, and its message may be delivered again.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Ids that a push with a topic gets at most.
const COPIES_MAX: usize = 2;

/// The time that a continued node may need to read its socket buffers.
const CATCHING_UP: Duration = Duration::from_secs(3);

/// The time that the delete of an acked message may take with a healthy store.
const DELETE_WAIT: Duration = Duration::from_secs(10);

/// All messages; a message's number is its index, and its body starts with it. Further copies have indices too.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The origin of the times in findings.
    began: Instant,
    messages: Vec<Message>,
    /// The copies of messages that arrived with several versions, without the first.
    copies: BTreeMap<usize, Vec<usize>>,
    /// Acked messages that are not known to be settled.
    unsettled: BTreeSet<usize>,
    stops: Vec<Stop>,
    findings: Vec<String>,
    tally: Tally,
}

/// The destination of a message. A message with a topic replaces one with the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) client: usize,
    pub(super) channel: usize,
    pub(super) topic: Option<&'static str>,
}

#[derive(Debug, Clone)]
struct Message {
    slot: Slot,
    ttl: Duration,
    /// The time from its post, until which no node may drop it as expired.
    lives: Duration,
    posted_at: Instant,
    /// The time of the answer, after which no endpoint processes the push.
    answered_at: Option<Instant>,
    is_promised: bool,
    version: Option<Box<str>>,
    /// The time at which the last connection that received the message was opened.
    came_on: Option<Instant>,
    ack_said_at: Option<Instant>,
    /// The time since which the ack is known to be settled.
    settled_at: Option<Instant>,
}

/// An interval in which a connection node was stopped.
#[derive(Debug)]
struct Stop {
    node: usize,
    from: Instant,
    until: Option<Instant>,
}

/// The figures about messages in the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) posted: usize,
    pub(super) accepted: usize,
    pub(super) refused: usize,
    pub(super) unanswered: usize,
    /// Messages that arrived before their sender had an answer.
    pub(super) came_during_push: usize,
    /// Messages whose first delivery followed the answer, and so came from storage.
    pub(super) came_later: usize,
    /// Copies after the first.
    pub(super) copies: usize,
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
            copies: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            stops: Vec::new(),
            findings: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Records that a message is posted, and returns its number.
    pub(super) fn post(
        &mut self,
        slot: Slot,
        ttl: Duration,
        lives: Duration,
        now: Instant,
    ) -> usize {
        self.tally.posted += 1;
        self.messages.push(Message {
            slot,
            ttl,
            lives,
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

    /// The push was answered 201.
    pub(super) fn accepted(&mut self, number: usize, now: Instant) {
        self.tally.accepted += 1;
        self.answered(number, now);
        let message = &mut self.messages[number];
        message.is_promised = message.ttl > Duration::ZERO;
    }

    /// The push was answered 503: the message may be stored, and no endpoint processes the push any
    /// more.
    pub(super) fn refused(&mut self, number: usize, now: Instant) {
        self.tally.refused += 1;
        self.answered(number, now);
    }

    fn answered(&mut self, number: usize, now: Instant) {
        for copy in self.copies_of(number) {
            self.messages[copy].answered_at = Some(now);
        }
    }

    /// The push got no answer.
    pub(super) fn unanswered(&mut self) {
        self.tally.unanswered += 1;
    }

    /// A connection node was stopped with SIGSTOP.
    pub(super) fn stopped(&mut self, node: usize, now: Instant) {
        self.stops.push(Stop { node, from: now, until: None });
    }

    /// A stopped node was continued with SIGCONT.
    pub(super) fn continued(&mut self, node: usize, now: Instant) {
        let stop = self.stops.iter_mut().rfind(|stop| stop.node == node);
        stop.expect("it was stopped").until = Some(now);
    }

    /// A user agent received a message on a connection that was opened at `opened_at`.
    pub(super) fn delivered(
        &mut self,
        client: usize,
        opened_at: Instant,
        number: usize,
        version: &str,
    ) {
        let number = self.copy_with(number, version);
        let message = &self.messages[number];
        if message.slot.client != client {
            self.report_message(
                number,
                &format!("reached agent {client}, which is not its receiver"),
            );
        } else if message.version.as_deref().is_some_and(|known| known != version) {
            self.report_message(
                number,
                &format!("was redelivered with another version, {version}"),
            );
        } else if message.is_over_for(opened_at) {
            self.report_message(number, "was redelivered after its ack was settled");
        }
        let message = &mut self.messages[number];
        *message.how_it_comes(opened_at, &mut self.tally) += 1;
        message.version = Some(version.into());
        message.came_on = Some(opened_at);
        message.ack_said_at = None;
        message.settled_at = None;
        self.unsettled.remove(&number);
    }

    /// All indices of a message.
    fn copies_of(&self, number: usize) -> Vec<usize> {
        let copies = self.copies.get(&number).into_iter().flatten();
        [number].into_iter().chain(copies.copied()).collect()
    }

    /// The index of the message that has this version: a further copy, if it has a topic and arrived with others only.
    fn copy_with(&mut self, number: usize, version: &str) -> usize {
        let has_it = |copy: &usize| {
            self.messages[*copy].version.as_deref().is_none_or(|known| known == version)
        };
        let copies = self.copies_of(number);
        let message = &self.messages[number];
        match copies.iter().copied().find(has_it) {
            Some(copy) => copy,
            None if message.slot.topic.is_none() || copies.len() == COPIES_MAX => number,
            None => {
                let copy = Message {
                    is_promised: false,
                    version: None,
                    came_on: None,
                    ack_said_at: None,
                    settled_at: None,
                    ..message.clone()
                };
                self.messages.push(copy);
                self.tally.copies += 1;
                self.copies.entry(number).or_default().push(self.messages.len() - 1);
                self.messages.len() - 1
            }
        }
    }

    /// The user agent acknowledged the message with this version.
    pub(super) fn acked(&mut self, number: usize, version: &str, now: Instant) {
        let number = self.copy_with(number, version);
        let message = &mut self.messages[number];
        message.ack_said_at = Some(now);
        self.unsettled.insert(number);
    }

    /// The whole table was read between these two times, and `rows` are the versions of all rows.
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

    /// Records a finding that is not about a single message.
    pub(super) fn report(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// Records a finding about a message.
    fn report_message(&mut self, number: usize, wrong: &str) {
        let description = self.describe(number);
        self.report(format!("{number} {wrong}: {description}"));
    }

    /// At `now` the table contained no row that had not expired. A promised message that never
    /// arrived is lost unless it expired or was replaced.
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
            let rivals = rivals.iter().map(|rival| format!("{rival}: {}", self.describe(*rival)));
            let rivals: Vec<_> = rivals.collect();
            self.report_message(
                number,
                &format!("is lost, others of its topic are [{}]", rivals.join("; ")),
            );
        }
    }

    /// A description of a message for a finding.
    fn describe(&self, number: usize) -> String {
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

    /// Every endpoint node was restarted, so no push is in progress.
    pub(super) fn pushes_are_over(&mut self, now: Instant) {
        for message in &mut self.messages {
            message.answered_at.get_or_insert(now);
        }
    }

    /// Records messages that were acked long ago and still have rows that did not expire. Returns
    /// whether there are any.
    pub(super) fn look_for_stuck(&mut self, now: Instant, alive: &BTreeSet<String>) -> bool {
        let is_stuck = |number: &usize| {
            let message = &self.messages[*number];
            let said_at = message.ack_said_at;
            message.is_among(alive) && said_at.is_some_and(|said_at| said_at + DELETE_WAIT < now)
        };
        let stuck: Vec<_> = self.unsettled.iter().copied().filter(is_stuck).collect();
        for number in &stuck {
            self.report_message(*number, "was acked and still has a row");
        }
        !stuck.is_empty()
    }

    /// Whether the message has expired by the clock of any node.
    pub(super) fn has_expired(&self, number: usize, now: Instant) -> bool {
        self.messages[number].expired_by(now)
    }

    /// Records versions that two messages share.
    pub(super) fn check_versions(&mut self) {
        let mut seen = BTreeSet::new();
        let versions = self.messages.iter().enumerate();
        let twice = versions.filter(|(_, message)| {
            message.version.as_ref().is_some_and(|version| !seen.insert(version))
        });
        let twice: Vec<_> = twice.map(|(number, _)| number).collect();
        for number in twice {
            self.report_message(number, "shares a version with another message");
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// Violations of the promises; there should be none.
    pub(super) fn findings(&self) -> &[String] {
        &self.findings
    }
}

impl Message {
    /// The counter of the tally for a delivery on this connection.
    fn how_it_comes<'a>(&self, opened_at: Instant, tally: &'a mut Tally) -> &'a mut usize {
        match (&self.version, self.answered_at, self.ack_said_at) {
            (None, None, _) => &mut tally.came_during_push,
            (None, Some(_), _) => &mut tally.came_later,
            (Some(_), _, _) if self.is_over_for(opened_at) => &mut tally.again_after_settled,
            (Some(_), _, Some(_)) => &mut tally.again_before_settled,
            (Some(_), _, None) => &mut tally.again_before_ack,
        }
    }

    /// Whether the message must not be delivered on a connection that was opened at that time. It
    /// was settled before, or this connection received it already.
    fn is_over_for(&self, opened_at: Instant) -> bool {
        let came_here = self.came_on == Some(opened_at);
        self.settled_at.is_some_and(|settled_at| settled_at <= opened_at || came_here)
    }

    /// Whether the message was acked, and no node is about to store or send it.
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
        self.posted_at + self.lives <= now
    }

    /// Whether this message may be the reason that another one of its topic was never delivered.
    fn replaced(&self, other: &Self, now: Instant) -> bool {
        let may_be_later =
            self.answered_at.is_none_or(|answered_at| other.posted_at <= answered_at);
        // A message without a TTL is not stored, so it replaces none.
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
