//! Which clocks of a cluster are wrong, as one node can tell from how far those of its peers are from its own.
//!
//! More than half of the clocks that agree are right. With two nodes, or two groups of one size, no clock is known to be
//! right, so all that differ are named.

use std::fmt;
use std::ops::Add;

use crate::ids::NodeId;
use crate::time::{Span, Time};

/// The name of the comparing node, beside those of its peers.
pub const THIS_SERVER: &str = "this server";

/// How far a clock is ahead of another one, in milliseconds. It is negative if the clock is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockDifference(pub i64);

/// The clocks of a node and of the peers whose time it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClockComparison {
    /// More than half of the clocks agree, so a difference is one from them. Otherwise it is one from this node, and
    /// that of this node is one from the peer that differs most.
    pub has_majority: bool,
    /// The clock that differs most is first.
    pub clocks: Vec<ComparedClock>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedClock {
    /// None is the comparing node.
    pub node: Option<NodeId>,
    /// Zero within the tolerance.
    pub ahead: ClockDifference,
}

impl ClockDifference {
    pub const ZERO: Self = Self(0);

    /// How far `clock` is ahead of `other`.
    pub fn between(clock: Time, other: Time) -> Self {
        let (ahead, behind) = (clock.since(other).0, other.since(clock).0);
        let millis = |span| i64::try_from(span).unwrap_or(i64::MAX);
        Self(millis(ahead) - millis(behind))
    }

    pub fn span(self) -> Span {
        Span(self.0.unsigned_abs())
    }

    /// Whole seconds, negative if the clock is behind.
    pub fn seconds(self) -> i64 {
        self.0 / 1000
    }

    fn reversed(self) -> Self {
        Self(self.0.saturating_neg())
    }

    fn relative_to(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<ClockDifference> for Time {
    type Output = Self;

    fn add(self, ahead: ClockDifference) -> Self {
        Self(self.0.saturating_add_signed(ahead.0))
    }
}

impl fmt::Display for ClockDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.0 < 0 { "behind" } else { "ahead" };
        write!(f, "{} s {direction}", self.span().0 / 1000)
    }
}

impl ComparedClock {
    pub fn name(&self) -> &str {
        self.node.as_ref().map_or(THIS_SERVER, NodeId::as_str)
    }
}

impl ClockComparison {
    /// Compares the clock of this node with those of `peers`, of which it knows how far they are ahead of its own.
    /// Clocks agree if they are at most `tolerance` apart.
    pub fn of(peers: impl IntoIterator<Item = (NodeId, ClockDifference)>, tolerance: Span) -> Self {
        let peers = peers.into_iter().map(|(node, ahead)| (Some(node), ahead));
        let all: Vec<_> = [(None, ClockDifference::ZERO)].into_iter().chain(peers).collect();
        let median = median(all.iter().map(|(_, ahead)| *ahead));
        let agree = |ahead: ClockDifference| ahead.relative_to(median).span() <= tolerance;
        let agreeing = all.iter().filter(|(_, ahead)| agree(*ahead)).count();
        let has_majority = 2 * agreeing > all.len();
        let most = all.iter().map(|(_, ahead)| *ahead).max_by_key(|ahead| ahead.span());
        let ahead = |node: &Option<NodeId>, ahead: ClockDifference| match node {
            _ if has_majority => ahead.relative_to(median),
            Some(_) => ahead,
            None => most.unwrap_or_default().reversed(),
        };
        let clocks = all.into_iter().map(|(node, from_own)| {
            let ahead = Some(ahead(&node, from_own)).filter(|ahead| ahead.span() > tolerance);
            ComparedClock { node, ahead: ahead.unwrap_or_default() }
        });
        let mut clocks: Vec<_> = clocks.collect();
        clocks.sort_by(|a, b| (b.ahead.span(), &a.node).cmp(&(a.ahead.span(), &b.node)));
        Self { has_majority, clocks }
    }

    /// The clocks to look at: those outside the majority, or all that differ if there is none.
    pub fn differing(&self) -> impl Iterator<Item = &ComparedClock> {
        self.clocks.iter().filter(|clock| clock.ahead != ClockDifference::ZERO)
    }
}

/// The lower one of two in the middle. It is within any majority.
fn median(values: impl Iterator<Item = ClockDifference>) -> ClockDifference {
    let mut sorted: Vec<_> = values.collect();
    sorted.sort_unstable();
    sorted.get((sorted.len().max(1) - 1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Span = Span::from_secs(60);

    /// Whether there is a majority, and the differing clocks of peers `a`, `b`, ... that are this far ahead.
    fn compared(ahead_s: &[i64]) -> (bool, Vec<(String, i64)>) {
        let peers = ('a'..).zip(ahead_s).map(|(name, seconds)| {
            (NodeId::new(&name.to_string()), ClockDifference(seconds * 1000))
        });
        let comparison = ClockComparison::of(peers, MINUTE);
        assert_eq!(comparison.clocks.len(), ahead_s.len() + 1);
        let named = |clock: &ComparedClock| (clock.name().to_owned(), clock.ahead.seconds());
        (comparison.has_majority, comparison.differing().map(named).collect())
    }

    fn named(clocks: &[(&str, i64)]) -> Vec<(String, i64)> {
        clocks.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect()
    }

    #[test]
    fn the_clock_outside_the_majority_is_named_with_its_difference_from_it() {
        for (ahead, wrong) in [
            (&[0, 1200][..], &[("b", 1200)][..]),
            (&[-90, 0], &[("a", -90)]),
            (&[1200, 1203], &[(THIS_SERVER, -1200)]),
            (&[-86_000, -86_040], &[(THIS_SERVER, 86_000)]),
            (&[0, 0, 0, 500, -700], &[("e", -700), ("d", 500)]),
            (&[300, 300, 300, 0], &[(THIS_SERVER, -300), ("d", -300)]),
        ] {
            assert_eq!(compared(ahead), (true, named(wrong)), "{ahead:?}");
        }
    }

    #[test]
    fn two_nodes_name_both_and_the_direction() {
        assert_eq!(compared(&[120]), (false, named(&[(THIS_SERVER, -120), ("a", 120)])));
        assert_eq!(compared(&[-120]), (false, named(&[(THIS_SERVER, 120), ("a", -120)])));
    }

    #[test]
    fn two_groups_of_one_size_and_clocks_that_all_differ_have_no_majority() {
        let groups = named(&[(THIS_SERVER, -1200), ("b", 1200), ("c", 1200)]);
        assert_eq!(compared(&[0, 1200, 1200]), (false, groups));
        let all = named(&[(THIS_SERVER, -900), ("a", 900), ("b", -300)]);
        assert_eq!(compared(&[900, -300]), (false, all));
    }

    #[test]
    fn clocks_within_the_tolerance_agree() {
        assert_eq!(compared(&[]), (true, Vec::new()));
        for ahead in [&[60][..], &[-60], &[0, 0, 0], &[60, 30, -30]] {
            assert_eq!(compared(ahead), (true, Vec::new()), "{ahead:?}");
        }
        assert_eq!(compared(&[61]).1.len(), 2);
    }

    #[test]
    fn any_majority_contains_the_median_in_any_order() {
        for wrong in 0..3_usize {
            for at in 0..6 {
                let mut ahead = vec![0; 5 - wrong];
                for number in 0..wrong {
                    let seconds = if number % 2 == 0 { 1000 } else { -1000 };
                    ahead.insert(at.min(ahead.len()), seconds);
                }
                let (has_majority, named) = compared(&ahead);
                assert_eq!((has_majority, named.len()), (true, wrong), "{ahead:?}");
            }
        }
    }

    #[test]
    fn differences_of_any_size_are_computed_without_overflow() {
        let (first, last) = (Time(0), Time(u64::MAX));
        assert_eq!(ClockDifference::between(last, first).0, i64::MAX);
        assert_eq!(ClockDifference::between(first, last).0, -i64::MAX);
        assert_eq!(first + ClockDifference(i64::MIN), first);
        assert_eq!(last + ClockDifference(i64::MAX), last);
        let peers = [i64::MIN, i64::MAX].map(|ahead| (NodeId::new("x"), ClockDifference(ahead)));
        assert!(!ClockComparison::of(peers, MINUTE).has_majority);
        assert_eq!(ClockDifference(-120_999).to_string(), "120 s behind");
        assert_eq!(ClockDifference(1_200_000).to_string(), "1200 s ahead");
    }
}
