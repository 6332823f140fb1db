//! Tracks pushes, deliveries and closed connections.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::percentile;

/// An ack that was sent this long before the end of its connection was read, and its message must
/// not be delivered again.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// The ledger that all tasks share.
#[derive(Clone, Default)]
pub(crate) struct SharedLedger(Arc<Mutex<Ledger>>);

#[derive(Default)]
pub(crate) struct Ledger {
    pushes: Vec<Push>,
    again: usize,
    again_after_settled: usize,
    /// Times and codes of connections that the node closed.
    closed: Vec<(Instant, Option<u16>)>,
    /// Times at which those agents had reconnected, and how long they were offline.
    back: Vec<(Instant, Duration)>,
    /// The number of rejected connections.
    refused: usize,
    /// Agents whose uaid was unknown after they reconnected.
    forgotten: usize,
}

struct Push {
    begun: Instant,
    answer: Option<Answer>,
    acked_at: Option<Instant>,
}

struct Answer {
    /// `None` if the connection failed.
    status: Option<u16>,
    took_ms: f64,
}

impl SharedLedger {
    /// Locks the ledger; the guard must not be held across an await.
    pub(crate) fn open(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().expect("no task panicked while it held the lock")
    }
}

impl Ledger {
    /// Records a push and returns its number.
    pub(crate) fn push(&mut self) -> usize {
        self.pushes.push(Push { begun: Instant::now(), answer: None, acked_at: None });
        self.pushes.len() - 1
    }

    /// The push was answered.
    pub(crate) fn answered(&mut self, number: usize, status: Option<u16>) {
        let push = &mut self.pushes[number];
        let took_ms = push.begun.elapsed().as_secs_f64() * 1000.0;
        push.answer = Some(Answer { status, took_ms });
    }

    /// A push was delivered and is acked now. The previous connection of the agent ended at
    /// `ended`.
    pub(crate) fn arrived(&mut self, number: usize, ended: Option<Instant>) {
        let now = Instant::now();
        if let Some(acked_at) = self.pushes[number].acked_at.replace(now) {
            let heard_until = ended.filter(|ended| *ended >= acked_at).unwrap_or(now);
            self.again += 1;
            self.again_after_settled += usize::from(heard_until - acked_at >= SETTLED_AFTER);
        }
    }

    /// The node closed the connection of an agent.
    pub(crate) fn closed(&mut self, code: Option<u16>) {
        self.closed.push((Instant::now(), code));
    }

    /// The agent has reconnected after this many rejections.
    pub(crate) fn back(&mut self, away: Duration, refused: usize, is_known: bool) {
        self.back.push((Instant::now(), away));
        self.refused += refused;
        self.forgotten += usize::from(!is_known);
    }

    /// The number of agents that were closed and have reconnected.
    pub(crate) fn count_back(&self) -> usize {
        self.back.len()
    }

    /// The number of pushes that were answered 201 and not delivered.
    pub(crate) fn missing(&self) -> usize {
        let is_missing = |push: &&Push| push.is_taken() && push.acked_at.is_none();
        self.pushes.iter().filter(is_missing).count()
    }

    /// The number of delivered pushes.
    pub(crate) fn arrivals(&self) -> usize {
        self.pushes.iter().filter(|push| push.acked_at.is_some()).count() + self.again
    }

    /// The number of answers by status.
    pub(crate) fn answers(&self) -> Value {
        let count = |wanted: fn(Option<u16>) -> bool| {
            let answers = self.pushes.iter().filter_map(|push| push.answer.as_ref());
            answers.filter(|answer| wanted(answer.status)).count()
        };
        json!({
            "sent": self.pushes.len(),
            "201": count(|status| status == Some(201)),
            "503": count(|status| status == Some(503)),
            "other": count(|status| !matches!(status, Some(201 | 503))),
        })
    }

    /// The durations of pushes that were started in this interval.
    pub(crate) fn latencies(&self, from: Instant, to: Instant) -> Value {
        let among = self.pushes.iter().filter(|push| (from..to).contains(&push.begun));
        let mut ms: Vec<_> = among.filter_map(|push| Some(push.answer.as_ref()?.took_ms)).collect();
        ms.sort_by(f64::total_cmp);
        json!({
            "p50": percentile(&ms, 50), "p99": percentile(&ms, 99), "max": percentile(&ms, 100),
        })
    }

    /// The numbers of repeated deliveries.
    pub(crate) fn repeats(&self) -> Value {
        json!({"all": self.again, "after_settled_ack": self.again_after_settled})
    }

    /// When connections were closed, relative to SIGTERM.
    pub(crate) fn closes(&self, signalled_at: Instant) -> Value {
        let after = sorted_s(self.closed.iter().map(|(closed, _)| *closed - signalled_at));
        json!({
            "all": self.closed.len(),
            "with_1001": self.closed.iter().filter(|(_, code)| *code == Some(1001)).count(),
            "first_s": percentile(&after, 0),
            "p50_s": percentile(&after, 50),
            "last_s": percentile(&after, 100),
        })
    }

    /// When agents had reconnected, relative to SIGTERM.
    pub(crate) fn returns(&self, signalled_at: Instant) -> Value {
        let after = sorted_s(self.back.iter().map(|(back, _)| *back - signalled_at));
        let away = sorted_s(self.back.iter().map(|(_, away)| *away));
        json!({
            "all": self.back.len(),
            "last_s": percentile(&after, 100),
            "away_p50_s": percentile(&away, 50),
            "away_max_s": percentile(&away, 100),
            "refused_tries": self.refused,
            "forgotten": self.forgotten,
        })
    }
}

impl Push {
    fn is_taken(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.status == Some(201))
    }
}

fn sorted_s(times: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut seconds: Vec<_> = times.map(|time| time.as_secs_f64()).collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test]
    async fn accepted_pushes_that_never_arrive_are_missing() {
        let mut ledger = Ledger::default();
        for status in [Some(201), Some(201), Some(503), None] {
            let number = ledger.push();
            ledger.answered(number, status);
        }
        assert_eq!(ledger.missing(), 2);
        ledger.arrived(1, None);
        assert_eq!(ledger.missing(), 1);
        assert_eq!(ledger.answers(), json!({"sent": 4, "201": 2, "503": 1, "other": 1}));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ack_is_settled_a_second_later_if_its_connection_was_still_there() {
        const HALF: Duration = Duration::from_millis(500);
        for (halves_before_end, is_settled) in [(1, false), (2, true)] {
            let mut ledger = Ledger::default();
            let number = ledger.push();
            ledger.arrived(number, None);
            advance(HALF * halves_before_end).await;
            let ended = Instant::now();
            advance(HALF * 4).await;
            ledger.arrived(number, Some(ended));
            let settled = usize::from(is_settled);
            assert_eq!(ledger.repeats(), json!({"all": 1, "after_settled_ack": settled}));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_again_on_the_connection_of_its_ack_comes_too_late_after_a_second() {
        let mut ledger = Ledger::default();
        let (ended, number) = (Instant::now(), ledger.push());
        advance(SETTLED_AFTER).await;
        ledger.arrived(number, Some(ended));
        advance(SETTLED_AFTER).await;
        ledger.arrived(number, Some(ended));
        assert_eq!(ledger.repeats(), json!({"all": 1, "after_settled_ack": 1}));
    }
}
