//! Logging: slog, for people on a terminal and as JSON elsewhere, written by a thread of its own.
//!
//! Logs go to standard error; standard output belongs to what a command was asked for. A log that
//! cannot keep up drops lines and says how many, it never holds up the server.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};

use slog::{Drain, Level, Logger, Never, OwnedKVList, Record, b, o, record};
use slog_async::{AsyncCore, AsyncGuard};
use slog_json::Json;
use slog_term::{FullFormat, TermDecorator};

use crate::settings::{LogFormat, Settings};

/// The root logger, and a guard that writes what still waits when it is dropped: keep it to the
/// end of `main`, and drop the loggers before it.
pub fn logger(settings: &Settings) -> (Logger, AsyncGuard) {
    let (level, queue) = (settings.log_level, settings.log_queue_max);
    if is_human(settings.log_format, stderr().is_terminal()) {
        root(human().ignore_res(), level, queue)
    } else {
        root(json(stderr()).ignore_res(), level, queue)
    }
}

fn is_human(format: LogFormat, on_terminal: bool) -> bool {
    match format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => on_terminal,
    }
}

fn human() -> FullFormat<TermDecorator> {
    FullFormat::new(TermDecorator::new().stderr().build())
        .use_utc_timestamp()
        .use_original_order()
        .build()
}

/// One object a line: `ts` (RFC 3339), `level`, `msg` and the fields of the line.
fn json<W: Write>(to: W) -> Json<W> {
    Json::new(to).add_default_keys().build()
}

fn root<D>(drain: D, level: Level, queue: usize) -> (Logger, AsyncGuard)
where
    D: Drain<Ok = (), Err = Never> + Send + 'static,
{
    let writer = AsyncCore::custom(drain).chan_size(queue).thread_name("log".into());
    let (queue, guard) = writer.build_with_guard();
    let counted = DropCounter { queue, dropped: AtomicU64::new(0) };
    (Logger::root(counted.filter_level(level).ignore_res(), o!()), guard)
}

/// Counts the lines that the queue had no room for, and logs their number as soon as it has.
///
/// `slog_async::Async` would do this too, but it takes every report that it could not log for
/// another dropped line, and so tells about twice the number.
struct DropCounter {
    queue: AsyncCore,
    dropped: AtomicU64,
}

impl Drain for DropCounter {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), Never> {
        self.report();
        if self.queue.log(record, values).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl DropCounter {
    fn report(&self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped == 0 {
            return;
        }
        let reported = self.queue.log(
            &record!(
                Level::Warning,
                "log",
                &format_args!("the log could not keep up and dropped lines"),
                b!("lines" => dropped)
            ),
            &o!().into(),
        );
        if reported.is_err() {
            self.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
    }
}

impl Drop for DropCounter {
    fn drop(&mut self) {
        self.report();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use slog::{debug, info, warn};
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};

    /// Keeps what is written and tells of each line; waits before the first until it is let go.
    struct Gated {
        written: Arc<Mutex<Vec<u8>>>,
        gate: Receiver<()>,
        is_open: bool,
        line_ends: Sender<()>,
    }

    /// A writer, what opens its gate, and what tells of the lines it wrote.
    fn gated(written: &Arc<Mutex<Vec<u8>>>) -> (Gated, Sender<()>, Receiver<()>) {
        let ((open, gate), (line_ends, told)) = (channel(), channel());
        (Gated { written: Arc::clone(written), gate, is_open: false, line_ends }, open, told)
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.is_open {
                self.gate.recv().map_err(io::Error::other)?;
                self.is_open = true;
            }
            if bytes.contains(&b'\n') {
                self.line_ends.send(()).map_err(io::Error::other)?;
            }
            self.written.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(written: &Mutex<Vec<u8>>) -> Vec<Value> {
        let written = written.lock().unwrap();
        let lines = written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    #[test]
    fn a_line_is_one_json_object_with_its_fields_and_lesser_levels_are_left_out() {
        let written = Arc::default();
        let (to, open, _told) = gated(&written);
        open.send(()).unwrap();
        let (log, guard) = root(json(to).ignore_res(), Level::Info, 16);
        info!(log, "listening"; "port" => 8080);
        debug!(log, "too much");
        drop(log);
        drop(guard);

        let lines = lines(&written);
        assert_eq!(lines.len(), 1);
        assert_eq!((&lines[0]["msg"], &lines[0]["level"]), (&"listening".into(), &"INFO".into()));
        assert_eq!(lines[0]["port"], 8080);
        assert!(lines[0]["ts"].is_string());
    }

    #[test]
    fn a_log_that_cannot_keep_up_says_how_many_lines_it_dropped() {
        let written = Arc::default();
        let (to, open, told) = gated(&written);
        let (log, guard) = root(json(to).ignore_res(), Level::Info, 4);
        for number in 0..100 {
            warn!(log, "flood"; "number" => number);
        }
        open.send(()).unwrap();
        // At least four lines are in the queue; when three are out there is room for the report.
        told.iter().take(3).for_each(drop);
        drop(log);
        drop(guard);

        let (reports, flood): (Vec<_>, Vec<_>) =
            lines(&written).into_iter().partition(|line| line["msg"] != "flood");
        let dropped: u64 = reports.iter().map(|line| line["lines"].as_u64().unwrap()).sum();
        assert!(flood.len() < 10, "{} lines came through", flood.len());
        assert_eq!(flood.len() as u64 + dropped, 100);
    }

    #[test]
    fn auto_is_for_people_only_on_a_terminal() {
        assert!(is_human(LogFormat::Auto, true) && !is_human(LogFormat::Auto, false));
        assert!(is_human(LogFormat::Human, false) && !is_human(LogFormat::Json, true));
    }
}
