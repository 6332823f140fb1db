//! What the plots show: a few series of numbers, read from the metrics, in a ring of fixed size.

use std::collections::VecDeque;

use serde_json::json;
use state_machine::{Span, Time};

use crate::monitoring::collect::{Sample, Value};
use crate::monitoring::table::{self, Metric};

/// Time between two points.
pub(super) const POINT_EVERY: Span = Span::from_secs(15);

/// Points that are kept: those of six hours.
pub(super) const POINTS_MAX: usize = 1440;

/// How a series follows from the metrics. Labels select samples by any of their labels; none selects all.
enum Source {
    Gauge(&'static Metric, &'static [&'static str]),
    /// The growth of a counter in a second.
    Rate(&'static Metric, &'static [&'static str]),
    /// The time in milliseconds below which this share of the operations since the last point was.
    Quantile(&'static Metric, f64),
}

use Source::{Gauge, Quantile, Rate};

/// Outcomes of pushes that are no success.
const REFUSED: &[&str] =
    &["dropped", "user_gone", "no_such_channel", "full", "bridge", "other_protocol"];

/// The series by the names that the page uses.
static SERIES: [(&str, Source); 18] = [
    ("connections", Gauge(&table::PORT_CONNECTIONS, &[])),
    ("ready", Gauge(&table::CLIENTS, &["ready"])),
    ("moving", Gauge(&table::CLIENTS, table::MOVING)),
    ("delivered", Rate(&table::PUSHES, &["delivered"])),
    ("stored", Rate(&table::PUSHES, &["stored"])),
    ("refused", Rate(&table::PUSHES, REFUSED)),
    ("unavailable", Rate(&table::PUSH_RESPONSES, &["503"])),
    ("busy", Rate(&table::PUSH_ANSWERS_TOTAL, &["busy"])),
    ("direct_p50", Quantile(&table::PUSH_DIRECT, 0.5)),
    ("direct_p99", Quantile(&table::PUSH_DIRECT, 0.99)),
    ("waiting", Gauge(&table::WAITING_MESSAGES, &[])),
    ("store_queue", Gauge(&table::STORE_QUEUE, &[])),
    ("store_p99", Quantile(&table::STORE_OPERATION, 0.99)),
    ("moved", Rate(&table::MONTH_MOVES, &["done"])),
    ("limited", Rate(&table::LIMIT_REFUSALS, &[])),
    ("breakers", Gauge(&table::NODE_BREAKER, &["open", "half_open"])),
    ("followers", Gauge(&table::FEED_FOLLOWERS, &[])),
    ("memory", Gauge(&table::PROCESS_MEMORY, &[])),
];

#[derive(Debug, Clone, Copy)]
struct Point {
    at: Time,
    /// In the order of [`SERIES`]. A value that is not known is NaN.
    values: [f32; SERIES.len()],
}

/// The last points. It has its whole size from the start, 112 KiB.
pub(super) struct History {
    points: VecDeque<Point>,
    /// All points that were ever added.
    added: u64,
    /// The samples of the last point, for the growth since then.
    last: Option<(Time, Vec<Sample>)>,
}

impl History {
    pub(super) fn new() -> Self {
        Self { points: VecDeque::with_capacity(POINTS_MAX), added: 0, last: None }
    }

    /// All points that were ever added.
    pub(super) fn added(&self) -> u64 {
        self.added
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.last.as_ref().is_none_or(|(at, _)| now.since(*at) >= POINT_EVERY)
    }

    pub(super) fn add(&mut self, now: Time, samples: Vec<Sample>) {
        let before = self.last.as_ref().map(|(at, samples)| (now.since(*at), samples.as_slice()));
        let value = |(_, source): &(_, Source)| source.value(&samples, before);
        let values = SERIES.each_ref().map(|series| value(series).map_or(f32::NAN, |v| v as f32));
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(Point { at: now, values });
        self.added += 1;
        self.last = Some((now, samples));
    }

    /// The points that were added after the first `seen`, as JSON: their times in milliseconds since 1970, and a column
    /// for each series. A value that is not known is `null`.
    pub(super) fn since(&self, seen: u64) -> String {
        let new = usize::try_from(self.added.saturating_sub(seen)).unwrap_or(usize::MAX);
        let points = || self.points.iter().skip(self.points.len().saturating_sub(new));
        let column = |(place, (name, _)): (usize, &(&str, Source))| {
            let values = points().map(|point| rounded(point.values[place]));
            ((*name).to_owned(), values.collect())
        };
        let columns: serde_json::Map<_, _> = SERIES.iter().enumerate().map(column).collect();
        let at: Vec<_> = points().map(|point| point.at.0).collect();
        json!({ "at": at, "columns": columns }).to_string()
    }
}

/// A number with three decimals, so that its text is short.
fn rounded(value: f32) -> serde_json::Value {
    let rounded = (f64::from(value) * 1000.0).round() / 1000.0;
    if rounded.fract() == 0.0 { (rounded as i64).into() } else { rounded.into() }
}

impl Source {
    /// The value, if the metric is there. A rate needs the samples before, and the time since then.
    fn value(&self, now: &[Sample], before: Option<(Span, &[Sample])>) -> Option<f64> {
        match self {
            Gauge(metric, labels) => sum(now, metric, labels),
            Rate(metric, labels) => {
                let (time, before) = before?;
                let grown = sum(now, metric, labels)? - sum(before, metric, labels)?;
                Some(grown.max(0.0) * 1000.0 / time.0.max(1) as f64)
            }
            Quantile(metric, share) => quantile(now, before?.1, metric, *share),
        }
    }
}

fn sum(samples: &[Sample], metric: &Metric, labels: &[&str]) -> Option<f64> {
    let is_wanted = |sample: &Sample| {
        labels.is_empty() || sample.labels.iter().any(|label| labels.contains(&&**label))
    };
    let number = |sample: &Sample| match &sample.value {
        Value::Number(number) if is_wanted(sample) => *number as f64,
        _ => 0.0,
    };
    samples.iter().filter(|sample| sample.is_of(metric)).map(number).reduce(|all, one| all + one)
}

/// The upper bound in milliseconds of the band in which the share lies, of all histograms of the metric together.
fn quantile(now: &[Sample], before: &[Sample], metric: &Metric, share: f64) -> Option<f64> {
    let (bounds, now) = bands(now, metric)?;
    let (_, before) = bands(before, metric)?;
    let grown: Vec<_> =
        now.iter().zip(&before).map(|(now, before)| now.saturating_sub(*before)).collect();
    let wanted = (grown.iter().sum::<u64>() as f64 * share).ceil() as u64;
    let mut below = 0;
    let place = grown.iter().position(|count| {
        below += count;
        wanted > 0 && below >= wanted
    })?;
    // What exceeds all bounds is shown at the last one.
    Some(bounds[place.min(bounds.len() - 1)])
}

fn bands(samples: &[Sample], metric: &Metric) -> Option<(Vec<f64>, Vec<u64>)> {
    let mut all: Option<(Vec<f64>, Vec<u64>)> = None;
    for sample in samples.iter().filter(|sample| sample.is_of(metric)) {
        let Value::Histogram(times) = &sample.value else { continue };
        let bounds = || times.bounds.iter().map(|bound| bound.as_secs_f64() * 1000.0).collect();
        let (_, counts) = all.get_or_insert_with(|| (bounds(), vec![0; times.counts.len()]));
        counts.iter_mut().zip(&times.counts).for_each(|(all, count)| *all += count);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actors::counters::{Histogram, LATENCY_BOUNDS};

    use super::*;

    fn samples(delivered: u64, took: &[Duration]) -> Vec<Sample> {
        let times = Histogram::new(LATENCY_BOUNDS);
        took.iter().for_each(|took| times.add(*took));
        let number = Value::Number;
        vec![
            Sample::new(&table::PUSHES, ["delivered".into()], number(delivered)),
            Sample::new(&table::PUSHES, ["full".into()], number(7)),
            Sample::new(&table::CLIENTS, ["copying_chids".into()], number(2)),
            Sample::new(&table::CLIENTS, ["draining_again".into()], number(3)),
            Sample::new(&table::PUSH_DIRECT, [], Value::Histogram(times.counts())),
        ]
    }

    fn json(history: &History, seen: u64) -> serde_json::Value {
        serde_json::from_str(&history.since(seen)).unwrap()
    }

    #[test]
    fn a_point_has_gauges_rates_and_quantiles_and_null_for_what_is_not_known() {
        let mut history = History::new();
        let slow = Duration::from_millis(40);
        history.add(Time(1000), samples(10, &[slow]));
        history.add(Time(3000), samples(15, &[slow, Duration::from_micros(50), slow]));
        let read = json(&history, 0);
        let columns = &read["columns"];
        assert_eq!(read["at"], serde_json::json!([1000, 3000]));
        assert_eq!(columns["moving"], serde_json::json!([5, 5]));
        assert_eq!(columns["delivered"], serde_json::json!([null, 2.5]));
        assert_eq!(columns["refused"], serde_json::json!([null, 0]));
        assert_eq!(columns["direct_p50"], serde_json::json!([null, 0.1]));
        assert_eq!(columns["direct_p99"], serde_json::json!([null, 50]));
        assert_eq!(columns["memory"], serde_json::json!([null, null]));
        assert_eq!(json(&history, 1)["at"], serde_json::json!([3000]));
    }

    #[test]
    fn a_counter_that_began_again_has_no_negative_rate() {
        let mut history = History::new();
        history.add(Time(1000), samples(10, &[]));
        history.add(Time(2000), samples(1, &[]));
        assert_eq!(json(&history, 1)["columns"]["delivered"], serde_json::json!([0]));
    }

    #[test]
    fn the_history_never_exceeds_its_size() {
        let mut history = History::new();
        let capacity = history.points.capacity();
        for at in 0..POINTS_MAX as u64 + 500 {
            history.add(Time(at * POINT_EVERY.0), samples(at, &[]));
        }
        assert_eq!((history.points.len(), history.points.capacity()), (POINTS_MAX, capacity));
        assert_eq!(json(&history, 0)["at"].as_array().unwrap().len(), POINTS_MAX);
        assert_eq!(json(&history, history.added())["at"], serde_json::json!([]));
        assert_eq!(capacity * size_of::<Point>(), POINTS_MAX * 80);
        assert!(!history.is_due(Time(1)) && history.is_due(Time(u64::MAX)));
    }
}
