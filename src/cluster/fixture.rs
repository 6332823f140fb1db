//! Keys, a message and a log for tests of calls between nodes.

use std::fmt::{Arguments, Write};
use std::iter::from_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use slog::{Drain, KV, Key, Logger, Never, OwnedKVList, Record, Serializer, o};
use state_machine::{Chid, Encoding, Message, MessageId, Payload, Span, Time, Topic, Urgency};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::signature::ClusterKeys;
use crate::settings::keys::Keys;

pub(crate) const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub(crate) const OTHER_KEY: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";
pub(crate) const NOW: Time = Time(1_796_000_000_000);

/// Longer than any test runs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn keys(cluster: &[&str]) -> Keys {
    Keys::from_texts(&[OTHER_KEY]).unwrap().with_cluster_texts(cluster).unwrap()
}

pub(crate) fn cluster_keys(key: &str) -> Arc<ClusterKeys> {
    Arc::new(ClusterKeys::derive(&keys(&[key])).unwrap())
}

pub(crate) fn message() -> Message {
    Message {
        id: MessageId::from_uuid_v7(0x0190_a4a3_b000_7000_8000_0000_0000_0000, true),
        chid: Chid([0xcd; 16]),
        topic: Some(Topic::parse("topic").unwrap()),
        urgency: Urgency::Low,
        accepted_at: Time(NOW.0 - 5),
        ttl: Span::from_secs(60),
        offers: 0,
        receipt: None,
        payload: Some(Payload {
            data: Bytes::from_static(b"\0data"),
            encoding: Encoding::Aes128Gcm,
        }),
    }
}

/// The lines that a log has written.
pub(crate) struct Log(UnboundedReceiver<Line>);

pub(crate) struct Line {
    /// Level and text of the message.
    pub(crate) text: String,
    /// ` name=value` of each field.
    pub(crate) fields: String,
}

struct Lines(Mutex<UnboundedSender<Line>>);

impl Log {
    pub(crate) fn new() -> (Logger, Self) {
        let (sender, lines) = unbounded_channel();
        (Logger::root(Lines(Mutex::new(sender)), o!()), Self(lines))
    }

    /// Waits for a line, and returns its fields.
    pub(crate) async fn says(&mut self, text: &str) -> String {
        let said = async {
            loop {
                let line = self.0.recv().await.expect("the log is open");
                if line.text.contains(text) {
                    return line.fields;
                }
            }
        };
        timeout(LONG, said).await.unwrap_or_else(|_| panic!("the log has no line with: {text}"))
    }

    /// The lines since the last call.
    pub(crate) fn read(&mut self) -> impl Iterator<Item = Line> {
        from_fn(|| self.0.try_recv().ok())
    }

    /// Their texts, above debug level.
    pub(crate) fn said(&mut self) -> Vec<String> {
        self.read().map(|line| line.text).filter(|line| !line.starts_with("DEBG")).collect()
    }
}

impl Serializer for Line {
    fn emit_arguments(&mut self, key: Key, value: &Arguments<'_>) -> slog::Result {
        Ok(write!(self.fields, " {key}={value}")?)
    }
}

impl Drain for Lines {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let text = format!("{} {}", record.level().as_short_str(), record.msg());
        let mut line = Line { text, fields: String::new() };
        record.kv().serialize(record, &mut line).expect("writing to a string does not fail");
        // A test that has ended has dropped the receiver.
        let _ = self.0.lock().unwrap().send(line);
        Ok(())
    }
}
