//! Many channels whose messages are never acked: their number is bounded, and the agent is closed above it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;

use crate::sessions::keeps_every_rule;

const BEGIN: &str = r#"# Messages without an ack, of many channels.
at 2026-11-03T10:00:00Z
limits unacked_max=4 fetch_rows_max=4

agent> {"messageType":"hello","uaid":"{U1}","use_webpush":true}
registry< register U1
store< 0 register U1 at=+0ms
store> 0 registered U1 at=+0ms curmonth=2026_11
store< 1 read_channels U1 2026_11
"#;

const HELLO: &str = r#"agent< {"messageType":"hello","uaid":"{U1}","status":200,"use_webpush":true,"urgency":true,"broadcasts":{}}
store< 2 fetch U1 2026_11
"#;

/// A session whose agent acks none of `pages` pages of four messages, each of its own channel.
struct Session {
    script: String,
    op: usize,
    messages: usize,
}

impl Session {
    fn without_acks(pages: usize) -> Self {
        let channels: Vec<String> = (0..=4 * pages).map(|channel| format!("C{channel}")).collect();
        let script = format!("{BEGIN}store> 1 channels [{}]\n{HELLO}", channels.join(", "));
        let mut session = Self { script, op: 2, messages: 0 };
        for page in 0..pages {
            session.page(page + 1 == pages);
        }
        session
    }

    /// Four messages become overdue.
    fn page(&mut self, is_last: bool) {
        let numbers = self.messages..self.messages + 4;
        self.messages = numbers.end;
        let rows: Vec<String> = numbers.clone().map(|n| format!("M{n} C{n} ttl=9h")).collect();
        let keys: Vec<String> = numbers.clone().map(|n| format!("M{n} C{n}")).collect();
        let last = format!("M{}", self.messages - 1);
        let (op, next) = (self.op, self.op + 1);
        self.line(&format!("store> {op} fetched [{}] next={last}", rows.join(", ")));
        numbers.for_each(|number| self.sent(number, number));
        self.line("wait 1s");
        self.line(&format!("store< {next} record_offers U1 2026_11 [{}]", keys.join(", ")));
        if !is_last {
            self.line(&format!("store< {} fetch U1 2026_11 after={last}", next + 1));
            self.line(&format!("store> {next} offers_recorded"));
        }
        self.op = next + 1;
    }

    fn sent(&mut self, message: usize, channel: usize) {
        self.line(&format!(
            r#"agent< {{"messageType":"notification","channelID":"{{C{channel}}}","version":"{{M{message}}}"}}"#
        ));
    }

    fn line(&mut self, line: &str) {
        writeln!(self.script, "{line}").unwrap();
    }
}

#[test]
fn with_many_overdue_messages_a_channel_that_offered_some_in_vain_gets_one_at_a_time() {
    for (pages, sent) in [(7, 2), (8, 1)] {
        let mut session = Session::without_acks(pages);
        let (op, last) = (session.op, session.messages - 1);
        session.line(&format!("store< {op} fetch U1 2026_11 after=M{last}"));
        session.line(&format!("store> {} offers_recorded", op - 1));
        let (messages, channel) = (100..103, session.messages);
        let rows: Vec<String> =
            messages.clone().map(|n| format!("M{n} C{channel} ttl=9h offers=1")).collect();
        session.line(&format!("store> {op} fetched [{}]", rows.join(", ")));
        messages.take(sent).for_each(|message| session.sent(message, channel));
        keeps_every_rule("overdue", &session.script);
    }
}

#[test]
fn a_session_ends_that_would_remember_too_many_overdue_messages() {
    let mut session = Session::without_acks(33);
    session.line("registry< deregister U1");
    session.line("close< 4410 too many messages without an ack, connect again");
    keeps_every_rule("overdue", &session.script);
}
