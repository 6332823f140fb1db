//! Where a job tells how it goes, and hears that it is to stop.

use std::time::Duration;

use storage::{StoreError, StoreFuture};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::JobError;
use crate::admin::output::{Output, Progress};

/// Lines that may wait until they are printed or sent.
pub const LINES_MAX: usize = 16;

/// How often progress is told at most.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// How long is waited before a step is taken again that the store had no room for; it doubles
/// with every refusal.
const BUSY_WAIT: Duration = Duration::from_millis(500);

/// How often the store may have no room for one step: half a minute in all.
const REFUSALS_MAX: u32 = 6;

/// A job's way to whoever asked for it.
pub struct Report {
    lines: mpsc::Sender<Output>,
    stop: watch::Receiver<bool>,
    next_progress: Instant,
}

impl Report {
    /// Tells its lines to `lines`, and is to stop when `stop` turns true or its sender is gone.
    pub fn new(lines: mpsc::Sender<Output>, stop: watch::Receiver<bool>) -> Self {
        Self { lines, stop, next_progress: Instant::now() }
    }

    /// Tells something; where nobody listens any more, the job stops.
    pub async fn emit(&self, line: Output) -> Result<(), JobError> {
        self.lines.send(line).await.map_err(|_| JobError::Stopped)
    }

    /// Tells a sentence.
    pub async fn note(&self, text: impl Into<String>) -> Result<(), JobError> {
        self.emit(Output::Note(text.into())).await
    }

    /// Tells how far it has come, unless that was told just now or nobody keeps up with it.
    pub fn progress(&mut self, what: &str, done: u64, of: Option<u64>) {
        let now = Instant::now();
        if now >= self.next_progress {
            self.next_progress = now + PROGRESS_EVERY;
            let progress = Progress { what: what.to_owned(), done, of };
            // The next one says the same and more.
            let _ = self.lines.try_send(Output::Progress(progress));
        }
    }

    /// Takes one step, unless the job is to stop. A step that was begun is waited for, one that the
    /// store has no room for is taken again later.
    pub async fn step<T>(&self, mut step: impl FnMut() -> StoreFuture<T>) -> Result<T, JobError> {
        let mut refusals = 0;
        loop {
            self.check_stopped()?;
            match step().await {
                Err(StoreError::Busy) => self.backoff(&mut refusals).await?,
                answer => return Ok(answer?),
            }
        }
    }

    /// Waits for the store to have room again, until that is too often.
    pub async fn backoff(&self, refusals: &mut u32) -> Result<(), JobError> {
        if *refusals == REFUSALS_MAX {
            return Err(StoreError::Busy.into());
        }
        let wait = BUSY_WAIT * 2_u32.pow(*refusals);
        *refusals += 1;
        self.wait_until(Instant::now() + wait).await
    }

    /// Whether the job may go on.
    pub fn check_stopped(&self) -> Result<(), JobError> {
        if self.is_stopped() { Err(JobError::Stopped) } else { Ok(()) }
    }

    /// Waits, unless the job is to stop.
    pub async fn wait_until(&self, time: Instant) -> Result<(), JobError> {
        self.or_interrupted(sleep_until(time)).await
    }

    /// Waits for something, unless the job is to stop.
    pub async fn or_interrupted<T>(&self, event: impl Future<Output = T>) -> Result<T, JobError> {
        let mut stop = self.stop.clone();
        tokio::select! {
            // An error is a sender that is gone.
            _ = stop.wait_for(|stop| *stop) => Err(JobError::Stopped),
            () = self.lines.closed() => Err(JobError::Stopped),
            output = event => Ok(output),
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err() || self.lines.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> (Report, mpsc::Receiver<Output>, watch::Sender<bool>) {
        let (lines, told) = mpsc::channel(LINES_MAX);
        let (stop, stopped) = watch::channel(false);
        (Report::new(lines, stopped), told, stop)
    }

    fn one() -> StoreFuture<u8> {
        Box::pin(async { Ok(1) })
    }

    #[tokio::test(start_paused = true)]
    async fn steps_are_taken_until_it_is_told_to_stop() {
        let (report, _told, stop) = report();
        assert_eq!(report.step(one).await, Ok(1));
        stop.send(true).unwrap();
        assert_eq!(report.step(one).await, Err(JobError::Stopped));
        let never = Instant::now() + Duration::from_secs(3600);
        assert_eq!(report.wait_until(never).await, Err(JobError::Stopped));
        assert!(Instant::now() < never);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_is_taken_again_while_the_store_is_busy_but_not_for_ever() {
        let (report, _told, _stop) = report();
        let mut tries = 0;
        let busy_twice = || -> StoreFuture<u8> {
            tries += 1;
            let answer = if tries < 3 { Err(StoreError::Busy) } else { Ok(7) };
            Box::pin(async { answer })
        };
        assert_eq!(report.step(busy_twice).await, Ok(7));

        let began = Instant::now();
        let busy = || -> StoreFuture<u8> { Box::pin(async { Err(StoreError::Busy) }) };
        assert_eq!(report.step(busy).await, Err(JobError::Store(StoreError::Busy)));
        assert!((31..35).contains(&began.elapsed().as_secs()));
        let closed = || -> StoreFuture<u8> { Box::pin(async { Err(StoreError::Closed) }) };
        assert_eq!(report.step(closed).await, Err(JobError::Store(StoreError::Closed)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_nobody_listens_to_stops() {
        let (report, told, _stop) = report();
        drop(told);
        assert_eq!(report.note("x").await, Err(JobError::Stopped));
        assert_eq!(report.step(one).await, Err(JobError::Stopped));
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_told_ten_times_a_second_and_holds_nothing_up() {
        let (mut report, mut told, _stop) = report();
        for done in 0..1000 {
            report.progress("users", done, None);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let mut heard = Vec::new();
        while let Ok(Output::Progress(progress)) = told.try_recv() {
            heard.push(progress.done);
        }
        assert_eq!(heard, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
        for done in 0..1000 {
            report.progress("users", done, None);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(told.len(), LINES_MAX);
    }
}
