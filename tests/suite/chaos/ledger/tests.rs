//! What the ledger finds, and what it lets pass.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(1);

/// A ledger and a clock that moves by a second with every look.
struct Story {
    ledger: Ledger,
    now: Instant,
}

impl Story {
    fn new() -> Self {
        let now = Instant::now();
        Self { ledger: Ledger::new(now), now }
    }

    fn now(&mut self) -> Instant {
        self.now += SOON;
        self.now
    }

    fn post(&mut self, topic: Option<&'static str>, ttl: Duration) -> usize {
        let now = self.now();
        self.ledger.post(Slot { client: 7, channel: 0, topic }, ttl, now)
    }

    fn accept(&mut self, topic: Option<&'static str>, ttl: Duration) -> usize {
        let number = self.post(topic, ttl);
        let now = self.now();
        self.ledger.accepted(number, now);
        number
    }

    fn came_and_was_acked(&mut self, number: usize) {
        let now = self.now();
        self.ledger.came(7, now, number, &format!("v{number}"));
        self.ledger.acked(number, now);
    }

    fn audit(&mut self, rows: &[&str]) {
        let now = self.now();
        let rows = rows.iter().map(|row| (*row).to_owned()).collect();
        self.ledger.audited(now, now, &rows);
    }

    fn findings(mut self) -> Vec<String> {
        let now = self.now();
        self.ledger.drained(now);
        self.ledger.check_versions();
        self.ledger.findings
    }
}

#[test]
fn a_message_that_was_accepted_and_never_came_is_lost() {
    let mut story = Story::new();
    let came = story.accept(None, HOUR);
    story.came_and_was_acked(came);
    let lost = story.accept(None, HOUR);
    let findings = story.findings();
    assert_eq!(findings.len(), 1);
    assert!(findings[0].starts_with(&format!("{lost} is lost")), "{findings:?}");
}

#[test]
fn what_was_refused_or_not_answered_or_expired_or_had_no_ttl_is_not_lost() {
    let mut story = Story::new();
    let refused = story.post(None, HOUR);
    let now = story.now();
    story.ledger.refused(refused, now);
    story.post(None, HOUR);
    story.ledger.unanswered();
    story.accept(None, SOON);
    story.accept(None, Duration::ZERO);
    assert_eq!(story.findings(), Vec::<String>::new());
}

#[test]
fn a_message_that_comes_again_after_a_settled_ack_is_found() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    story.came_and_was_acked(number);
    story.audit(&["somebody else's"]);
    let now = story.now();
    story.ledger.came(7, now, number, "v0");
    assert!(story.findings()[0].starts_with("0 came again after its ack was settled"));
}

#[test]
fn a_message_whose_row_was_seen_after_its_ack_may_come_again() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    story.came_and_was_acked(number);
    story.audit(&["v0"]);
    let now = story.now();
    story.ledger.came(7, now, number, "v0");
    assert_eq!(story.ledger.tally().again_before_settled, 1);
    assert_eq!(story.findings(), Vec::<String>::new());
}

#[test]
fn a_message_whose_push_was_not_answered_may_come_again() {
    let mut story = Story::new();
    let number = story.post(None, HOUR);
    story.came_and_was_acked(number);
    story.audit(&[]);
    let now = story.now();
    story.ledger.came(7, now, number, "v0");
    assert_eq!(story.findings(), Vec::<String>::new());
}

#[test]
fn an_ack_that_was_said_while_the_table_was_read_is_not_settled_by_that() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    let begun_at = story.now();
    story.came_and_was_acked(number);
    let ended_at = story.now();
    story.ledger.audited(begun_at, ended_at, &BTreeSet::new());
    let now = story.now();
    story.ledger.came(7, now, number, "v0");
    assert_eq!(story.findings(), Vec::<String>::new());
}

#[test]
fn a_push_that_may_lie_in_a_stopped_nodes_port_is_settled_when_that_has_gone_on() {
    let mut story = Story::new();
    let number = story.post(None, HOUR);
    let now = story.now();
    story.ledger.stopped(1, now);
    let now = story.now();
    story.ledger.accepted(number, now);
    story.came_and_was_acked(number);
    story.audit(&[]);
    let now = story.now();
    story.ledger.went_on(1, now);
    story.audit(&[]);
    assert_eq!(story.ledger.tally().settled, 0);
    story.now += CATCHING_UP;
    story.audit(&[]);
    assert_eq!(story.ledger.tally().settled, 1);
}

#[test]
fn a_stop_that_was_over_before_a_push_does_not_matter_to_it() {
    let mut story = Story::new();
    let now = story.now();
    story.ledger.stopped(1, now);
    let now = story.now();
    story.ledger.went_on(1, now);
    let number = story.accept(None, HOUR);
    story.came_and_was_acked(number);
    story.audit(&[]);
    assert_eq!(story.ledger.tally().settled, 1);
}

#[test]
fn a_message_is_replaced_by_a_later_one_of_its_topic_and_not_by_an_earlier_one() {
    let mut story = Story::new();
    let first = story.accept(Some("news"), HOUR);
    let second = story.accept(Some("news"), HOUR);
    story.came_and_was_acked(second);
    story.accept(Some("news"), HOUR);
    let findings = story.findings();
    assert_eq!((first, findings.len()), (0, 1));
    assert!(findings[0].starts_with("2 is lost"), "{findings:?}");
}

#[test]
fn a_push_that_was_not_answered_may_be_later_than_any_other_of_its_topic() {
    let mut story = Story::new();
    let unanswered = story.post(Some("news"), HOUR);
    story.accept(Some("news"), HOUR);
    story.came_and_was_acked(unanswered);
    assert_eq!(story.findings(), Vec::<String>::new());
}

#[test]
fn a_message_that_expires_may_have_taken_the_place_of_another() {
    let mut story = Story::new();
    story.accept(Some("news"), HOUR);
    story.accept(Some("news"), SOON);
    story.accept(Some("mail"), HOUR);
    story.accept(Some("mail"), Duration::ZERO);
    let findings = story.findings();
    assert_eq!(findings.len(), 1);
    assert!(findings[0].starts_with("2 is lost"), "{findings:?}");
}

#[test]
fn versions_that_change_and_versions_of_two_are_found() {
    let mut story = Story::new();
    let one = story.accept(None, HOUR);
    let other = story.accept(None, HOUR);
    let now = story.now();
    story.ledger.came(7, now, one, "a");
    let now = story.now();
    story.ledger.came(7, now, one, "b");
    let now = story.now();
    story.ledger.came(7, now, other, "b");
    let findings = story.findings();
    assert!(findings[0].contains("another version") && findings[1].contains("another's version"));
    assert_eq!(findings.len(), 2);
}

#[test]
fn a_message_that_comes_to_somebody_else_is_found() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    let now = story.now();
    story.ledger.came(8, now, number, "v0");
    assert!(story.findings()[0].contains("somebody else"));
}

#[test]
fn a_message_may_have_been_sent_before_it_was_settled_on_a_connection_that_was_open() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    story.came_and_was_acked(number);
    let opened_at = story.now();
    story.audit(&[]);
    story.ledger.came(7, opened_at, number, "v0");
    assert_eq!(story.ledger.tally().again_before_settled, 1);
    assert_eq!(story.findings(), Vec::<String>::new());
}

#[test]
fn a_message_that_was_settled_must_not_come_again_on_the_connection_it_came_on() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    let opened_at = story.now();
    story.ledger.came(7, opened_at, number, "v0");
    let now = story.now();
    story.ledger.acked(number, now);
    story.audit(&[]);
    story.ledger.came(7, opened_at, number, "v0");
    assert!(story.findings()[0].starts_with("0 came again after its ack was settled"));
}
