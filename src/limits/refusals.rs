//! What a limit has refused: the count, and the log line that names the sender refused most.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

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

/// The refusals of a limit.
pub(super) struct Refusals {
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

/// What a log line reports.
pub(super) struct Report {
    refused: u64,
    top: Sender,
    of_top: u32,
}

/// Writes the log lines of a limit.
pub(super) struct RefusalLog {
    setting: &'static str,
    /// Makes hashes that no reader of a log can compute for an address.
    hashes: RandomState,
    log: Logger,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { log_limiter: LogLimiter::new(LOG_EVERY), lines: 0, top: None, in_all: 0 }
    }
}

impl Refusals {
    /// Counts a refusal of this sender. Returns the report that is due.
    pub(super) fn count(&mut self, sender: Sender, tally: &mut Tally, now: Time) -> Option<Report> {
        if tally.lines != self.lines {
            *tally = Tally { refused: 0, lines: self.lines };
        }
        tally.refused = tally.refused.saturating_add(1);
        self.in_all += 1;
        if self.top.is_none_or(|(_, of_top)| of_top <= tally.refused) {
            self.top = Some((sender, tally.refused));
        }
        let suppressed = self.log_limiter.allow(now)?;
        self.report(suppressed + 1)
    }

    /// The report on the refusals since the last line, if there are any and it is due.
    pub(super) fn rest(&mut self, now: Time) -> Option<Report> {
        let refused = self.log_limiter.rest(now)?;
        self.report(refused)
    }

    pub(super) fn in_all(&self) -> u64 {
        self.in_all
    }

    fn report(&mut self, refused: u64) -> Option<Report> {
        let (top, of_top) = self.top.take()?;
        self.lines = self.lines.wrapping_add(1);
        Some(Report { refused, top, of_top })
    }
}

impl RefusalLog {
    pub(super) fn new(setting: &'static str, log: Logger) -> Self {
        Self { setting, hashes: RandomState::new(), log }
    }

    pub(super) fn setting(&self) -> &'static str {
        self.setting
    }

    pub(super) fn write(&self, Report { refused, top, of_top }: &Report) {
        let hash = self.hash(*top);
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
