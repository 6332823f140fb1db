//! Which sequences of events the ledger reports, and which it accepts.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(1);

/// A ledger and a clock that advances by a second with each reading.
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
        self.ledger.post(Slot { client: 7, channel: 0, topic }, ttl, ttl, now)
    }

    fn accept(&mut self, topic: Option<&'static str>, ttl: Duration) -> usize {
        let number = self.post(topic, ttl);
        let now = self.now();
        self.ledger.accepted(number, now);
        number
    }

    fn came(&mut self, number: usize, version: &str) {
        let now = self.now();
        self.ledger.delivered(7, now, number, version);
    }

    fn came_and_was_acked(&mut self, number: usize) {
        let version = format!("v{number}");
        self.came(number, &version);
        self.ledger.acked(number, &version, self.now);
    }

    fn audit(&mut self, rows: &[&str]) {
        let now = self.now();
        let rows = rows.iter().map(|row| (*row).to_owned()).collect();
        self.ledger.audited(now, now, &rows);
    }

    fn stopped_and_continued(&mut self, is_stopped: bool) {
        let now = self.now();
        match is_stopped {
            true => self.ledger.stopped(1, now),
            false => self.ledger.continued(1, now),
        }
    }

    /// Checks that the ledger reports these, and nothing else.
    #[track_caller]
    fn finds(mut self, expected: &[&str]) {
        let now = self.now();
        self.ledger.drained(now);
        self.ledger.check_versions();
        let findings = self.ledger.findings;
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.contains(expected), "{findings:?}");
        }
    }
}

#[test]
fn an_accepted_message_that_never_arrives_is_lost() {
    let mut story = Story::new();
    let came = story.accept(None, HOUR);
    story.came_and_was_acked(came);
    let lost = story.accept(None, HOUR);
    story.finds(&[&format!("{lost} is lost")]);
}

#[test]
fn rejected_unanswered_expired_and_ttl_0_messages_are_not_lost() {
    let mut story = Story::new();
    let refused = story.post(None, HOUR);
    let now = story.now();
    story.ledger.refused(refused, now);
    story.post(None, HOUR);
    story.ledger.unanswered();
    story.accept(None, SOON);
    story.accept(None, Duration::ZERO);
    story.finds(&[]);
}

#[test]
fn a_redelivery_after_a_settled_ack_is_reported() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    story.came_and_was_acked(number);
    story.audit(&["another agent's"]);
    story.came(number, "v0");
    story.finds(&["0 was redelivered after its ack was settled"]);
}

#[test]
fn a_message_whose_row_was_seen_after_its_ack_may_be_redelivered() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    story.came_and_was_acked(number);
    story.audit(&["v0"]);
    story.came(number, "v0");
    assert_eq!(story.ledger.tally().again_before_settled, 1);
    story.finds(&[]);
}

#[test]
fn a_message_whose_push_was_not_answered_may_be_redelivered() {
    let mut story = Story::new();
    let number = story.post(None, HOUR);
    story.came_and_was_acked(number);
    story.audit(&[]);
    story.came(number, "v0");
    story.finds(&[]);
}

#[test]
fn an_ack_sent_during_the_audit_is_not_settled_by_it() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    let begun_at = story.now();
    story.came_and_was_acked(number);
    let ended_at = story.now();
    story.ledger.audited(begun_at, ended_at, &BTreeSet::new());
    story.came(number, "v0");
    story.finds(&[]);
}

#[test]
fn a_push_in_a_stopped_nodes_buffer_is_settled_after_the_node_continues() {
    let mut story = Story::new();
    let number = story.post(None, HOUR);
    story.stopped_and_continued(true);
    let now = story.now();
    story.ledger.accepted(number, now);
    story.came_and_was_acked(number);
    story.audit(&[]);
    story.stopped_and_continued(false);
    story.audit(&[]);
    assert_eq!(story.ledger.tally().settled, 0);
    story.now += CATCHING_UP;
    story.audit(&[]);
    assert_eq!(story.ledger.tally().settled, 1);
}

#[test]
fn a_stop_that_ended_before_a_push_does_not_affect_it() {
    let mut story = Story::new();
    story.stopped_and_continued(true);
    story.stopped_and_continued(false);
    let number = story.accept(None, HOUR);
    story.came_and_was_acked(number);
    story.audit(&[]);
    assert_eq!(story.ledger.tally().settled, 1);
}

#[test]
fn a_later_message_of_a_topic_replaces_an_earlier_one_only() {
    let mut story = Story::new();
    let first = story.accept(Some("news"), HOUR);
    let second = story.accept(Some("news"), HOUR);
    story.came_and_was_acked(second);
    story.accept(Some("news"), HOUR);
    assert_eq!(first, 0);
    story.finds(&["2 is lost"]);
}

#[test]
fn an_unanswered_push_may_be_later_than_any_other_of_its_topic() {
    let mut story = Story::new();
    let unanswered = story.post(Some("news"), HOUR);
    story.accept(Some("news"), HOUR);
    story.came_and_was_acked(unanswered);
    story.finds(&[]);
}

#[test]
fn an_expired_message_may_have_replaced_another() {
    let mut story = Story::new();
    story.accept(Some("news"), HOUR);
    story.accept(Some("news"), SOON);
    story.accept(Some("mail"), HOUR);
    story.accept(Some("mail"), Duration::ZERO);
    story.finds(&["2 is lost"]);
}

#[test]
fn changed_and_shared_versions_are_reported() {
    let mut story = Story::new();
    let one = story.accept(None, HOUR);
    let other = story.accept(None, HOUR);
    story.came(one, "a");
    story.came(one, "b");
    story.came(other, "b");
    story.finds(&["another version", "shares a version"]);
}

#[test]
fn a_message_of_a_topic_may_arrive_with_a_further_version_that_is_settled_by_itself() {
    let mut story = Story::new();
    let number = story.post(Some("news"), HOUR);
    story.came_and_was_acked(number);
    let now = story.now();
    story.ledger.accepted(number, now);
    story.audit(&["of the repeated push"]);
    assert_eq!(story.ledger.tally().settled, 1);
    for _ in 0..2 {
        story.came(number, "of the repeated push");
        story.ledger.acked(number, "of the repeated push", story.now);
        story.audit(&[]);
    }
    assert_eq!(story.ledger.tally().copies, 1);
    story.finds(&["was redelivered after its ack was settled"]);
}

#[test]
fn the_later_of_two_pushes_of_a_topic_is_lost_however_short_the_time_between_them() {
    let mut story = Story::new();
    let [first, second] = [0, 1].map(|_| {
        let slot = Slot { client: 7, channel: 0, topic: Some("news") };
        let number = story.ledger.post(slot, HOUR, HOUR, story.now);
        story.ledger.accepted(number, story.now);
        story.now += Duration::from_millis(1);
        number
    });
    story.came_and_was_acked(first);
    story.finds(&[&format!("{second} is lost")]);
}

#[test]
fn a_message_expires_by_the_clock_that_is_ahead() {
    let mut story = Story::new();
    let now = story.now();
    let slot = Slot { client: 7, channel: 0, topic: None };
    for lives in [SOON, HOUR] {
        let number = story.ledger.post(slot, HOUR, lives, now);
        story.ledger.accepted(number, now);
    }
    story.finds(&["1 is lost"]);
}

#[test]
fn a_message_that_reaches_another_agent_is_reported() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    let now = story.now();
    story.ledger.delivered(8, now, number, "v0");
    story.finds(&["which is not its receiver"]);
}

#[test]
fn a_connection_opened_before_the_settlement_may_receive_the_message() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    story.came_and_was_acked(number);
    let opened_at = story.now();
    story.audit(&[]);
    story.ledger.delivered(7, opened_at, number, "v0");
    assert_eq!(story.ledger.tally().again_before_settled, 1);
    story.finds(&[]);
}

#[test]
fn the_connection_that_received_a_settled_message_must_not_receive_it_again() {
    let mut story = Story::new();
    let number = story.accept(None, HOUR);
    let opened_at = story.now();
    story.ledger.delivered(7, opened_at, number, "v0");
    let now = story.now();
    story.ledger.acked(number, "v0", now);
    story.audit(&[]);
    story.ledger.delivered(7, opened_at, number, "v0");
    story.finds(&["0 was redelivered after its ack was settled"]);
}
