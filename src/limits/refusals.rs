//! What a limit has refused: the count, and the log line that names the sender refused most.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use parking_lot::Mutex;
use slog::{Logger, debug, warn};
use state_machine::log_limiter::LogLimiter;
use state_machine::{Chid, Span, Time, Uaid};

/// Minimum time between two log lines of one limit.
pub(super) const LOG_EVERY: Span = Span::from_secs(10);

/// Who asks, and what a limit counts for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    Subscription(Uaid, Chid),
    /// The SHA-256 of the key.
    VapidKey([u8; 32]),
    Address(IpAddr),
    Agent(Uaid),
}

/// Counts what a limit refuses, and writes its log lines.
pub(super) struct Refusals {
    setting: &'static str,
    /// Makes hashes that no reader of a log can compute for an address.
    hashes: RandomState,
    log: Logger,
    counts: Mutex<Counts>,
}

struct Counts {
    log_limiter: LogLimiter,
    /// Log lines so far.
    lines: u32,
    /// The sender with the most requests refused since the last line, and their number.
    top: Option<(Sender, u32)>,
    in_all: u64,
}

/// The refusals of one sender while the limit had written so many `lines`.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    refused: u32,
    lines: u32,
}

impl Refusals {
    pub(super) fn new(setting: &'static str, log: Logger) -> Self {
        let log_limiter = LogLimiter::new(LOG_EVERY);
        let counts = Mutex::new(Counts { log_limiter, lines: 0, top: None, in_all: 0 });
        Self { setting, hashes: RandomState::new(), log, counts }
    }

    /// Counts a refusal of this sender, and logs it if a line is due.
    pub(super) fn count(&self, sender: Sender, tally: &mut Tally, now: Time) {
        let mut counts = self.counts.lock();
        if tally.lines != counts.lines {
            *tally = Tally { refused: 0, lines: counts.lines };
        }
        tally.refused = tally.refused.saturating_add(1);
        counts.in_all += 1;
        if counts.top.is_none_or(|(_, of_top)| of_top <= tally.refused) {
            counts.top = Some((sender, tally.refused));
        }
        if let Some(suppressed) = counts.log_limiter.allow(now) {
            self.write(&mut counts, suppressed + 1);
        }
    }

    /// Logs what was refused since the last line, if a line is due.
    pub(super) fn report(&self, now: Time) {
        let mut counts = self.counts.lock();
        if let Some(refused) = counts.log_limiter.rest(now) {
            self.write(&mut counts, refused);
        }
    }

    /// The name of the limit, and how many requests it has refused.
    pub(super) fn refused(&self) -> (&'static str, u64) {
        (self.setting, self.counts.lock().in_all)
    }

    fn write(&self, counts: &mut Counts, refused: u64) {
        let Some((top, of_top)) = counts.top.take() else { return };
        counts.lines = counts.lines.wrapping_add(1);
        let hash = self.hash(top);
        warn!(self.log, "requests are refused, more arrive of one sender than a limit allows";
            "limit" => self.setting, "refused" => refused, "top" => &hash, "refused_of_top" => of_top);
        debug!(self.log, "the sender with the most refused requests";
            "limit" => self.setting, "top" => hash, "sender" => %top);
    }

    pub(super) fn hash(&self, sender: Sender) -> String {
        format!("{:016x}", self.hashes.hash_one(sender))
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subscription(uaid, chid) => write!(f, "channel {chid} of {uaid}"),
            Self::VapidKey(hash) => hash.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Address(address) => address.fmt(f),
            Self::Agent(uaid) => uaid.fmt(f),
        }
    }
}
