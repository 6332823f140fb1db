//! The writer thread: commits all queued jobs together.
//!
//! A durable commit costs one sync of the disk, however many rows it has. While the thread waits
//! for the sync, more jobs queue up, and the next sync is for all of them. A pause before each
//! commit to fill the queue was measured, and gained nothing.
//!
//! A job of many rows runs page by page, with a batch of other jobs between two pages of any job. So a write waits for
//! one page, however many such jobs were queued before it.

mod batch_times;

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use std::{io, slice, thread};

use batch_times::BatchTimes;
use state_machine::Uaid;
use storage::data_dir::DirLock;
use storage::data_dir::FileKey;
use storage::store::{CommitTimes, QueueState, SlowWrites, StoreError, StoreFuture, answered};
use tokio::sync::{oneshot, watch};

use crate::EmbeddedOptions;
use crate::error::WriterError;
use crate::write_connections::WriteConnections;

/// The handle of the writer thread.
pub(crate) struct Writer {
    /// None once closed. The thread ends when this is dropped and the queue is empty.
    queue: RwLock<Option<SyncSender<Task>>>,
    /// The result of closing the files, once the thread ended.
    ended: watch::Receiver<Option<Result<(), StoreError>>>,
    batch_times: Arc<BatchTimes>,
    /// Each task that has not ended has a reference to it.
    tasks: Arc<()>,
    tasks_max: usize,
}

/// The files that a job writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    File(FileKey),
    /// Several files in any order.
    ManyFiles,
    /// The job commits, creates or removes files itself, and is alone in its batch.
    Exclusive,
}

/// What a job has done in one run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress<T> {
    Done(T),
    /// One page. The job runs again after other jobs.
    Page,
}

/// A job in the queue.
struct Task {
    /// The user agent whose writes must stay in order.
    uaid: Option<Uaid>,
    target: Target,
    is_paged: bool,
    job: Box<dyn Job>,
    _counted: Arc<()>,
}

impl Writer {
    /// Starts the thread, which holds the lock of the data directory until it ends.
    pub(crate) fn start(
        files: WriteConnections,
        lock: DirLock,
        options: &EmbeddedOptions,
    ) -> io::Result<Self> {
        let tasks_max = options.write_queue_max.max(1);
        let (queue, tasks) = sync_channel(tasks_max);
        let (end, ended) = watch::channel(None);
        let batch_times = Arc::<BatchTimes>::default();
        let writer_loop = WriterLoop::new(tasks, files, options, batch_times.clone());
        thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            let closed = writer_loop.run();
            drop(lock);
            end.send_replace(Some(closed));
        })?;
        let queue = RwLock::new(Some(queue));
        Ok(Self { queue, ended, batch_times, tasks: Arc::new(()), tasks_max })
    }

    /// Queues a job, which runs again if its batch was rolled back.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        uaid: Option<Uaid>,
        target: Target,
        mut run: impl FnMut(&mut WriteConnections) -> Result<T, WriterError> + Send + 'static,
    ) -> StoreFuture<T> {
        self.submit_job(uaid, target, false, move |files| run(files).map(Progress::Done))
    }

    /// Queues a job that runs until it is done. Each of its pages is committed before the next run. Later writes of the
    /// same user agent may be executed before any of its pages, and earlier ones are not executed after it.
    pub(crate) fn submit_paged<T: Send + 'static>(
        &self,
        uaid: Option<Uaid>,
        target: Target,
        run: impl FnMut(&mut WriteConnections) -> Result<Progress<T>, WriterError> + Send + 'static,
    ) -> StoreFuture<T> {
        self.submit_job(uaid, target, true, run)
    }

    fn submit_job<T: Send + 'static>(
        &self,
        uaid: Option<Uaid>,
        target: Target,
        is_paged: bool,
        run: impl FnMut(&mut WriteConnections) -> Result<Progress<T>, WriterError> + Send + 'static,
    ) -> StoreFuture<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(QueuedJob { run, outcome: None, reply });
        let _counted = Arc::clone(&self.tasks);
        match self.enqueue(Task { uaid, target, is_paged, job, _counted }) {
            Ok(()) => Box::pin(async { answer.await.unwrap_or_else(|_| Err(stopped())) }),
            Err(error) => answered(Err(error)),
        }
    }

    /// Lets the thread finish the queue and close the files.
    pub(crate) fn close(&self) -> StoreFuture<()> {
        self.queue.write().unwrap_or_else(PoisonError::into_inner).take();
        let mut ended = self.ended.clone();
        Box::pin(async move {
            let end = ended.wait_for(Option::is_some).await;
            end.map_or_else(|_| Err(stopped()), |end| end.clone().expect("waited for"))
        })
    }

    /// The tasks that have not ended, also those that no longer occupy a place of the queue.
    pub(crate) fn queue(&self) -> QueueState {
        QueueState { length: Arc::strong_count(&self.tasks) - 1, max: self.tasks_max }
    }

    /// The times of all batches since the start.
    pub(crate) fn commit_times(&self) -> CommitTimes {
        self.batch_times.all()
    }

    /// The slow batches since the last call.
    pub(crate) fn take_slow_batches(&self) -> Option<SlowWrites> {
        self.batch_times.take_slow()
    }

    fn enqueue(&self, task: Task) -> Result<(), StoreError> {
        let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.as_ref().ok_or(StoreError::Closed)?;
        queue.try_send(task).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Busy,
            TrySendError::Disconnected(_) => stopped(),
        })
    }
}

/// Jobs whose pages wait for their turn. With so many the queue waits until one has ended, and rejects calls once it is
/// full.
const PAGED_MAX: usize = 256;

struct WriterLoop {
    tasks: Receiver<Task>,
    /// The first tasks of the next batch: fewer than two batches.
    postponed: VecDeque<Task>,
    /// Tasks whose next page has its turn after those before it: at most `PAGED_MAX`.
    paged: VecDeque<Task>,
    files: WriteConnections,
    batch_max: usize,
    batch_time_max: Duration,
    batch_times: Arc<BatchTimes>,
}

impl WriterLoop {
    fn new(
        tasks: Receiver<Task>,
        files: WriteConnections,
        options: &EmbeddedOptions,
        batch_times: Arc<BatchTimes>,
    ) -> Self {
        let (postponed, paged) = (VecDeque::new(), VecDeque::new());
        let (batch_max, batch_time_max) = (options.write_batch_max, options.write_batch_time_max);
        Self { tasks, postponed, paged, files, batch_max, batch_time_max, batch_times }
    }

    fn run(mut self) -> Result<(), StoreError> {
        loop {
            let batch = self.next_batch();
            let page = self.paged.pop_front();
            if batch.is_none() && page.is_none() {
                return self.files.close();
            }
            batch
                .into_iter()
                .chain(page.map(|task| vec![task]))
                .for_each(|tasks| self.commit(tasks));
        }
    }

    /// Waits for a task, and takes all that are queued behind it. None when closed, or if a page can be run instead.
    fn next_batch(&mut self) -> Option<Vec<Task>> {
        let mut batch = WriteBatch::default();
        let mut next = match self.paged.is_empty() && self.postponed.is_empty() {
            true => self.tasks.recv().ok(),
            false => self.next_task(),
        };
        while let Some(task) = next.take() {
            if task.is_paged && !batch.writes_for(task.uaid) {
                self.paged.push_back(task);
            } else if batch.admits(&task) {
                batch.push(task);
            } else {
                self.postponed.push_front(task);
                break;
            }
            if batch.tasks.len() < self.batch_max {
                next = self.next_task();
            }
        }
        (!batch.tasks.is_empty()).then_some(batch.tasks)
    }

    /// None while as many pages wait as may.
    fn next_task(&mut self) -> Option<Task> {
        if self.paged.len() >= PAGED_MAX {
            return None;
        }
        self.postponed.pop_front().or_else(|| self.tasks.try_recv().ok())
    }

    /// Runs the tasks in the same transactions. If one fails, all are rolled back, and each runs
    /// again in its own, so that its failure affects no other.
    fn commit(&mut self, mut batch: Vec<Task>) {
        let began = Instant::now();
        let (count, is_committed) = self.run_together(&mut batch);
        for task in batch.drain(count..).rev() {
            self.postponed.push_front(task);
        }
        if is_committed || count == 1 {
            batch.into_iter().for_each(|task| self.answer(task));
        } else {
            for mut task in batch {
                self.run_together(slice::from_mut(&mut task));
                self.answer(task);
            }
        }
        self.files.write_unwritten(Instant::now());
        self.files.end_batch();
        self.batch_times.add(began.elapsed());
    }

    /// Runs tasks until their time is up, and commits them, or rolls all of them back if one fails. Returns how many ran,
    /// and whether none failed.
    fn run_together(&mut self, tasks: &mut [Task]) -> (usize, bool) {
        let began = Instant::now();
        for (at, task) in tasks.iter_mut().enumerate() {
            if !task.job.run(&mut self.files) {
                self.files.roll_back_all();
                return (at + 1, false);
            }
            if began.elapsed() >= self.batch_time_max {
                self.files.commit_all();
                return (at + 1, true);
            }
        }
        self.files.commit_all();
        (tasks.len(), true)
    }

    /// Answers a task, or keeps it for its next page.
    fn answer(&mut self, task: Task) {
        let key = match task.target {
            Target::File(key) => Some(key),
            Target::ManyFiles | Target::Exclusive => None,
        };
        match self.files.failure(key) {
            // Where no further job fits, this one is finished first: other writes wait for its end.
            None if task.job.has_next_page() && self.paged.len() + 1 >= PAGED_MAX => {
                self.paged.push_front(task);
            }
            None if task.job.has_next_page() => self.paged.push_back(task),
            failure => task.job.answer(failure),
        }
    }
}

/// Tasks that are committed together.
#[derive(Default)]
struct WriteBatch {
    tasks: Vec<Task>,
    targets: HashMap<Uaid, Target>,
}

impl WriteBatch {
    /// A crash between the commits of two files must not keep a user agent's later write without
    /// its earlier one. So a batch has each agent's writes in one file only.
    fn admits(&self, task: &Task) -> bool {
        let Some(last) = self.tasks.last() else { return true };
        let earlier = task.uaid.and_then(|uaid| self.targets.get(&uaid));
        let in_order = match (earlier, task.target) {
            (None, _) => true,
            (Some(Target::File(earlier)), Target::File(key)) => *earlier == key,
            (Some(_), _) => false,
        };
        in_order && last.target != Target::Exclusive && task.target != Target::Exclusive
    }

    /// Whether it has a write of this user agent.
    fn writes_for(&self, uaid: Option<Uaid>) -> bool {
        uaid.is_some_and(|uaid| self.targets.contains_key(&uaid))
    }

    fn push(&mut self, task: Task) {
        if let Some(uaid) = task.uaid {
            self.targets.entry(uaid).or_insert(task.target);
        }
        self.tasks.push(task);
    }
}

/// A job with its type erased: it is run, again after a rollback, and then answered.
trait Job: Send {
    /// Returns whether its changes may be committed.
    fn run(&mut self, files: &mut WriteConnections) -> bool;

    fn has_next_page(&self) -> bool;

    /// Sends its outcome, or why its changes are not on disk.
    fn answer(self: Box<Self>, failure: Option<&StoreError>);
}

struct QueuedJob<T, F> {
    run: F,
    /// The outcome of the last run.
    outcome: Option<Result<Progress<T>, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&mut WriteConnections) -> Result<Progress<T>, WriterError> + Send> Job
    for QueuedJob<T, F>
{
    fn run(&mut self, files: &mut WriteConnections) -> bool {
        let (outcome, sound) = match (self.run)(files) {
            Ok(value) => (Ok(value), true),
            Err(WriterError::Refused(error)) => (Err(error), true),
            Err(WriterError::Broken(error)) => (Err(error), false),
        };
        self.outcome = Some(outcome);
        sound
    }

    fn has_next_page(&self) -> bool {
        matches!(self.outcome, Some(Ok(Progress::Page)))
    }

    fn answer(self: Box<Self>, failure: Option<&StoreError>) {
        let Self { outcome, reply, .. } = *self;
        let answer = match (outcome.expect("a job is answered after it was run"), failure) {
            (Err(error), _) => Err(error),
            (Ok(_), Some(error)) => Err(error.clone()),
            (Ok(Progress::Done(value)), None) => Ok(value),
            (Ok(Progress::Page), None) => unreachable!("a page is answered only if it failed"),
        };
        // The caller may have dropped its future, which cancels nothing.
        let _unread = reply.send(answer);
    }
}

fn stopped() -> StoreError {
    StoreError::Failed("the store's writer thread stopped unexpectedly, restart the server".into())
}

#[cfg(test)]
mod tests;
