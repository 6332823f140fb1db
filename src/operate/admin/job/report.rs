//! The store that a job works on, where it writes its output, and how it learns that it must stop.

use std::cell::Cell;
use std::time::Duration;

use state_machine::backoff::Backoff;
use state_machine::{Month, Span};
use storage::{StoreError, StoreFuture};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::JobError;
use crate::operate::admin::job_context::JobContext;
use crate::operate::admin::output::{Output, Progress};
use crate::settings::store::message_tables;

/// Outputs that wait to be printed or sent.
pub const OUTPUTS_MAX: usize = 16;

/// The minimum interval between two outputs of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The first wait before a step is repeated that the store refused as busy; it doubles with every refusal.
const BUSY_WAIT: Span = Span(500);

/// The longest of these waits.
const BUSY_WAIT_MAX: Span = Span::from_secs(16);

/// Refusals of one step after which the job fails: half a minute in all.
const REFUSALS_MAX: u32 = 6;

/// A job at work: its store, its output, and whether it must stop.
pub struct Report {
    pub context: JobContext,
    outputs: mpsc::Sender<Output>,
    stop: watch::Receiver<bool>,
    next_progress: Cell<Instant>,
}

impl Report {
    /// Writes to `outputs`. The job must stop when `stop` turns true, its sender is gone, or nothing reads the outputs.
    pub fn new(
        context: JobContext,
        outputs: mpsc::Sender<Output>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self { context, outputs, stop, next_progress: Cell::new(Instant::now()) }
    }

    pub async fn emit(&self, output: Output) -> Result<(), JobError> {
        self.outputs.send(output).await.map_err(|_| JobError::Stopped)
    }

    pub async fn note(&self, text: impl Into<String>) -> Result<(), JobError> {
        self.emit(Output::Note(text.into())).await
    }

    /// Writes progress, unless some was written just now or the reader does not keep up.
    pub fn progress(&self, what: &str, done: u64, of: Option<u64>) {
        let now = Instant::now();
        if now >= self.next_progress.get() {
            self.next_progress.set(now + PROGRESS_EVERY);
            let progress = Progress { what: what.to_owned(), done, of };
            // The next one replaces it.
            let _ = self.outputs.try_send(Output::Progress(progress));
        }
    }

    /// Runs one step unless the job must stop. A step that has begun is finished; one that the store refuses as busy
    /// is repeated.
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

    /// The month of all messages, if rotation is off.
    pub async fn frozen_month(&self) -> Result<Option<Month>, JobError> {
        if let Some(month) = self.context.frozen_month {
            return Ok(Some(month));
        }
        self.step(|| {
            let JobContext { store, rotation, .. } = self.context.clone();
            let now = self.context.now();
            Box::pin(async move { message_tables::frozen_month(&*store, now, rotation).await })
        })
        .await
    }

    /// Waits before a step is repeated. Fails after [`REFUSALS_MAX`].
    pub async fn backoff(&self, refusals: &mut u32) -> Result<(), JobError> {
        if *refusals == REFUSALS_MAX {
            return Err(StoreError::Busy.into());
        }
        let wait = Backoff::delay(BUSY_WAIT, BUSY_WAIT_MAX, *refusals);
        *refusals += 1;
        self.wait_until(Instant::now() + Duration::from_millis(wait.0)).await
    }

    pub fn check_stopped(&self) -> Result<(), JobError> {
        let is_stopped =
            *self.stop.borrow() || self.stop.has_changed().is_err() || self.outputs.is_closed();
        if is_stopped { Err(JobError::Stopped) } else { Ok(()) }
    }

    pub async fn wait_until(&self, time: Instant) -> Result<(), JobError> {
        self.or_interrupted(sleep_until(time)).await
    }

    /// Waits for an event unless the job must stop.
    pub async fn or_interrupted<T>(&self, event: impl Future<Output = T>) -> Result<T, JobError> {
        let mut stop = self.stop.clone();
        tokio::select! {
            // An error means that the sender is gone.
            _ = stop.wait_for(|stop| *stop) => Err(JobError::Stopped),
            () = self.outputs.closed() => Err(JobError::Stopped),
            output = event => Ok(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::admin::fixture::Fixture;

    async fn report() -> (Report, mpsc::Receiver<Output>, watch::Sender<bool>) {
        let (outputs, queue) = mpsc::channel(OUTPUTS_MAX);
        let (stop, stopped) = watch::channel(false);
        let context = Fixture::with(&[]).await.context;
        (Report::new(context, outputs, stopped), queue, stop)
    }

    fn one() -> StoreFuture<u8> {
        Box::pin(async { Ok(1) })
    }

    #[tokio::test(start_paused = true)]
    async fn no_step_begins_after_the_job_is_stopped() {
        let (report, _queue, stop) = report().await;
        assert_eq!(report.step(one).await, Ok(1));
        stop.send(true).unwrap();
        assert_eq!(report.step(one).await, Err(JobError::Stopped));
        let never = Instant::now() + Duration::from_secs(3600);
        assert_eq!(report.wait_until(never).await, Err(JobError::Stopped));
        assert!(Instant::now() < never);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_is_repeated_while_the_store_is_busy_for_half_a_minute() {
        let (report, _queue, _stop) = report().await;
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
    async fn a_job_without_a_reader_stops() {
        let (report, queue, _stop) = report().await;
        drop(queue);
        assert_eq!(report.note("x").await, Err(JobError::Stopped));
        assert_eq!(report.step(one).await, Err(JobError::Stopped));
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_written_ten_times_a_second_and_delays_nothing() {
        let (report, mut queue, _stop) = report().await;
        for done in 0..1000 {
            report.progress("users", done, None);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let mut written = Vec::new();
        while let Ok(Output::Progress(progress)) = queue.try_recv() {
            written.push(progress.done);
        }
        assert_eq!(written, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
        for done in 0..1000 {
            report.progress("users", done, None);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(queue.len(), OUTPUTS_MAX);
    }
}
