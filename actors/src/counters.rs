//! Counters and histograms that threads share, for metrics. An increment takes no lock and allocates nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use state_machine::store::{RegisterResult, StoreAnswer, StoreOp};

/// The bounds of times within a request.
pub const LATENCY_BOUNDS: &[Duration] = &[
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// The bounds of times that a message waits for its user agent: 1 s to 30 days.
pub const WAITING_BOUNDS: &[Duration] = &[
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
    Duration::from_secs(6 * 3600),
    Duration::from_secs(24 * 3600),
    Duration::from_secs(7 * 24 * 3600),
    Duration::from_secs(30 * 24 * 3600),
];

/// A counter for each of `N` values.
#[derive(Debug)]
pub struct Counters<const N: usize>([AtomicU64; N]);

/// Durations, counted by their bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [Duration],
    /// One for each bound, and one for what exceeds all.
    counts: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

/// A histogram at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramCounts {
    pub bounds: &'static [Duration],
    /// One for each bound, and one for what exceeds all.
    pub counts: Vec<u64>,
    pub sum: Duration,
}

/// The kinds of operations on the store, as their times are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreCall {
    ReadRecord,
    Register,
    ReadChannels,
    WriteChannels,
    Fetch,
    StoreMessage,
    Delete,
    RecordOffers,
    MonthStep,
    MoveMessages,
    ClearNode,
}

/// How long the operations of each kind took, with their wait in the queue.
#[derive(Debug)]
pub struct StoreTimes([Histogram; StoreCall::ALL.len()]);

/// The steps of a move to another month that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonthMove {
    Begun,
    /// A new connection continues the move of an earlier one.
    Resumed,
    Done,
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Counters<N> {
    /// Counts the value at this place, which is less than `N`.
    pub fn count(&self, place: usize) {
        self.0[place].fetch_add(1, Ordering::Relaxed);
    }

    pub fn counts(&self) -> [u64; N] {
        std::array::from_fn(|place| self.0[place].load(Ordering::Relaxed))
    }
}

impl Histogram {
    pub fn new(bounds: &'static [Duration]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_us: AtomicU64::new(0) }
    }

    pub fn add(&self, took: Duration) {
        let bucket = self.bounds.partition_point(|bound| *bound < took);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(took_us, Ordering::Relaxed);
    }

    pub fn counts(&self) -> HistogramCounts {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = Duration::from_micros(self.sum_us.load(Ordering::Relaxed));
        HistogramCounts { bounds: self.bounds, counts, sum }
    }
}

impl StoreCall {
    /// The kinds in their order, with their names in metrics.
    pub const ALL: [(Self, &str); 11] = [
        (Self::ReadRecord, "read_record"),
        (Self::Register, "register"),
        (Self::ReadChannels, "read_channels"),
        (Self::WriteChannels, "write_channels"),
        (Self::Fetch, "fetch"),
        (Self::StoreMessage, "store_message"),
        (Self::Delete, "delete"),
        (Self::RecordOffers, "record_offers"),
        (Self::MonthStep, "month_step"),
        (Self::MoveMessages, "move_messages"),
        (Self::ClearNode, "clear_node"),
    ];
}

impl From<&StoreOp> for StoreCall {
    fn from(op: &StoreOp) -> Self {
        match op {
            StoreOp::Register(_) => Self::Register,
            StoreOp::ReadChannels { .. } => Self::ReadChannels,
            StoreOp::Fetch { .. } | StoreOp::FetchVersions { .. } => Self::Fetch,
            StoreOp::Delete { .. } => Self::Delete,
            StoreOp::RecordOffers { .. } => Self::RecordOffers,
            StoreOp::AddChannels { .. }
            | StoreOp::CreateChannels { .. }
            | StoreOp::RemoveChannel { .. }
            | StoreOp::RemoveChannelAndVersion { .. } => Self::WriteChannels,
            StoreOp::UpdateMonth(_) | StoreOp::FinishMove(_) => Self::MonthStep,
            StoreOp::MoveMessages { .. } => Self::MoveMessages,
            StoreOp::ClearNode { .. } => Self::ClearNode,
        }
    }
}

impl Default for StoreTimes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Histogram::new(LATENCY_BOUNDS)))
    }
}

impl StoreTimes {
    pub fn add(&self, call: StoreCall, took: Duration) {
        self.0[call as usize].add(took);
    }

    /// By the names of the kinds.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, HistogramCounts)> {
        let names = StoreCall::ALL.into_iter().map(|(_, name)| name);
        names.zip(self.0.iter().map(Histogram::counts))
    }
}

impl MonthMove {
    pub const ALL: [Self; 3] = [Self::Begun, Self::Resumed, Self::Done];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Resumed => "resumed",
            Self::Done => "done",
        }
    }

    /// The step that the store has answered, if it is one.
    pub(crate) fn of(answer: &StoreAnswer) -> Option<Self> {
        match answer {
            StoreAnswer::MonthUpdated(true) => Some(Self::Begun),
            StoreAnswer::MoveFinished(true) => Some(Self::Done),
            StoreAnswer::Registered(RegisterResult::Registered(record, _)) => {
                record.oldmonth.map(|_| Self::Resumed)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let times = Histogram::new(LATENCY_BOUNDS);
        for took_us in [0, 100, 101, 5_000_000, 5_000_001] {
            times.add(Duration::from_micros(took_us));
        }
        let counts = vec![2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1];
        let sum = Duration::from_micros(10_000_202);
        assert_eq!(times.counts(), HistogramCounts { bounds: LATENCY_BOUNDS, counts, sum });
    }

    #[test]
    fn each_store_call_has_a_histogram_of_its_own() {
        for (call, expected) in StoreCall::ALL {
            let times = StoreTimes::default();
            times.add(call, Duration::from_millis(3));
            let counted = times.counts().filter(|(_, counts)| counts.sum > Duration::ZERO);
            assert_eq!(counted.map(|(name, _)| name).collect::<Vec<_>>(), [expected]);
        }
    }
}
