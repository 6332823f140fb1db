//! The breaker, with single requests and with overlapping requests.

use proptest::prelude::*;

use super::*;
use crate::cases;

const NOW: Time = Time(1_000_000_000);
const LIMITS: BreakerLimits = BreakerLimits { backoff: Span(500), backoff_max: Span(5000) };

/// Open since `NOW`, by one failure.
fn open() -> Breaker {
    let mut breaker = Breaker::new();
    breaker.on_failure(breaker.epoch(), NOW, &LIMITS);
    breaker
}

#[test]
fn one_failure_opens_it_until_the_rest_is_over() {
    let mut breaker = Breaker::new();
    assert!(breaker.allow());
    assert_eq!(breaker.retry_at(), None);
    breaker.on_failure(breaker.epoch(), NOW, &LIMITS);
    assert!(!breaker.allow());
    assert_eq!(breaker.retry_at(), Some(NOW + Span(500)));
}

#[test]
fn a_push_does_not_try_a_node_whose_rest_is_over() {
    let mut breaker = open();
    assert_eq!(breaker.try_half_open(NOW + Span(499)), None);
    assert!(breaker.try_half_open(NOW + Span(500)).is_some());
    assert!(!breaker.allow(), "only the probe asks");
    assert_eq!(breaker.retry_at(), None);
}

#[test]
fn one_probe_is_under_way_at_a_time() {
    let mut breaker = open();
    assert!(breaker.try_half_open(NOW + Span(500)).is_some());
    assert_eq!(breaker.try_half_open(NOW + Span(9000)), None);
    assert_eq!(Breaker::new().try_half_open(NOW), None, "nothing is to be found out");
}

#[test]
fn the_rest_doubles_with_each_probe_that_fails_and_no_further_than_allowed() {
    let mut breaker = open();
    let mut rests = Vec::new();
    for _ in 0..6 {
        let now = breaker.retry_at().unwrap();
        let probe = breaker.try_half_open(now).unwrap();
        breaker.on_failure(probe, now, &LIMITS);
        rests.push(breaker.retry_at().unwrap().since(now).0);
    }
    assert_eq!(rests, [1000, 2000, 4000, 5000, 5000, 5000]);
}

#[test]
fn an_answer_closes_it_and_the_next_rest_is_the_first_again() {
    let mut breaker = open();
    let probe = breaker.try_half_open(NOW + Span(500)).unwrap();
    breaker.on_failure(probe, NOW + Span(600), &LIMITS);
    breaker.on_success();
    assert!(breaker.allow());
    breaker.on_failure(breaker.epoch(), NOW + Span(700), &LIMITS);
    assert_eq!(breaker.retry_at(), Some(NOW + Span(1200)));
}

#[test]
fn five_hundred_requests_that_fail_together_are_one_failure() {
    let mut breaker = Breaker::new();
    let epoch = breaker.epoch();
    for late in 0..500 {
        breaker.on_failure(epoch, NOW + Span(late), &LIMITS);
    }
    assert_eq!(breaker.retry_at(), Some(NOW + Span(500)));
}

#[test]
fn a_late_failure_is_not_taken_for_that_of_the_probe() {
    let mut breaker = Breaker::new();
    let push = breaker.epoch();
    breaker.on_failure(push, NOW, &LIMITS);
    breaker.try_half_open(NOW + Span(500)).unwrap();
    let probing = breaker.clone();
    breaker.on_failure(push, NOW + Span(510), &LIMITS);
    assert_eq!(breaker, probing);
}

#[test]
fn a_late_failure_does_not_open_it_after_the_node_is_back() {
    let mut breaker = Breaker::new();
    let push = breaker.epoch();
    breaker.on_failure(push, NOW, &LIMITS);
    breaker.try_half_open(NOW + Span(500)).unwrap();
    breaker.on_success();
    breaker.on_failure(push, NOW + Span(1000), &LIMITS);
    assert!(breaker.allow());
}

#[test]
fn a_late_answer_closes_it_and_outweighs_the_probe_it_overtook() {
    let mut breaker = open();
    let probe = breaker.try_half_open(NOW + Span(500)).unwrap();
    breaker.on_success();
    assert!(breaker.allow());
    breaker.on_failure(probe, NOW + Span(900), &LIMITS);
    assert!(breaker.allow(), "the node answered after that probe was sent");
}

#[test]
fn a_clock_that_is_set_back_does_not_leave_the_node_alone_for_longer() {
    let mut breaker = open();
    assert!(breaker.try_half_open(Time(NOW.0 - 3_600_000)).is_some());
}

#[test]
fn a_probe_is_not_due_in_the_millisecond_of_the_failure() {
    assert_eq!(open().try_half_open(NOW), None);
}

#[test]
fn spans_without_end_do_not_overflow() {
    let limits = BreakerLimits { backoff: Span(u64::MAX), backoff_max: Span(u64::MAX) };
    let mut breaker = Breaker::new();
    breaker.on_failure(breaker.epoch(), NOW, &limits);
    let probe = breaker.try_half_open(Time(u64::MAX)).unwrap();
    breaker.on_failure(probe, NOW, &limits);
    assert_eq!(breaker.retry_at(), Some(Time(u64::MAX)));
}

/// The operations of a trial, in any order.
#[derive(Debug, Clone)]
enum Op {
    /// A push begins a request if the breaker allows it.
    Begin,
    /// The request at this index of the list fails, if it is pending.
    Fail(usize),
    /// The node answers the request at this index, if it is pending.
    Answer(usize),
    /// The probe begins if it is due.
    Probe,
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Begin),
        4 => (0..8usize).prop_map(Op::Fail),
        1 => (0..8usize).prop_map(Op::Answer),
        3 => Just(Op::Probe),
        3 => (0..1500u64).prop_map(Op::Pass),
    ]
}

/// A breaker and its pending requests, each with whether it is the probe.
struct Trial {
    breaker: Breaker,
    now: Time,
    under_way: Vec<(Epoch, bool)>,
    /// Probes that failed since the last answer of the node. Failures of an earlier epoch do not
    /// count.
    probes_failed: u32,
}

impl Trial {
    fn new() -> Self {
        Self { breaker: Breaker::new(), now: NOW, under_way: Vec::new(), probes_failed: 0 }
    }

    fn run(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Begin if self.breaker.allow() => {
                self.under_way.push((self.breaker.epoch(), false));
            }
            Op::Begin => {}
            Op::Fail(at) => self.fail(at)?,
            Op::Answer(at) if at < self.under_way.len() => {
                self.under_way.remove(at);
                self.breaker.on_success();
                self.probes_failed = 0;
                prop_assert!(self.breaker.allow());
            }
            Op::Answer(_) => {}
            Op::Probe => {
                let epoch = self.breaker.try_half_open(self.now);
                self.under_way.extend(epoch.map(|epoch| (epoch, true)));
            }
            Op::Pass(span) => self.now = self.now + Span(span),
        }
        self.is_never_stuck()
    }

    fn fail(&mut self, at: usize) -> Result<(), TestCaseError> {
        if at >= self.under_way.len() {
            return Ok(());
        }
        let before = self.breaker.clone();
        let (epoch, is_probe) = self.under_way.remove(at);
        self.breaker.on_failure(epoch, self.now, &LIMITS);
        if self.breaker == before {
            return Ok(());
        }
        prop_assert_eq!(is_probe, !before.allow(), "a push opens it, a probe keeps it open");
        self.probes_failed += u32::from(is_probe);
        let backoff = LIMITS.backoff_max.0.min(LIMITS.backoff.0 << self.probes_failed.min(10));
        prop_assert_eq!(self.breaker.retry_at(), Some(self.now + Span(backoff)));
        Ok(())
    }

    /// Exactly one holds: the breaker is closed, a probe is due at some time, or a probe is
    /// pending.
    fn is_never_stuck(&self) -> Result<(), TestCaseError> {
        let probes = self.under_way.iter().filter(|(epoch, _)| *epoch == self.breaker.epoch());
        let is_probed = probes.filter(|(_, is_probe)| *is_probe).count() == 1;
        let ways = [self.breaker.allow(), self.breaker.retry_at().is_some(), is_probed];
        prop_assert_eq!(ways.into_iter().filter(|way| *way).count(), 1);
        self.is_due_at_its_deadline()
    }

    fn is_due_at_its_deadline(&self) -> Result<(), TestCaseError> {
        let Some(at) = self.breaker.retry_at() else { return Ok(()) };
        if self.now < at {
            prop_assert_eq!(self.breaker.clone().try_half_open(at - Span(1)), None);
        }
        prop_assert!(self.breaker.clone().try_half_open(at).is_some());
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases::config())]

    #[test]
    fn overlapping_requests_lengthen_no_backoff_and_leave_no_probe_pending(
        ops in prop::collection::vec(op(), 1..60)
    ) {
        let mut trial = Trial::new();
        for op in &ops {
            trial.run(op)?;
        }
    }
}
