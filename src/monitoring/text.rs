//! The texts that scrapers read: OpenMetrics 1.0, and the older text format of Prometheus.

use std::fmt::Write;

use super::collect::{Sample, Value};
use super::table::{self, Kind, Metric};

/// A text format. Their samples are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    /// For scrapers that do not accept OpenMetrics.
    Prometheus,
}

impl Format {
    /// The format for a request with this `Accept`.
    pub fn accepted(accept: &str) -> Self {
        match accept.contains("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The name of a family: in OpenMetrics that of a counter has no `_total`.
    fn family(self, metric: &Metric) -> &'static str {
        match self {
            Self::OpenMetrics => metric.name.strip_suffix("_total").unwrap_or(metric.name),
            Self::Prometheus => metric.name,
        }
    }
}

/// Writes all samples, in the order of the table.
pub fn write(samples: &[Sample], format: Format) -> String {
    let mut text = String::new();
    for metric in table::ALL {
        let mut of_metric = samples.iter().filter(|sample| sample.is_of(metric)).peekable();
        if of_metric.peek().is_none() {
            continue;
        }
        let (family, help, kind) = (format.family(metric), metric.help(), metric.kind.name());
        push(&mut text, format_args!("# HELP {family} {help}\n# TYPE {family} {kind}\n"));
        of_metric.for_each(|sample| write_sample(&mut text, sample));
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn write_sample(text: &mut String, sample: &Sample) {
    let name = sample.metric.name;
    match &sample.value {
        Value::Number(value) => {
            push(text, format_args!("{name}{} {value}\n", labels(sample, None)));
        }
        Value::Histogram(times) => {
            let mut below = 0;
            for (place, count) in times.counts.iter().enumerate() {
                below += count;
                let bound = times.bounds.get(place).map(|bound| bound.as_secs_f64().to_string());
                let labels = labels(sample, Some(bound.as_deref().unwrap_or("+Inf")));
                push(text, format_args!("{name}_bucket{labels} {below}\n"));
            }
            let (labels, sum) = (labels(sample, None), times.sum.as_secs_f64());
            push(text, format_args!("{name}_sum{labels} {sum}\n{name}_count{labels} {below}\n"));
        }
    }
}

/// The labels of a sample in braces, with the upper bound of a bucket.
fn labels(sample: &Sample, bound: Option<&str>) -> String {
    let names = sample.metric.labels.iter().map(|label| label.name);
    let own = names.zip(sample.labels.iter().map(|value| &**value));
    let all = own.chain(bound.map(|bound| ("le", bound)));
    let all: Vec<_> = all.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a text does not fail");
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actors::counters::{Histogram, LATENCY_BOUNDS};

    use super::*;

    #[test]
    fn a_counter_a_labelled_gauge_and_a_histogram_are_written_as_the_format_wants() {
        let times = Histogram::new(LATENCY_BOUNDS);
        times.add(Duration::from_micros(400));
        times.add(Duration::from_secs(6));
        let samples = [
            Sample::new(&table::MESSAGES_EXPIRED, [], Value::Number(3)),
            Sample::new(&table::NODE_NOTIFICATIONS, ["a\"b\\c".into()], Value::Number(7)),
            Sample::new(&table::PUSH_DIRECT, [], Value::Histogram(times.counts())),
        ];
        let text = write(&samples, Format::OpenMetrics);
        for line in [
            "# TYPE kalends_messages_expired counter",
            "kalends_messages_expired_total 3",
            r#"kalends_node_notifications_pending{node="a\"b\\c"} 7"#,
            r#"kalends_push_direct_seconds_bucket{le="0.0001"} 0"#,
            r#"kalends_push_direct_seconds_bucket{le="0.0005"} 1"#,
            r#"kalends_push_direct_seconds_bucket{le="+Inf"} 2"#,
            "kalends_push_direct_seconds_sum 6.0004",
            "kalends_push_direct_seconds_count 2",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let text = write(&samples, Format::Prometheus);
        assert!(text.contains("# TYPE kalends_messages_expired_total counter\n"), "{text}");
        assert!(!text.contains("EOF"));
    }
}
