//! What an operator reads of the clocks that are wrong.

use state_machine::clocks::THIS_SERVER;
use state_machine::{ClockComparison, ClockDifference, ComparedClock};

/// Clocks that are named, those that differ most.
const NAMED_MAX: usize = 10;

/// One sentence for each clock that is wrong or may be. None if all agree.
pub fn sentences(clocks: &ClockComparison) -> Vec<String> {
    // Without a majority, a sentence on a peer names this server too.
    let is_told = |clock: &&ComparedClock| clocks.has_majority || clock.node.is_some();
    let named = clocks.differing().filter(is_told).take(NAMED_MAX);
    named.map(|clock| sentence(clock, clocks.has_majority)).collect()
}

fn sentence(clock: &ComparedClock, has_majority: bool) -> String {
    let (name, distance) = (clock.name(), distance(clock.ahead));
    match has_majority {
        true => format!("The clock of {name} is {distance} the others: set it."),
        false => format!(
            "The clock of {name} is {distance} that of {THIS_SERVER}, and too few nodes agree to tell which \
             one is wrong: compare both with the right time."
        ),
    }
}

pub fn distance(ahead: ClockDifference) -> String {
    let seconds = ahead.seconds().unsigned_abs();
    let (number, unit) = match seconds {
        ..=600 => (seconds, "s"),
        601..=36_000 => ((seconds + 30) / 60, "min"),
        _ => ((seconds + 1800) / 3600, "h"),
    };
    let direction = if ahead < ClockDifference::ZERO { "behind" } else { "ahead of" };
    format!("{number} {unit} {direction}")
}

#[cfg(test)]
mod tests {
    use state_machine::{NodeId, Span};

    use super::*;

    fn of(ahead_s: &[i64]) -> Vec<String> {
        let peers = (1..).zip(ahead_s).map(|(number, seconds)| {
            (NodeId::new(&format!("http://n{number}")), ClockDifference(seconds * 1000))
        });
        sentences(&ClockComparison::of(peers, Span::from_secs(60)))
    }

    #[test]
    fn a_distance_has_a_unit_that_is_read_at_a_glance() {
        for (seconds, expected) in [
            (61, "61 s ahead of"),
            (-600, "600 s behind"),
            (1199, "20 min ahead of"),
            (-36_000, "600 min behind"),
            (86_000, "24 h ahead of"),
        ] {
            assert_eq!(distance(ClockDifference(seconds * 1000)), expected);
        }
    }

    #[test]
    fn a_sentence_names_the_node_and_the_direction() {
        assert_eq!(
            of(&[0, 1200]),
            ["The clock of http://n2 is 20 min ahead of the others: set it."]
        );
        assert_eq!(of(&[90, 90]), ["The clock of this server is 90 s behind the others: set it."]);
        let [both] = &of(&[-120])[..] else { panic!("two nodes have one sentence") };
        assert!(both.starts_with("The clock of http://n1 is 120 s behind that of this server, "));
        assert_eq!(of(&[0, 0, 0]), [""; 0]);
        assert_eq!(of(&[0; 0]), [""; 0]);
        assert_eq!(of(&[100; 100]).len(), 1);
        let many: Vec<_> = (1..100).map(|number| number * 1000).collect();
        assert_eq!(of(&many).len(), NAMED_MAX);
    }
}
