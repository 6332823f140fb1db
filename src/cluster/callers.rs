//! The nodes that call this one, as they introduced themselves. It is for operators alone: nothing else depends on it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use state_machine::{ClockDifference, Span, Time};

use super::about::{CallingNode, Introduction};

/// Callers that are remembered. A further one is not, until another is forgotten.
const CALLERS_MAX: usize = 1000;

/// Callers that an answer to another node names. It has the number of the others.
pub(super) const NAMED_MAX: usize = 36;

/// Time after which a caller is forgotten that did not introduce itself again. It is several times that between two
/// introductions.
const REMEMBERED: Span = Span::from_secs(5 * 60);

/// The callers by name: two nodes with one name are one.
#[derive(Debug, Default)]
pub struct Callers(Mutex<BTreeMap<String, Caller>>);

#[derive(Debug)]
struct Caller {
    introduction: Introduction,
    ahead: ClockDifference,
    at: Time,
}

impl Caller {
    /// Not if its time is of the future either: this clock was set back.
    fn is_remembered(&self, now: Time) -> bool {
        ClockDifference::between(now, self.at).span() < REMEMBERED
    }

    fn calling(&self, now: Time) -> CallingNode {
        let Self { introduction, ahead, at } = self;
        CallingNode {
            name: introduction.name.clone(),
            role: introduction.role.clone(),
            version: introduction.version.clone(),
            called_s_ago: now.since(*at).0 / 1000,
            clock_ahead_s: ahead.seconds(),
        }
    }
}

impl Callers {
    /// Remembers the sender of a signed request, if its body is an introduction.
    pub(super) fn note(&self, body: &[u8], now: Time) {
        let Some(introduction) = Introduction::parse(body) else { return };
        let ahead = ClockDifference::between(Time(introduction.time_ms), now);
        let mut callers = self.0.lock();
        callers.retain(|_, caller| caller.is_remembered(now));
        if callers.len() < CALLERS_MAX || callers.contains_key(&introduction.name) {
            let name = introduction.name.clone();
            callers.insert(name, Caller { introduction, ahead, at: now });
        }
    }

    pub fn list(&self, now: Time) -> Vec<CallingNode> {
        self.some(now, usize::MAX).0
    }

    /// At most `max` of them, and how many there are beside those.
    pub(super) fn some(&self, now: Time, max: usize) -> (Vec<CallingNode>, usize) {
        let callers = self.0.lock();
        let mut remembered = callers.values().filter(|caller| caller.is_remembered(now));
        let some = remembered.by_ref().take(max).map(|caller| caller.calling(now)).collect();
        (some, remembered.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fixture::NOW;

    /// A node introduces itself at a time, with a clock that is this many seconds ahead.
    fn introduce(callers: &Callers, name: &str, at: Time, ahead_s: i64) {
        let introduction = Introduction {
            name: name.to_owned(),
            role: "endpoint".to_owned(),
            version: "1.2.3".to_owned(),
            time_ms: (at + ClockDifference(ahead_s * 1000)).0,
        };
        callers.note(introduction.to_text().as_bytes(), at);
    }

    fn names(callers: &Callers, now: Time) -> Vec<String> {
        callers.list(now).into_iter().map(|caller| caller.name).collect()
    }

    #[test]
    fn a_caller_is_listed_with_its_last_call_and_its_clock() {
        let callers = Callers::default();
        for (name, ahead_s) in [("right:1", 0), ("ahead:1", 90), ("behind:1", -1200)] {
            introduce(&callers, name, NOW, ahead_s);
        }
        introduce(&callers, "right:1", NOW + Span::from_secs(20), 0);
        callers.note(b"{}", NOW);
        let listed = callers.list(NOW + Span::from_secs(30));
        let listed: Vec<_> = listed
            .iter()
            .map(|caller| (&*caller.name, caller.called_s_ago, caller.clock_ahead_s))
            .collect();
        assert_eq!(listed, [("ahead:1", 30, 90), ("behind:1", 30, -1200), ("right:1", 10, 0)]);
        let [first, ..] = &callers.list(NOW)[..] else { panic!("there are three") };
        assert_eq!((&*first.role, &*first.version), ("endpoint", "1.2.3"));
    }

    #[test]
    fn a_caller_that_stops_is_forgotten_and_makes_room() {
        let callers = Callers::default();
        let name = |number| format!("n{number:03}:1");
        for number in 0..CALLERS_MAX {
            introduce(&callers, &name(number), NOW, 0);
        }
        let later = NOW + Span::from_secs(200);
        introduce(&callers, "further:1", later, 0);
        introduce(&callers, &name(0), later, 0);
        assert_eq!(names(&callers, later), (0..CALLERS_MAX).map(name).collect::<Vec<_>>());
        let (some, others) = callers.some(later, NAMED_MAX);
        assert_eq!((some.len(), &*some[NAMED_MAX - 1].name), (NAMED_MAX, "n035:1"));
        assert_eq!(others, CALLERS_MAX - NAMED_MAX);
        assert!(names(&callers, Time(NOW.0 - REMEMBERED.0)).is_empty(), "this clock was set back");
        let forgotten = NOW + REMEMBERED;
        assert_eq!(names(&callers, Time(forgotten.0 - 1)).len(), CALLERS_MAX);
        assert_eq!(names(&callers, forgotten), [name(0)]);
        introduce(&callers, "further:1", forgotten, 0);
        assert_eq!(names(&callers, forgotten), ["further:1".to_owned(), name(0)]);
        assert_eq!(callers.some(forgotten, NAMED_MAX).1, 0);
    }
}
