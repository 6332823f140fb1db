//! Acks that are overdue. The number of channels whose messages are never acked is bounded.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use harness::model_store::Store;
use harness::transcript::{default_config, default_limits};
use state_machine::connection::{Connection, ConnectionSeed, Effect, Event, Limits, PushAnswer};
use state_machine::wire::{ClientMessage, ServerMessage};
use state_machine::{Chid, Message, MessageId, PushId, Span, Time, Uaid};

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

const OPENED_AT: Time = Time(1_793_700_000_000);
const CHANNEL: Chid = Chid([3; 16]);

/// A connection of a new agent with one channel, beside a store that answers at once. No timer steps it.
struct Untimed {
    connection: Connection,
    store: Store,
}

impl Untimed {
    fn registered(limits: Limits) -> Self {
        let config = default_config(limits);
        let seed = ConnectionSeed { fresh_uaid: Uaid([9; 16]), jitter: 0 };
        let connection = Connection::new(Arc::new(config), seed, OPENED_AT);
        let mut untimed = Self { connection, store: Store::default() };
        let hello = ClientMessage::Hello { uaid: None, broadcasts: [].into(), use_webpush: true };
        untimed.step(OPENED_AT, Event::MessageReceived(hello));
        let register = ClientMessage::Register { chid: CHANNEL, key: None };
        let effects = untimed.step(OPENED_AT, Event::MessageReceived(register));
        let is_answer =
            |effect: &Effect| matches!(effect, Effect::Send(ServerMessage::Registered { .. }));
        assert!(effects.iter().any(is_answer), "{effects:?}");
        untimed
    }

    /// All effects, also those of the store's answers.
    fn step(&mut self, now: Time, event: Event) -> Vec<Effect> {
        let (mut seen, mut events) = (Vec::new(), VecDeque::from([event]));
        while let Some(event) = events.pop_front() {
            for effect in self.connection.step(now, event) {
                if let Effect::SubmitStoreOp { op, operation } = &effect {
                    let answer = Ok(self.store.execute(operation));
                    events.push_back(Event::StoreAnswered { op: *op, answer });
                }
                seen.push(effect);
            }
        }
        seen
    }

    fn push(&mut self, now: Time, number: u64) -> Vec<Effect> {
        let id = MessageId::from_uuid_v7(u128::from(number) << 64, false);
        let message = Message::new(id, CHANNEL, now, Span::from_secs(3600));
        self.step(now, Event::PushArrived { push: PushId(number), message })
    }
}

#[test]
fn an_ack_is_overdue_at_its_time_although_the_timer_is_late() {
    let limits = default_limits();
    let due = OPENED_AT + limits.ack_wait;
    let is_sent = |effects: &[Effect]| {
        let notification =
            |effect: &Effect| matches!(effect, Effect::Send(ServerMessage::Notification(_)));
        effects.iter().any(notification)
    };
    // Before it a push waits for the ack of the first.
    for (at, is_overdue) in [(Time(due.0 - 1), false), (due, true)] {
        let mut untimed = Untimed::registered(limits.clone());
        assert!(is_sent(&untimed.push(OPENED_AT, 1)));
        let effects = untimed.push(at, 2);
        assert_eq!(is_sent(&effects), is_overdue, "{effects:?}");
        let answer = effects.iter().find_map(|effect| match effect {
            Effect::AnswerPush { push: PushId(1), answer, .. } => Some(*answer),
            _ => None,
        });
        assert_eq!(answer, is_overdue.then_some(PushAnswer::Unconfirmed));
    }
}
