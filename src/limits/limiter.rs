//! One limit: a rate for each of its senders.

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use quick_cache::unsync::Cache;
use slog::{Logger, debug, warn};
use state_machine::log_limiter::LogLimiter;
use state_machine::token_bucket::{Rate, TokenBucket};
use state_machine::{Chid, Span, Time, Uaid};

use super::OverLimit;

/// Minimum time between two log lines of one limit.
const LOG_EVERY: Span = Span::from_secs(10);

/// Who asks, and what a limit counts for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    Subscription(Uaid, Chid),
    /// The SHA-256 of the key.
    VapidKey([u8; 32]),
    Address(IpAddr),
    Agent(Uaid),
}

/// The limit that all threads share. It remembers so many senders and forgets the others, which then start anew with
/// a full burst.
pub(super) struct Limiter {
    setting: &'static str,
    policy: &'static str,
    rate: Rate,
    /// Makes hashes that no reader of a log can compute for an address.
    hashes: RandomState,
    state: Mutex<State>,
    log: Logger,
}

struct State {
    senders: Cache<Sender, Entry>,
    log_limiter: LogLimiter,
    /// Log lines so far.
    lines: u32,
    /// Requests refused since the last line.
    refused: u64,
    /// The sender with the most requests refused since the last line, and their number.
    top: Option<(Sender, u32)>,
    refused_in_all: u64,
}

struct Entry {
    bucket: TokenBucket,
    /// Requests refused while the limit had written so many `lines`.
    refused: u32,
    lines: u32,
}

/// What a log line reports.
struct Report {
    refused: u64,
    top: Sender,
    of_top: u32,
}

impl Limiter {
    /// Allows each sender this many requests a minute, and as many at once; 0 is no limit.
    pub(super) fn new(
        setting: &'static str,
        policy: &'static str,
        per_minute: usize,
        senders_max: usize,
        log: Logger,
    ) -> Self {
        let state = State {
            senders: Cache::new(senders_max),
            log_limiter: LogLimiter::new(LOG_EVERY),
            lines: 0,
            refused: 0,
            top: None,
            refused_in_all: 0,
        };
        let (rate, hashes) = (Rate::per_minute(per_minute), RandomState::new());
        Self { setting, policy, rate, hashes, state: Mutex::new(state), log }
    }

    /// Counts a request, or refuses it. Refusals are logged.
    pub(super) fn charge(&self, sender: Sender, now: Time) -> Result<(), OverLimit> {
        let per_minute = self.rate.tokens();
        if per_minute == 0 {
            return Ok(());
        }
        let (wait, report) = match self.lock().charge(sender, &self.rate, now) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        if let Some(Report { refused, top, of_top }) = report {
            let hash = format!("{:016x}", self.hashes.hash_one(top));
            warn!(self.log, "requests are refused, more arrive of one sender than a limit allows";
                "limit" => self.setting, "refused" => refused, "top" => &hash, "refused_of_top" => of_top);
            debug!(self.log, "the sender with the most refused requests";
                "limit" => self.setting, "top" => hash, "sender" => %top);
        }
        Err(OverLimit { policy: self.policy, per_minute, wait })
    }

    /// The name of the limit, and how many requests it has refused.
    pub(super) fn refused(&self) -> (&'static str, u64) {
        (self.setting, self.lock().refused_in_all)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic can leave one count too small, which makes the limit freer.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The wait of a refused request, and the report that is due.
    fn charge(
        &mut self,
        sender: Sender,
        rate: &Rate,
        now: Time,
    ) -> Result<(), (Span, Option<Report>)> {
        let entry = || Ok::<_, Infallible>(Entry { bucket: rate.bucket(), refused: 0, lines: 0 });
        let entry = self.senders.get_mut_or_insert_with(&sender, entry);
        let Ok(Some(mut entry)) = entry else { return Ok(()) };
        let Err(wait) = entry.bucket.try_acquire(rate, 0, now) else { return Ok(()) };
        if entry.lines != self.lines {
            (entry.refused, entry.lines) = (0, self.lines);
        }
        entry.refused = entry.refused.saturating_add(1);
        let refused = entry.refused;
        drop(entry);
        Err((wait, self.refuse(sender, refused, now)))
    }

    fn refuse(&mut self, sender: Sender, of_sender: u32, now: Time) -> Option<Report> {
        self.refused += 1;
        self.refused_in_all += 1;
        let (top, of_top) =
            self.top.filter(|(_, of_top)| *of_top > of_sender).unwrap_or((sender, of_sender));
        self.top = Some((top, of_top));
        self.log_limiter.allow(now)?;
        let refused = std::mem::take(&mut self.refused);
        self.top = None;
        self.lines = self.lines.wrapping_add(1);
        Some(Report { refused, top, of_top })
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

#[cfg(test)]
mod tests {
    use std::fmt::{Arguments, Write};
    use std::sync::Arc;

    use slog::{Drain, KV, Key, Level, Never, OwnedKVList, Record, Serializer, o};

    use super::*;

    const NOW: Time = Time(1_000_000);

    /// Collects the fields of all lines above debug, and those of the others.
    #[derive(Default)]
    struct Lines {
        normal: Mutex<Vec<String>>,
        debug: Mutex<Vec<String>>,
    }

    struct Fields<'a>(&'a mut String);

    impl Serializer for Fields<'_> {
        fn emit_arguments(&mut self, key: Key, value: &Arguments<'_>) -> slog::Result {
            Ok(write!(self.0, "{key}={value} ")?)
        }
    }

    struct Collector(Arc<Lines>);

    impl Drain for Collector {
        type Ok = ();
        type Err = Never;

        fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
            let mut line = String::new();
            record.kv().serialize(record, &mut Fields(&mut line)).unwrap();
            let is_debug = record.level() >= Level::Debug;
            let lines = if is_debug { &self.0.debug } else { &self.0.normal };
            lines.lock().unwrap().push(line);
            Ok(())
        }
    }

    fn limiter(per_minute: usize, senders_max: usize) -> (Limiter, Arc<Lines>) {
        let lines = Arc::new(Lines::default());
        let log = Logger::root(Collector(Arc::clone(&lines)), o!());
        (Limiter::new("a_limit", "sender", per_minute, senders_max, log), lines)
    }

    fn address(number: u32) -> Sender {
        Sender::Address(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn so_many_senders_are_remembered_and_the_others_are_free() {
        let (limiter, _) = limiter(1, 100);
        for number in 0..10_000 {
            assert_eq!(limiter.charge(address(number), NOW), Ok(()), "{number}");
        }
        assert!(limiter.lock().senders.len() <= 100);
    }

    #[test]
    fn a_flood_of_senders_frees_none_that_asks_again_and_again() {
        let (limiter, _) = limiter(1, 100);
        let mut passed = 0;
        for number in 1..10_000 {
            passed += usize::from(limiter.charge(address(0), NOW).is_ok());
            assert_eq!(limiter.charge(address(number), NOW), Ok(()), "{number}");
        }
        assert_eq!(passed, 1);
    }

    #[test]
    fn a_line_names_the_top_talker_since_the_last_line_by_a_hash() {
        let (limiter, lines) = limiter(1, 100);
        let flood = |number, count, now| {
            for _ in 0..count {
                let _ = limiter.charge(address(number), now);
            }
        };
        // The first refusal is logged at once, the others after ten seconds.
        flood(1, 2, NOW);
        flood(2, 11, NOW);
        flood(3, 31, NOW);
        flood(2, 1, NOW + LOG_EVERY);
        let hash = |number| format!("{:016x}", limiter.hashes.hash_one(address(number)));
        let line = |refused: u32, top, of_top: u32| {
            let top = hash(top);
            format!("refused_of_top={of_top} top={top} refused={refused} limit=a_limit ")
        };
        assert_eq!(*lines.normal.lock().unwrap(), [line(1, 1, 1), line(41, 3, 30)]);
        let debug = lines.debug.lock().unwrap().join("");
        assert!(debug.contains("sender=0.0.0.1 ") && debug.contains("sender=0.0.0.3 "), "{debug}");
        assert!(debug.contains(&hash(3)), "{debug}");
        assert_eq!(limiter.refused(), ("a_limit", 42));
    }
}
