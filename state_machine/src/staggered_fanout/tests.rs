//! The schedule, driven as its actor drives it: each tick runs when it is due.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cases;

const START: Time = Time(1_000_000);
const PERIOD: Span = Span::from_secs(60);

/// A schedule whose subscribers are their own ids, and the wake-ups so far.
struct Watch {
    schedule: FanoutSchedule<u64>,
    now: Time,
    /// The time and subscriber of each wake-up, in order.
    woken: Vec<(Time, u64)>,
}

impl Watch {
    fn new(period: Span) -> Self {
        Self { schedule: FanoutSchedule::new(period), now: START, woken: Vec::new() }
    }

    fn subscribe(&mut self, slot: u32, id: u64, told: u64) {
        self.schedule.subscribe(self.now, slot, ConnectionId(id), FeedSyncId(told), id);
    }

    fn changed(&mut self, head: u64) {
        self.schedule.changed(self.now, FeedSyncId(head));
    }

    /// Advances the clock and runs each tick that is due.
    fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(due) = self.schedule.deadline().filter(|due| *due <= until) {
            // A subscriber that joins behind the cursor's true position is due at once.
            self.is_not_due_before(due);
            self.now = self.now.max(due);
            self.tick();
        }
        self.now = until;
    }

    /// Checks that a deadline is late by less than a tick: that long before it no subscriber is to be woken.
    fn is_not_due_before(&self, due: Time) {
        if self.now + TICK <= due {
            self.schedule.clone().tick(due - TICK, |id| panic!("{id} is due before {due:?}"));
        }
    }

    fn tick(&mut self) {
        let Self { schedule, now, woken } = self;
        schedule.tick(*now, |id| {
            woken.push((*now, *id));
            true
        });
    }

    fn ids(&self) -> Vec<u64> {
        self.woken.iter().map(|(_, id)| *id).collect()
    }
}

/// The slot at this many hundredths of a round.
fn at(hundredths: u64) -> u32 {
    u32::try_from(ROUND * hundredths / 100).unwrap()
}

#[test]
fn a_schedule_at_rest_has_no_deadline_and_wakes_no_subscriber() {
    let mut watch = Watch::new(PERIOD);
    assert!(watch.schedule.is_empty());
    watch.subscribe(at(10), 1, 0);
    assert_eq!(watch.schedule.deadline(), None);
    assert_eq!(watch.schedule.tick(START, |_| panic!("nothing changed")), 0);
    assert_eq!((watch.schedule.len(), watch.schedule.is_empty()), (1, false));
}

#[test]
fn a_change_wakes_each_when_the_hand_passes_it() {
    let mut watch = Watch::new(PERIOD);
    for hundredths in [75, 25, 50] {
        watch.subscribe(at(hundredths), hundredths, 0);
    }
    watch.changed(1);
    watch.pass(PERIOD);
    let after = |secs| START + Span::from_secs(secs) + Span(1);
    assert_eq!(watch.woken, [(after(15), 25), (after(30), 50), (after(45), 75)]);
    assert_eq!(watch.schedule.deadline(), None);
}

#[test]
fn a_change_on_the_way_makes_the_hand_pass_again_those_it_has_passed() {
    let mut watch = Watch::new(PERIOD);
    watch.subscribe(at(25), 1, 0);
    watch.subscribe(at(75), 2, 0);
    watch.changed(1);
    watch.pass(Span::from_secs(30));
    watch.changed(2);
    watch.pass(PERIOD);
    assert_eq!(watch.ids(), [1, 2, 1]);
    assert!(watch.woken[2].0 <= START + Span::from_secs(90));
    assert_eq!(watch.schedule.deadline(), None);
}

#[test]
fn a_change_that_was_seen_before_begins_no_round() {
    let mut watch = Watch::new(PERIOD);
    watch.subscribe(at(25), 1, 0);
    watch.changed(3);
    watch.pass(PERIOD);
    watch.changed(3);
    assert_eq!(watch.schedule.deadline(), None);
}

#[test]
fn a_feed_that_was_started_anew_is_news_to_everybody() {
    let mut watch = Watch::new(PERIOD);
    watch.changed(9);
    watch.subscribe(at(25), 1, 9);
    watch.changed(2);
    watch.pass(PERIOD);
    assert_eq!(watch.ids(), [1]);
}

#[test]
fn a_subscriber_with_a_greater_number_of_the_feed_before_its_restart_is_woken() {
    let mut watch = Watch::new(PERIOD);
    watch.changed(2);
    watch.subscribe(at(25), 1, 9);
    watch.pass(PERIOD);
    assert_eq!(watch.ids(), [1]);
}

#[test]
fn a_subscriber_that_has_seen_the_change_is_not_woken() {
    let mut watch = Watch::new(PERIOD);
    watch.changed(5);
    watch.subscribe(at(25), 1, 5);
    watch.subscribe(at(50), 2, 4);
    watch.pass(PERIOD);
    assert_eq!(watch.ids(), [2]);
}

#[test]
fn a_new_subscriber_without_the_last_change_begins_a_round() {
    let mut watch = Watch::new(PERIOD);
    watch.changed(1);
    assert_eq!(watch.schedule.deadline(), None, "no subscriber is left");
    watch.subscribe(at(10), 1, 1);
    assert_eq!(watch.schedule.deadline(), None, "everybody knows");
    watch.subscribe(at(90), 2, 0);
    watch.pass(Span::from_secs(50));
    watch.subscribe(at(5), 3, 0);
    watch.pass(PERIOD);
    assert_eq!(watch.ids(), [2, 3]);
}

#[test]
fn a_subscriber_that_unsubscribes_during_a_round_is_not_woken() {
    let mut watch = Watch::new(PERIOD);
    watch.subscribe(at(25), 1, 0);
    watch.subscribe(at(75), 2, 0);
    watch.changed(1);
    watch.pass(Span::from_secs(30));
    assert!(watch.schedule.unsubscribe(at(75), ConnectionId(2)));
    assert!(!watch.schedule.unsubscribe(at(75), ConnectionId(2)));
    watch.pass(PERIOD);
    assert_eq!(watch.ids(), [1]);
}

#[test]
fn a_follower_found_gone_leaves_the_wheel() {
    let mut schedule = FanoutSchedule::new(PERIOD);
    for id in 0..10 {
        schedule.subscribe(START, at(id * 10), ConnectionId(id), FeedSyncId::NONE, id);
    }
    schedule.changed(START, FeedSyncId(1));
    assert_eq!(schedule.tick(START + PERIOD, |id| id % 2 == 0), 5);
    assert_eq!(schedule.len(), 5);
}

#[test]
fn without_a_period_everybody_is_woken_at_once() {
    let mut watch = Watch::new(Span::ZERO);
    for id in 0..3 {
        watch.subscribe(at(id * 33), id, 0);
    }
    watch.changed(1);
    assert_eq!(watch.schedule.deadline(), Some(START));
    watch.tick();
    assert_eq!(watch.ids(), [0, 1, 2]);
    assert_eq!(watch.schedule.deadline(), None);
    watch.changed(2);
    watch.tick();
    assert_eq!(watch.woken.len(), 6);
}

#[test]
fn a_hand_that_is_turned_late_wakes_each_once() {
    let mut watch = Watch::new(PERIOD);
    for id in 0..100 {
        watch.subscribe(at(id), id, 0);
    }
    watch.changed(1);
    watch.now = START + Span::from_secs(3600);
    watch.tick();
    assert_eq!(watch.ids(), (0..100).collect::<Vec<_>>());
}

#[test]
fn thousands_of_followers_do_not_make_thousands_of_turns() {
    let mut schedule = FanoutSchedule::new(PERIOD);
    for id in 0..100_000_u32 {
        let slot = id.wrapping_mul(2_654_435_761);
        schedule.subscribe(START, slot, ConnectionId(id.into()), FeedSyncId::NONE, ());
    }
    schedule.changed(START, FeedSyncId(1));
    let mut turns = 0;
    let mut tenths = [0_usize; 10];
    while let Some(due) = schedule.deadline() {
        let tenth = due.since(START).0.saturating_sub(1) * 10 / PERIOD.0;
        tenths[usize::try_from(tenth).unwrap()] += schedule.tick(due, |()| true);
        turns += 1;
    }
    assert!(turns <= PERIOD.0 / TICK.0 + 1, "{turns} turns");
    assert_eq!(tenths.iter().sum::<usize>(), 100_000);
    for woken in tenths {
        assert!((9_000..=11_000).contains(&woken), "{tenths:?}");
    }
}

/// One operation on a schedule.
#[derive(Debug, Clone)]
enum Happening {
    Joins { slot: u32, knows: bool },
    Leaves { which: usize },
    Changes,
    Passes { ms: u64 },
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (any::<u32>(), prop::bool::weighted(0.9))
            .prop_map(|(slot, knows)| Happening::Joins { slot, knows }),
        1 => any::<usize>().prop_map(|which| Happening::Leaves { which }),
        1 => Just(Happening::Changes),
        4 => (1..30_000_u64).prop_map(|ms| Happening::Passes { ms }),
    ]
}

/// What the test knows of a subscriber, independent of the schedule.
#[derive(Debug, Clone, Copy)]
struct Known {
    slot: u32,
    told: u64,
    /// The time of the first change that it has not seen.
    lacks_since: Option<Time>,
    woken_at: Option<Time>,
}

/// Checks the wake-ups since the last check. A tick is late by at most [`TICK`].
fn check(
    watch: &mut Watch,
    known: &mut BTreeMap<u64, Known>,
    head: u64,
) -> Result<(), TestCaseError> {
    for (when, id) in watch.woken.drain(..) {
        let Some(follower) = known.get_mut(&id) else {
            return Err(TestCaseError::fail(format!("{id} left and is woken")));
        };
        let since = follower.lacks_since.take();
        prop_assert!(since.is_some(), "{} knew all and is woken", id);
        prop_assert!(when <= since.unwrap() + PERIOD + TICK, "{} is woken late", id);
        let gap = follower.woken_at.map(|before| (when + TICK).since(before));
        prop_assert!(gap.is_none_or(|gap| gap >= PERIOD), "{} is woken twice", id);
        (follower.told, follower.woken_at) = (head, Some(when));
    }
    for (id, follower) in known {
        let is_late = follower.lacks_since.is_some_and(|since| since + PERIOD + TICK < watch.now);
        prop_assert!(!is_late, "{} is not woken", id);
    }
    Ok(())
}

fn happens(
    happening: &Happening,
    watch: &mut Watch,
    known: &mut BTreeMap<u64, Known>,
    head: &mut u64,
    next: &mut u64,
) {
    match *happening {
        Happening::Joins { slot, knows } => {
            let told = if knows { *head } else { head.saturating_sub(1) };
            let lacks_since = (told < *head).then_some(watch.now);
            watch.subscribe(slot, *next, told);
            known.insert(*next, Known { slot, told, lacks_since, woken_at: None });
            *next += 1;
        }
        Happening::Leaves { which } => {
            if let Some((&id, &Known { slot, .. })) = known.iter().nth(which % known.len().max(1)) {
                assert!(watch.schedule.unsubscribe(slot, ConnectionId(id)));
                known.remove(&id);
            }
        }
        Happening::Changes => {
            *head += 1;
            watch.changed(*head);
            for follower in known.values_mut() {
                follower.lacks_since = follower.lacks_since.or(Some(watch.now));
            }
        }
        Happening::Passes { ms } => watch.pass(Span(ms)),
    }
}

proptest! {
    #![proptest_config(cases::config())]

    #[test]
    fn each_is_woken_within_a_period_of_a_change_and_not_twice_in_one(
        happenings in prop::collection::vec(happening(), 1..80),
    ) {
        let mut watch = Watch::new(PERIOD);
        let mut known = BTreeMap::new();
        let (mut head, mut next) = (0, 0);
        for happening in &happenings {
            happens(happening, &mut watch, &mut known, &mut head, &mut next);
            check(&mut watch, &mut known, head)?;
            prop_assert_eq!(watch.schedule.len(), known.len());
        }
        watch.pass(PERIOD);
        check(&mut watch, &mut known, head)?;
        prop_assert_eq!(watch.schedule.deadline(), None);
    }
}
