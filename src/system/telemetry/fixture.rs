//! A log whose lines a test reads.

use std::fmt::{Arguments, Write};
use std::iter::from_fn;
use std::sync::Mutex;
use std::time::Duration;

use slog::{Drain, KV, Key, Logger, Never, OwnedKVList, Record, Serializer, o};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Longer than any test runs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

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
