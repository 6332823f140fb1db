//! What was pushed, what arrived, and who had to go.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::percentile;

/// An ack that was said so long before its connection ended was read, and what it is for must not come again.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// The ledger of all tasks.
#[derive(Clone, Default)]
pub(crate) struct SharedLedger(Arc<Mutex<Ledger>>);

/// All that happened so far.
#[derive(Default)]
pub(crate) struct Ledger {
    pushes: Vec<Push>,
    again: usize,
    again_after_settled: usize,
    /// When connections were closed by the node, and with which code.
    closed: Vec<(Instant, Option<u16>)>,
    /// When those agents were back, and how long they had been away.
    back: Vec<(Instant, Duration)>,
    /// How often they were not let in.
    refused: usize,
    /// Agents whose id was not known any more.
    forgotten: usize,
}

struct Push {
    begun: Instant,
    answer: Option<Answer>,
    acked_at: Option<Instant>,
}

struct Answer {
    /// None where the connection broke.
    status: Option<u16>,
    took_ms: f64,
}

impl SharedLedger {
    /// To write or read, and not to be held while anything is waited for.
    pub(crate) fn open(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().expect("nobody panicked with it")
    }
}

impl Ledger {
    /// One more push; its number.
    pub(crate) fn push(&mut self) -> usize {
        self.pushes.push(Push { begun: Instant::now(), answer: None, acked_at: None });
        self.pushes.len() - 1
    }

    /// A push was answered.
    pub(crate) fn answered(&mut self, number: usize, status: Option<u16>) {
        let push = &mut self.pushes[number];
        let took_ms = push.begun.elapsed().as_secs_f64() * 1000.0;
        push.answer = Some(Answer { status, took_ms });
    }

    /// A push arrived, and is acked now, by an agent whose connection before this one ended then.
    pub(crate) fn arrived(&mut self, number: usize, ended: Option<Instant>) {
        let now = Instant::now();
        if let Some(acked_at) = self.pushes[number].acked_at.replace(now) {
            let heard_until = ended.filter(|ended| *ended >= acked_at).unwrap_or(now);
            self.again += 1;
            self.again_after_settled += usize::from(heard_until - acked_at >= SETTLED_AFTER);
        }
    }

    /// The node closed an agent's connection.
    pub(crate) fn closed(&mut self, code: Option<u16>) {
        self.closed.push((Instant::now(), code));
    }

    /// The agent is back, after so many refusals.
    pub(crate) fn back(&mut self, away: Duration, refused: usize, is_known: bool) {
        self.back.push((Instant::now(), away));
        self.refused += refused;
        self.forgotten += usize::from(!is_known);
    }

    /// How many agents were closed and are back.
    pub(crate) fn count_back(&self) -> usize {
        self.back.len()
    }

    /// How many pushes were answered 201 and never arrived.
    pub(crate) fn missing(&self) -> usize {
        let is_missing = |push: &&Push| push.is_taken() && push.acked_at.is_none();
        self.pushes.iter().filter(is_missing).count()
    }

    /// How many arrived.
    pub(crate) fn arrivals(&self) -> usize {
        self.pushes.iter().filter(|push| push.acked_at.is_some()).count() + self.again
    }

    /// What was said about each push.
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

    /// How long pushes took that were begun from one time to another.
    pub(crate) fn latencies(&self, from: Instant, to: Instant) -> Value {
        let among = self.pushes.iter().filter(|push| (from..to).contains(&push.begun));
        let mut ms: Vec<_> = among.filter_map(|push| Some(push.answer.as_ref()?.took_ms)).collect();
        ms.sort_by(f64::total_cmp);
        json!({
            "p50": percentile(&ms, 50), "p99": percentile(&ms, 99), "max": percentile(&ms, 100),
        })
    }

    /// What came twice.
    pub(crate) fn repeats(&self) -> Value {
        json!({"all": self.again, "after_settled_ack": self.again_after_settled})
    }

    /// When agents were closed, from when the node was told to stop.
    pub(crate) fn closes(&self, told: Instant) -> Value {
        let after = sorted_s(self.closed.iter().map(|(closed, _)| *closed - told));
        json!({
            "all": self.closed.len(),
            "with_1001": self.closed.iter().filter(|(_, code)| *code == Some(1001)).count(),
            "first_s": percentile(&after, 0),
            "p50_s": percentile(&after, 50),
            "last_s": percentile(&after, 100),
        })
    }

    /// How agents came back, from when the node was told to stop.
    pub(crate) fn returns(&self, told: Instant) -> Value {
        let after = sorted_s(self.back.iter().map(|(back, _)| *back - told));
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
    async fn what_was_answered_201_and_never_arrived_is_missing_and_nothing_else() {
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
