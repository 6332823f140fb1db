//! The metrics as UDP packets for a statsd server: counters as their growth, gauges as they are, of a histogram the
//! growth of `count` and `sum_ms`. Label values follow the name with dots.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use slog::warn;
use state_machine::Span;
use state_machine::log_limiter::LogLimiter;
use tokio::time::sleep;

use super::collect::{Sample, Value, collect};
use super::table::Kind;
use crate::push::app::{AppState, SharedState};

/// What fits into a packet of Ethernet with room for tunnels.
pub const PACKET_BYTES_MAX: usize = 1432;

/// Minimum time between two log lines of failures.
const LOG_EVERY: Span = Span::from_secs(60);

/// The counters as they were sent last.
#[derive(Default)]
pub struct Growth(HashMap<String, u64>);

/// Sends the metrics until the process ends. A packet that cannot be sent is lost.
pub(super) fn start(address: SocketAddr, interval: Duration, node: AppState) {
    actix_web::rt::spawn(async move {
        let (mut growth, mut log_limiter) = (Growth::default(), LogLimiter::new(LOG_EVERY));
        loop {
            sleep(interval).await;
            let packets = growth.packets(&collect(&node).await);
            let sent = socket(address).and_then(|socket| {
                packets.iter().try_for_each(|packet| socket.send(packet.as_bytes()).map(drop))
            });
            let SharedState { clock, log, .. } = &**node.common;
            if let Err(error) = sent
                && let Some(suppressed) = log_limiter.allow(clock.now())
            {
                warn!(log, "cannot send metrics to statsd_address"; "error" => %error, "failures" => suppressed + 1);
            }
        }
    });
}

fn socket(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    Ok(socket)
}

impl Growth {
    /// Packets of whole lines, each of at most [`PACKET_BYTES_MAX`].
    pub fn packets(&mut self, samples: &[Sample]) -> Vec<String> {
        let mut packets = vec![String::new()];
        for line in samples.iter().flat_map(|sample| self.lines(sample)) {
            let last = packets.last_mut().expect("there is always one");
            if last.len() + line.len() < PACKET_BYTES_MAX {
                last.push_str(&line);
                last.push('\n');
            } else {
                packets.push(line + "\n");
            }
        }
        packets.retain(|packet| !packet.is_empty() && packet.len() <= PACKET_BYTES_MAX);
        packets
    }

    fn lines(&mut self, sample: &Sample) -> Vec<String> {
        let labels = sample.labels.iter().map(|value| value.replace(|c: char| !is_plain(c), "_"));
        let name = labels.fold(sample.metric.name.to_owned(), |name, label| name + "." + &label);
        match &sample.value {
            Value::Number(value) if sample.metric.kind == Kind::Gauge => {
                vec![format!("{name}:{value}|g")]
            }
            Value::Number(value) => self.grown(name, *value).into_iter().collect(),
            Value::Histogram(times) => {
                let sum_ms = u64::try_from(times.sum.as_millis()).unwrap_or(u64::MAX);
                let count = self.grown(format!("{name}.count"), times.counts.iter().sum());
                let sum = self.grown(format!("{name}.sum_ms"), sum_ms);
                count.into_iter().chain(sum).collect()
            }
        }
    }

    /// The line of a counter that has grown.
    fn grown(&mut self, name: String, now: u64) -> Option<String> {
        let grown = now.saturating_sub(self.0.get(&name).copied().unwrap_or(0));
        let line = (grown > 0).then(|| format!("{name}:{grown}|c"));
        self.0.insert(name, now);
        line
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use actors::counters::HistogramCounts;

    use super::super::table;
    use super::*;

    #[test]
    fn a_counter_is_sent_as_its_growth_and_a_gauge_as_it_is() {
        let samples = |expired| {
            let node = ["http://a.example:8081".into()];
            [
                Sample::new(&table::MESSAGES_EXPIRED, [], Value::Number(expired)),
                Sample::new(&table::NODE_NOTIFICATIONS, node, Value::Number(2)),
            ]
        };
        let gauge = "kalends_node_notifications_pending.http___a_example_8081:2|g\n";
        let mut growth = Growth::default();
        let counter = |grown| format!("kalends_messages_expired_total:{grown}|c\n{gauge}");
        assert_eq!(growth.packets(&samples(5)), [counter(5)]);
        assert_eq!(growth.packets(&samples(7)), [counter(2)]);
        assert_eq!(growth.packets(&samples(7)), [gauge]);
    }

    #[test]
    fn no_packet_is_larger_than_the_bound() {
        let node = |n: u64| {
            Sample::new(&table::NODE_NOTIFICATIONS, [format!("node-{n}").into()], Value::Number(n))
        };
        let samples: Vec<_> = (0..500).map(node).collect();
        let packets = Growth::default().packets(&samples);
        assert!(packets.len() > 1 && packets.iter().all(|packet| packet.len() <= PACKET_BYTES_MAX));
        assert_eq!(packets.iter().map(|packet| packet.lines().count()).sum::<usize>(), 500);
    }

    /// A packet is filled to the last byte, and a line above the bound is not sent.
    #[test]
    fn a_packet_is_as_large_as_the_bound() {
        let line = |bytes: usize| {
            let rest = format!("{}.:1|g", table::NODE_NOTIFICATIONS.name).len();
            let node = "n".repeat(bytes - rest);
            Sample::new(&table::NODE_NOTIFICATIONS, [node.into()], Value::Number(1))
        };
        let half = PACKET_BYTES_MAX / 2;
        let sizes = |lines: [usize; 2]| {
            let packets = Growth::default().packets(&lines.map(line));
            packets.iter().map(String::len).collect::<Vec<_>>()
        };
        // Each line ends with one more byte.
        assert_eq!(sizes([half - 1, half - 1]), [PACKET_BYTES_MAX]);
        assert_eq!(sizes([half - 1, half]), [half, half + 1]);
        assert_eq!(sizes([PACKET_BYTES_MAX - 1, 100]), [PACKET_BYTES_MAX, 101]);
        assert_eq!(sizes([PACKET_BYTES_MAX, 100]), [101]);
    }

    #[test]
    fn a_histogram_is_sent_as_the_growth_of_its_count_and_sum() {
        let times = |counts: &[u64], sum_ms| {
            let sum = Duration::from_millis(sum_ms);
            let times = HistogramCounts { bounds: &[], counts: counts.to_vec(), sum };
            [Sample::new(&table::PUSH_DIRECT, [], Value::Histogram(times))]
        };
        let name = table::PUSH_DIRECT.name;
        let lines = |count, sum| format!("{name}.count:{count}|c\n{name}.sum_ms:{sum}|c\n");
        let mut growth = Growth::default();
        assert_eq!(growth.packets(&times(&[1, 20], 300)), [lines(21, 300)]);
        assert_eq!(growth.packets(&times(&[2, 20], 307)), [lines(1, 7)]);
        assert_eq!(growth.packets(&times(&[2, 20], 307)), Vec::<String>::new());
    }
}
