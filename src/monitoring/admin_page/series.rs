//! The series of the figures, and how their values follow from the metrics.

use crate::monitoring::collect::{Sample, Value};
use crate::monitoring::table::{self, Metric};

/// The series by the names that the page uses: user agents, pushes in a minute, and the time in milliseconds below which
/// this share of the direct pushes was.
pub(super) const SERIES: [&str; 6] =
    ["agents", "delivered", "stored", "refused", "direct_p50", "direct_p99"];

/// The values of one point, in the order of [`SERIES`]. None is a value that is not known.
pub(super) type Values = [Option<f64>; SERIES.len()];

/// Outcomes of pushes that count as delivered: a bridge has taken the message over.
const DELIVERED: &[&str] = &["delivered", "bridge"];

/// Responses to pushes that are no success.
const REFUSED: &[&str] =
    &["400", "401", "403", "404", "408", "410", "413", "429", "502", "503", "other"];

/// What the metrics have at a moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) agents: Option<f64>,
    /// Since the start: delivered, stored and refused.
    pushes: [Option<f64>; 3],
    /// The upper bounds of bands in milliseconds, and the direct pushes in each since the start.
    direct: Option<(Vec<f64>, Vec<u64>)>,
}

impl Reading {
    pub(super) fn of(samples: &[Sample]) -> Self {
        let sum = |metric, labels: &[&str]| sum(samples, metric, labels);
        Self {
            agents: sum(&table::CONNECTIONS, &[]),
            pushes: [
                sum(&table::PUSHES, DELIVERED),
                sum(&table::PUSHES, &["stored"]),
                sum(&table::PUSH_RESPONSES, REFUSED),
            ],
            direct: bands(samples),
        }
    }

    /// The values of the time since another reading, in which these user agents were connected.
    pub(super) fn since(&self, before: &Self, minutes: f64, agents: Option<f64>) -> Values {
        let rate = |place: usize| {
            let grown = self.pushes[place]? - before.pushes[place]?;
            // Of the first reading, nothing is known.
            (minutes > 0.0).then(|| grown.max(0.0) / minutes)
        };
        let quantile = |share| self.quantile(before, share);
        [agents, rate(0), rate(1), rate(2), quantile(0.5), quantile(0.99)]
    }

    /// The upper bound in milliseconds of the band in which the share lies.
    fn quantile(&self, before: &Self, share: f64) -> Option<f64> {
        let ((bounds, now), (_, before)) = (self.direct.as_ref()?, before.direct.as_ref()?);
        let grown = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before));
        let grown: Vec<_> = grown.collect();
        let wanted = (grown.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut below = 0;
        let place = grown.iter().position(|count| {
            below += count;
            wanted > 0 && below >= wanted
        })?;
        // What exceeds all bounds is shown at the last one.
        Some(bounds[place.min(bounds.len() - 1)])
    }
}

/// The samples of a metric with any of these labels; without labels all. None if there are none.
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

fn bands(samples: &[Sample]) -> Option<(Vec<f64>, Vec<u64>)> {
    let sample = samples.iter().find(|sample| sample.is_of(&table::PUSH_DIRECT))?;
    let Value::Histogram(times) = &sample.value else { return None };
    let bounds = times.bounds.iter().map(|bound| bound.as_secs_f64() * 1000.0).collect();
    Some((bounds, times.counts.clone()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use actors::counters::{Histogram, LATENCY_BOUNDS};

    use super::*;
    use crate::push::push_counters::{OUTCOMES, STATUSES};

    pub(in super::super) fn reading(delivered: u64, took: &[Duration]) -> Reading {
        let times = Histogram::new(LATENCY_BOUNDS);
        took.iter().for_each(|took| times.add(*took));
        let number = Value::Number;
        Reading::of(&[
            Sample::new(&table::PUSHES, ["delivered".into()], number(delivered)),
            Sample::new(&table::PUSHES, ["full".into()], number(7)),
            Sample::new(&table::PUSH_RESPONSES, ["503".into()], number(delivered)),
            Sample::new(&table::PUSH_RESPONSES, ["201".into()], number(99)),
            Sample::new(&table::PUSH_DIRECT, [], Value::Histogram(times.counts())),
        ])
    }

    #[test]
    fn rates_are_of_a_minute_and_what_is_not_known_is_none() {
        let slow = Duration::from_millis(40);
        let before = reading(10, &[slow]);
        let now = reading(15, &[slow, Duration::from_micros(50), slow]);
        let expected = [Some(3.0), Some(2.5), Some(0.0), Some(2.5), Some(0.1), Some(50.0)];
        assert_eq!(now.since(&before, 2.0, Some(3.0)), expected);
        assert_eq!(before.since(&before, 2.0, None)[4..], [None, None], "no push was direct");
        assert_eq!(now.since(&before, 0.0, None)[1..4], [None; 3], "no time has passed");
        assert_eq!(Reading::default().since(&before, 2.0, None), [None; 6]);
        // The counters began again.
        assert_eq!(before.since(&now, 2.0, None)[1], Some(0.0));
    }

    #[test]
    fn the_labels_are_those_of_the_metrics() {
        assert!(DELIVERED.iter().all(|outcome| OUTCOMES.contains(outcome)));
        let successes = STATUSES.iter().filter(|status| !REFUSED.contains(status));
        assert_eq!(successes.collect::<Vec<_>>(), [&"200", &"201", &"202"]);
    }
}
