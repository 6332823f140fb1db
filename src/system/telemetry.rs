//! Logging with slog, to standard error: readable on a terminal, JSON elsewhere.
//!
//! A thread of its own writes the lines. If it cannot keep up, lines are dropped and counted; the
//! server never waits for the log. [`LogState`] shows whether lines are lost.

mod log_state;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, Write, stderr};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use slog::{Drain, Level, Logger, Never, OwnedKVList, Record, error, o};
use slog_async::{AsyncCore, AsyncGuard};
use slog_json::Json;
use slog_term::{FullFormat, TermDecorator};

pub use log_state::{LOST, LogState};
use log_state::{Watched, WholeLines, log_lost};

/// The maximum time for the queued lines at the end of the process: their reader may have stopped.
const END_WAIT: Duration = Duration::from_secs(2);

/// How lines are written: for a person, as JSON, or by whether standard error is a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Human,
    Json,
}

/// Writes the queued lines when it is dropped. Drop the loggers before.
pub struct LogGuard {
    queued: Option<AsyncGuard>,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (done, ended) = channel();
        let queued = self.queued.take();
        thread::spawn(move || {
            drop(queued);
            // Nothing waits any more after `END_WAIT`.
            let _ = done.send(());
        });
        let _ = ended.recv_timeout(END_WAIT);
    }
}

/// The root logger, what is known of its lines, and a guard. At most `queue` lines wait.
pub fn logger(format: LogFormat, level: Level, queue: usize) -> (Logger, Arc<LogState>, LogGuard) {
    let (log, state, queued) = if is_human(format, stderr().is_terminal()) {
        root(human(), level, queue)
    } else {
        root(json(stderr()), level, queue)
    };
    (log, state, LogGuard { queued: Some(queued) })
}

/// Logs panics as lines like all others until this is dropped: a thread that writes to standard error by itself would
/// wait for its reader.
pub struct PanicLog;

impl PanicLog {
    pub fn start(log: Logger) -> Self {
        panic::set_hook(Box::new(move |panic| {
            let text = panic.payload_as_str().unwrap_or("no text");
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let backtrace = Backtrace::capture();
            let backtrace =
                (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
            error!(log, "a part of the server panicked, which is a bug: please report it";
                "panic" => text, "place" => place, "backtrace" => backtrace);
        }));
        Self
    }
}

impl Drop for PanicLog {
    fn drop(&mut self) {
        if !thread::panicking() {
            drop(panic::take_hook());
        }
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

/// One object for each line: `ts` (RFC 3339), `level`, `msg` and the fields of the line.
fn json<W: Write>(to: W) -> Json<WholeLines<W>> {
    Json::new(WholeLines::new(to)).set_flush(true).add_default_keys().build()
}

fn root<D>(drain: D, level: Level, queue: usize) -> (Logger, Arc<LogState>, AsyncGuard)
where
    D: Drain<Ok = ()> + Send + 'static,
{
    let state = Arc::<LogState>::default();
    let drain = Watched::new(drain, Arc::clone(&state));
    let writer = AsyncCore::custom(drain).chan_size(queue).thread_name("log".into());
    let (queue, guard) = writer.build_with_guard();
    let counted = DropCounter { queue, state: Arc::clone(&state), dropped: AtomicU64::new(0) };
    (Logger::root(counted.filter_level(level).ignore_res(), o!()), state, guard)
}

/// Counts the lines dropped because the queue was full, and logs their number when it has room.
///
/// `slog_async::Async` counts a report that it could not queue as a dropped line too, and so logs
/// about twice the number.
struct DropCounter {
    queue: AsyncCore,
    state: Arc<LogState>,
    /// Lines since the last report.
    dropped: AtomicU64,
}

impl Drain for DropCounter {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), Never> {
        self.report();
        if self.queue.log(record, values).is_err() {
            self.state.count_dropped();
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
        let text = "the log could not keep up, lines were dropped";
        let reported = log_lost(&self.queue, text, dropped);
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
pub(crate) mod fixture;
#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use slog::{debug, info, warn};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};
    use std::{io, thread};

    /// Keeps what is written and signals each line. The first write waits for the gate.
    struct Gated {
        written: Arc<Mutex<Vec<u8>>>,
        gate: Receiver<()>,
        is_open: bool,
        line_ends: Sender<()>,
    }

    /// A writer, the sender that opens its gate, and the receiver of its line signals.
    fn gated(written: &Arc<Mutex<Vec<u8>>>) -> (Gated, Sender<()>, Receiver<()>) {
        let ((open, gate), (line_ends, signals)) = (channel(), channel());
        (Gated { written: Arc::clone(written), gate, is_open: false, line_ends }, open, signals)
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
    fn a_line_is_one_json_object_and_lower_levels_are_left_out() {
        let written = Arc::default();
        let (to, open, _signals) = gated(&written);
        open.send(()).unwrap();
        let (log, _state, guard) = root(json(to), Level::Info, 16);
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
    fn a_log_that_cannot_keep_up_reports_the_number_of_dropped_lines() {
        let written = Arc::default();
        let (to, open, signals) = gated(&written);
        let (log, state, guard) = root(json(to), Level::Info, 4);
        for number in 0..100 {
            warn!(log, "flood"; "number" => number);
        }
        open.send(()).unwrap();
        // The queue holds at least four lines; after three are written, it has room for the report.
        signals.iter().take(3).for_each(drop);
        drop(log);
        drop(guard);

        let (reports, flood): (Vec<_>, Vec<_>) =
            lines(&written).into_iter().partition(|line| line["msg"] != "flood");
        let dropped: u64 = reports.iter().map(|line| line["lines"].as_u64().unwrap()).sum();
        assert!(flood.len() < 10, "{} lines came through", flood.len());
        assert_eq!(flood.len() as u64 + dropped, 100);
        assert_eq!(state.lost(), [dropped, 0]);
    }

    /// A writer that fails while it is broken, after a part of the line.
    #[derive(Clone, Default)]
    struct Breakable {
        written: Arc<Mutex<Vec<u8>>>,
        is_broken: Arc<AtomicBool>,
    }

    impl Write for Breakable {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.written.lock().unwrap();
            match self.is_broken.load(Ordering::Relaxed) {
                false => written.write(bytes),
                true if written.ends_with(b"\n") => written.write(&bytes[..1]),
                true => Err(io::ErrorKind::StorageFull.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported_once_writing_works_again() {
        let to = Breakable::default();
        let state = Arc::<LogState>::default();
        let log = Watched::new(json(to.clone()), Arc::clone(&state));
        let log = Logger::root(Mutex::new(log).ignore_res(), o!());
        let works = || state.works(Instant::now());
        info!(log, "first");
        assert!(works());
        to.is_broken.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            info!(log, "lost");
            assert!(!works());
        }
        to.is_broken.store(false, Ordering::Relaxed);
        info!(log, "again");
        assert!(works());
        assert_eq!(state.lost(), [0, 3]);

        let written = String::from_utf8(to.written.lock().unwrap().clone()).unwrap();
        let lines: Vec<Option<Value>> =
            written.lines().map(|line| serde_json::from_str(line).ok()).collect();
        // The second line is the part of a lost one.
        let [Some(first), None, Some(report), Some(again)] = &lines[..] else {
            panic!("{written}");
        };
        assert_eq!((&first["msg"], &again["msg"]), (&"first".into(), &"again".into()));
        assert!(report["msg"].as_str().unwrap().contains("could not be written"), "{report}");
        assert_eq!((&report["level"], &report["lines"]), (&"WARN".into(), &3.into()));
    }

    #[test]
    fn a_log_whose_reader_has_stopped_does_not_work() {
        let written = Arc::default();
        let (to, open, signals) = gated(&written);
        let (log, state, _guard) = root(json(to), Level::Info, 4);
        info!(log, "stuck");
        let later = || state.works(Instant::now() + Duration::from_secs(11));
        while later() {
            thread::yield_now();
        }
        assert!(state.works(Instant::now()));
        open.send(()).unwrap();
        signals.recv().unwrap();
        while !later() {
            thread::yield_now();
        }
        assert_eq!(state.lost(), [0, 0]);
    }

    #[test]
    fn a_panic_is_a_line_with_its_place() {
        let written = Arc::default();
        let (to, open, _signals) = gated(&written);
        open.send(()).unwrap();
        let (log, _state, guard) = root(json(to), Level::Info, 16);
        let usual = panic::take_hook();
        let panics = PanicLog::start(log);
        let ended = thread::spawn(|| panic!("seven is {}", 7)).join();
        drop(panics);
        panic::set_hook(usual);
        drop(guard);

        assert!(ended.is_err());
        let lines = lines(&written);
        let line = lines.iter().find(|line| line["panic"] == "seven is 7").expect("it is logged");
        assert!(line["place"].as_str().unwrap().contains("telemetry.rs"), "{line}");
        assert_eq!(line["level"], "ERRO");
    }

    #[test]
    fn auto_is_human_only_on_a_terminal() {
        assert!(is_human(LogFormat::Auto, true) && !is_human(LogFormat::Auto, false));
        assert!(is_human(LogFormat::Human, false) && !is_human(LogFormat::Json, true));
    }
}
