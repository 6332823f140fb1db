//! A job at work: the store that it works on, where it writes its output, and how it learns that it must stop.

use std::cell::Cell;
use std::time::Duration;

use state_machine::backoff::Backoff;
use state_machine::{Month, Span};
use storage::{StoreError, StoreFuture};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::context::Context;
use super::output::{NoReport, Output, Progress};
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

/// Why a job ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The command was interrupted, or its process ended.
    #[error("stopped")]
    Stopped,
    #[error("the store failed, and what was done before stays: {0}")]
    Store(StoreError),
    /// The reason, and what to do.
    #[error("{0}")]
    Refused(String),
    /// The work is done, and a check failed.
    #[error("a check failed")]
    Unwell,
}

impl JobError {
    pub fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unsupported(why) => Self::refused(why),
            error => Self::Store(error),
        }
    }
}

/// A job at work: its store, its output with results of type `R`, and whether it must stop.
pub struct Job<R = NoReport> {
    pub context: Context,
    outputs: mpsc::Sender<Output<R>>,
    stop: watch::Receiver<bool>,
    next_progress: Cell<Instant>,
}

impl<R> Job<R> {
    /// Writes to `outputs`. The job must stop when `stop` turns true, its sender is gone, or nothing reads the outputs.
    pub fn new(
        context: Context,
        outputs: mpsc::Sender<Output<R>>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self { context, outputs, stop, next_progress: Cell::new(Instant::now()) }
    }

    async fn emit(&self, output: Output<R>) -> Result<(), JobError> {
        self.outputs.send(output).await.map_err(|_| JobError::Stopped)
    }

    /// Writes the result, or a part of it.
    pub async fn report(&self, report: R) -> Result<(), JobError> {
        self.emit(Output::Report(report)).await
    }

    /// Writes that a step failed and will be repeated.
    pub async fn problem(&self, text: String) -> Result<(), JobError> {
        self.emit(Output::Problem(text)).await
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
            let (store, now) = (self.context.store.clone(), self.context.now());
            let rotation = self.context.settings.rotation;
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
    use crate::command::fixture::Fixture;

    async fn job() -> (Job, mpsc::Receiver<Output<NoReport>>, watch::Sender<bool>) {
        let (outputs, queue) = mpsc::channel(OUTPUTS_MAX);
        let (stop, stopped) = watch::channel(false);
        let context = Fixture::with(&[]).await.context;
        (Job::new(context, outputs, stopped), queue, stop)
    }

    fn one() -> StoreFuture<u8> {
        Box::pin(async { Ok(1) })
    }

    #[tokio::test(start_paused = true)]
    async fn no_step_begins_after_the_job_is_stopped() {
        let (job, _queue, stop) = job().await;
        assert_eq!(job.step(one).await, Ok(1));
        stop.send(true).unwrap();
        assert_eq!(job.step(one).await, Err(JobError::Stopped));
        let never = Instant::now() + Duration::from_secs(3600);
        assert_eq!(job.wait_until(never).await, Err(JobError::Stopped));
        assert!(Instant::now() < never);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_is_repeated_while_the_store_is_busy_for_half_a_minute() {
        let (job, _queue, _stop) = job().await;
        let mut tries = 0;
        let busy_twice = || -> StoreFuture<u8> {
            tries += 1;
            let answer = if tries < 3 { Err(StoreError::Busy) } else { Ok(7) };
            Box::pin(async { answer })
        };
        assert_eq!(job.step(busy_twice).await, Ok(7));

        let began = Instant::now();
        let busy = || -> StoreFuture<u8> { Box::pin(async { Err(StoreError::Busy) }) };
        assert_eq!(job.step(busy).await, Err(JobError::Store(StoreError::Busy)));
        assert!((31..35).contains(&began.elapsed().as_secs()));
        let closed = || -> StoreFuture<u8> { Box::pin(async { Err(StoreError::Closed) }) };
        assert_eq!(job.step(closed).await, Err(JobError::Store(StoreError::Closed)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_without_a_reader_stops() {
        let (job, queue, _stop) = job().await;
        drop(queue);
        assert_eq!(job.note("x").await, Err(JobError::Stopped));
        assert_eq!(job.step(one).await, Err(JobError::Stopped));
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_written_ten_times_a_second_and_delays_nothing() {
        let (job, mut queue, _stop) = job().await;
        for done in 0..1000 {
            job.progress("users", done, None);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let mut written = Vec::new();
        while let Ok(Output::Progress(progress)) = queue.try_recv() {
            written.push(progress.done);
        }
        assert_eq!(written, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
        for done in 0..1000 {
            job.progress("users", done, None);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(queue.len(), OUTPUTS_MAX);
    }
}
