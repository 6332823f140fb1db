//! The writer thread: commits all queued jobs together.
//!
//! A durable commit costs one sync of the disk, however many rows it has. While the thread waits
//! for the sync, more jobs queue up, and the next sync is for all of them. A pause before each
//! commit to fill the queue was measured, and gained nothing.
//!
//! A job of many rows runs page by page, with a batch of other jobs between two pages.

use std::collections::{HashMap, VecDeque};
use std::future::ready;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{PoisonError, RwLock};
use std::time::Instant;
use std::{io, slice, thread};

use state_machine::Uaid;
use tokio::sync::{oneshot, watch};

use super::EmbeddedOptions;
use super::error::WriterError;
use super::files::{DirLock, FileKey};
use super::write_connections::WriteConnections;
use crate::store::{StoreError, StoreFuture};

/// The handle of the writer thread.
pub(super) struct Writer {
    /// None once closed. The thread ends when this is dropped and the queue is empty.
    queue: RwLock<Option<SyncSender<Task>>>,
    /// The result of closing the files, once the thread ended.
    ended: watch::Receiver<Option<Result<(), StoreError>>>,
}

/// The files that a job writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    File(FileKey),
    /// Several files in any order.
    ManyFiles,
    /// The job commits, creates or removes files itself, and is alone in its batch.
    Exclusive,
}

/// What a job has done in one run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress<T> {
    Done(T),
    /// One page. The job runs again after other jobs.
    Page,
}

/// A job in the queue.
struct Task {
    /// The user agent whose writes must stay in order.
    uaid: Option<Uaid>,
    target: Target,
    job: Box<dyn Job>,
}

impl Writer {
    /// Starts the thread, which holds the lock of the data directory until it ends.
    pub(super) fn start(
        files: WriteConnections,
        lock: DirLock,
        options: &EmbeddedOptions,
    ) -> io::Result<Self> {
        let (queue, tasks) = sync_channel(options.write_queue_max.max(1));
        let (end, ended) = watch::channel(None);
        let writer_loop = WriterLoop::new(tasks, files, options.write_batch_max);
        thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            let closed = writer_loop.run();
            drop(lock);
            end.send_replace(Some(closed));
        })?;
        Ok(Self { queue: RwLock::new(Some(queue)), ended })
    }

    /// Queues a job, which runs again if its batch was rolled back.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        uaid: Option<Uaid>,
        target: Target,
        mut run: impl FnMut(&mut WriteConnections) -> Result<T, WriterError> + Send + 'static,
    ) -> StoreFuture<T> {
        self.submit_paged(uaid, target, move |files| run(files).map(Progress::Done))
    }

    /// Queues a job that runs until it is done. Each of its pages is committed before the next run, and other writes of
    /// the same user agent may be executed between them.
    pub(super) fn submit_paged<T: Send + 'static>(
        &self,
        uaid: Option<Uaid>,
        target: Target,
        run: impl FnMut(&mut WriteConnections) -> Result<Progress<T>, WriterError> + Send + 'static,
    ) -> StoreFuture<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(QueuedJob { run, outcome: None, reply });
        match self.enqueue(Task { uaid, target, job }) {
            Ok(()) => Box::pin(async { answer.await.unwrap_or_else(|_| Err(stopped())) }),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    /// Lets the thread finish the queue and close the files.
    pub(super) fn close(&self) -> StoreFuture<()> {
        self.queue.write().unwrap_or_else(PoisonError::into_inner).take();
        let mut ended = self.ended.clone();
        Box::pin(async move {
            let end = ended.wait_for(Option::is_some).await;
            end.map_or_else(|_| Err(stopped()), |end| end.clone().expect("waited for"))
        })
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

/// Jobs that have further pages. With so many the queue waits, and rejects calls once it is full.
const PAGED_MAX: usize = 256;

struct WriterLoop {
    tasks: Receiver<Task>,
    /// The first task of the next batch.
    postponed: Option<Task>,
    /// Tasks that have further pages: at most `PAGED_MAX`.
    paged: VecDeque<Task>,
    files: WriteConnections,
    batch_max: usize,
}

impl WriterLoop {
    fn new(tasks: Receiver<Task>, files: WriteConnections, batch_max: usize) -> Self {
        Self { tasks, postponed: None, paged: VecDeque::new(), files, batch_max }
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
        if self.paged.len() >= PAGED_MAX {
            return None;
        }
        let next = || match self.paged.is_empty() {
            true => self.tasks.recv().ok(),
            false => self.tasks.try_recv().ok(),
        };
        let first = self.postponed.take().or_else(next)?;
        let mut batch = WriteBatch::default();
        let mut next = Some(first);
        while let Some(task) = next.take() {
            if !batch.admits(&task) {
                self.postponed = Some(task);
                break;
            }
            batch.push(task);
            if batch.tasks.len() < self.batch_max {
                next = self.tasks.try_recv().ok();
            }
        }
        Some(batch.tasks)
    }

    /// Runs all tasks in the same transactions. If one fails, all are rolled back, and each runs
    /// again in its own, so that its failure affects no other.
    fn commit(&mut self, mut batch: Vec<Task>) {
        if self.run_together(&mut batch) || batch.len() == 1 {
            batch.into_iter().for_each(|task| self.answer(task));
        } else {
            for mut task in batch {
                self.run_together(slice::from_mut(&mut task));
                self.answer(task);
            }
        }
        self.files.write_unwritten(Instant::now());
        self.files.end_batch();
    }

    /// Commits the tasks, or rolls all of them back if one fails. Returns whether none did.
    fn run_together(&mut self, tasks: &mut [Task]) -> bool {
        let done = tasks.iter_mut().all(|task| task.job.run(&mut self.files));
        if done {
            self.files.commit_all();
        } else {
            self.files.roll_back_all();
        }
        done
    }

    /// Answers a task, or keeps it for its next page.
    fn answer(&mut self, task: Task) {
        let key = match task.target {
            Target::File(key) => Some(key),
            Target::ManyFiles | Target::Exclusive => None,
        };
        match self.files.failure(key) {
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
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::super::files::DataDir;
    use super::super::readers::Readers;
    use super::*;

    const ROUTER: Target = Target::File(FileKey::Router);

    /// A writer whose router table has the tables that the jobs below write to.
    async fn writer() -> (TempDir, Writer) {
        let home = tempfile::tempdir().unwrap();
        let (dir, lock, months) = DataDir::open(home.path()).unwrap();
        let (dir, months) = (Arc::new(dir), Arc::new(months));
        let readers = Arc::new(Readers::new(dir.clone(), months.clone(), 1, 1));
        let files = WriteConnections::new(dir, months, readers, 1, Arc::default());
        let writer = Writer::start(files, lock, &EmbeddedOptions::new(4096)).unwrap();
        let tables = "
            CREATE TABLE numbers (n INTEGER PRIMARY KEY);
            CREATE TABLE pairs (n REFERENCES numbers (n) DEFERRABLE INITIALLY DEFERRED)";
        writer.submit(None, ROUTER, sql(tables)).await.unwrap();
        (home, writer)
    }

    fn sql(
        text: &str,
    ) -> impl FnMut(&mut WriteConnections) -> Result<(), WriterError> + Send + 'static {
        let text = text.to_owned();
        move |files| files.write(FileKey::Router, |conn| conn.execute_batch(&text))
    }

    /// Queues jobs while the writer is held up, so that they become one batch.
    async fn in_one_batch(writer: &Writer, jobs: &[&str]) -> Vec<Result<(), StoreError>> {
        let (release, held) = mpsc::channel::<()>();
        let first = writer.submit(None, Target::Exclusive, move |_| Ok(held.recv().is_ok()));
        let answers: Vec<_> =
            jobs.iter().map(|job| writer.submit(None, ROUTER, sql(job))).collect();
        release.send(()).unwrap();
        assert_eq!(first.await, Ok(true));
        futures_util::future::join_all(answers).await
    }

    fn numbers(home: &TempDir) -> Vec<i64> {
        let conn = Connection::open(home.path().join("router.db")).unwrap();
        let mut statement = conn.prepare("SELECT n FROM numbers ORDER BY n").unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn failure_of(answer: &Result<(), StoreError>) -> &str {
        match answer {
            Err(StoreError::Failed(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_failed_job_does_not_fail_its_batch() {
        let (home, writer) = writer().await;
        let half_done = "INSERT INTO numbers VALUES (2); INSERT INTO nowhere VALUES (2)";
        let jobs = ["INSERT INTO numbers VALUES (1)", half_done, "INSERT INTO numbers VALUES (3)"];
        let answers = in_one_batch(&writer, &jobs).await;
        assert!(
            failure_of(&answers[1]).starts_with("cannot write router.db: no such table: nowhere")
        );
        assert_eq!((&answers[0], &answers[2]), (&Ok(()), &Ok(())));
        assert_eq!(numbers(&home), [1, 3]);
    }

    /// A foreign key that is deferred is looked at when the transaction commits.
    #[tokio::test]
    async fn a_commit_that_fails_is_no_success_for_any_of_its_jobs() {
        let (home, writer) = writer().await;
        let jobs = ["INSERT INTO numbers VALUES (1)", "INSERT INTO pairs VALUES (7)"];
        for answer in in_one_batch(&writer, &jobs).await {
            assert!(failure_of(&answer).contains("FOREIGN KEY constraint failed"));
        }
        assert_eq!(numbers(&home), Vec::<i64>::new());
        let again = writer.submit(None, ROUTER, sql(jobs[0])).await;
        assert_eq!(again, Ok(()), "the next batch is not hurt");
        assert_eq!(numbers(&home), [1]);
    }

    /// Queues a job of three pages, and then a job behind it.
    async fn in_pages(writer: &Writer, of_page: [&str; 3]) -> [Result<(), StoreError>; 2] {
        let mut pages: VecDeque<_> = of_page.into_iter().map(sql).collect();
        let (release, held) = mpsc::channel::<()>();
        let first = writer.submit(None, Target::Exclusive, move |_| Ok(held.recv().is_ok()));
        let paged = writer.submit_paged(None, Target::Exclusive, move |files| {
            pages.pop_front().expect("there is a page")(files)?;
            Ok(if pages.is_empty() { Progress::Done(()) } else { Progress::Page })
        });
        let behind =
            writer.submit(None, ROUTER, sql("INSERT INTO numbers SELECT max(n) + 10 FROM numbers"));
        release.send(()).unwrap();
        assert_eq!(first.await, Ok(true));
        [paged.await, behind.await]
    }

    #[tokio::test]
    async fn another_job_runs_between_two_pages() {
        let (home, writer) = writer().await;
        let pages = [1, 2, 3].map(|n| format!("INSERT INTO numbers VALUES ({n})"));
        let answers = in_pages(&writer, pages.each_ref().map(String::as_str)).await;
        assert_eq!(answers, [Ok(()), Ok(())]);
        assert_eq!(numbers(&home), [1, 2, 3, 11]);
    }

    #[tokio::test]
    async fn a_page_that_fails_ends_its_job_and_no_other() {
        let (home, writer) = writer().await;
        let insert = "INSERT INTO numbers VALUES (1)";
        let [paged, behind] =
            in_pages(&writer, [insert, "INSERT INTO nowhere VALUES (2)", insert]).await;
        assert!(failure_of(&paged).contains("no such table: nowhere"));
        assert_eq!(behind, Ok(()));
        assert_eq!(numbers(&home), [1, 11]);
    }

    #[tokio::test]
    async fn more_paged_jobs_than_are_kept_are_done_too() {
        let (home, writer) = writer().await;
        let jobs = (0..PAGED_MAX + 10).map(|job| {
            let mut page = 0;
            writer.submit_paged(None, Target::Exclusive, move |files| {
                page += 1;
                sql(&format!("INSERT INTO numbers VALUES ({})", job * 2 + page))(files)?;
                Ok(if page == 2 { Progress::Done(()) } else { Progress::Page })
            })
        });
        let answers = futures_util::future::join_all(jobs).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(numbers(&home).len(), 2 * (PAGED_MAX + 10));
    }

    #[tokio::test]
    async fn closing_waits_for_all_pages() {
        let (home, writer) = writer().await;
        let mut pages = 0;
        let paged = writer.submit_paged(None, Target::Exclusive, move |files| {
            pages += 1;
            sql(&format!("INSERT INTO numbers VALUES ({pages})"))(files)?;
            Ok(if pages == 50 { Progress::Done(()) } else { Progress::Page })
        });
        drop(paged);
        writer.close().await.unwrap();
        assert_eq!(numbers(&home).len(), 50);
    }

    #[tokio::test]
    async fn a_writer_that_panicked_is_noticed_by_every_call() {
        let (home, writer) = writer().await;
        let (release, held) = mpsc::channel::<()>();
        let panicking = writer.submit(None, ROUTER, move |_| -> Result<(), WriterError> {
            held.recv().unwrap();
            panic!("a bug, as this test wants it")
        });
        let queued_behind = writer.submit(None, ROUTER, sql("INSERT INTO numbers VALUES (1)"));
        release.send(()).unwrap();
        for answer in [panicking.await, queued_behind.await, writer.close().await] {
            assert!(failure_of(&answer).contains("stopped unexpectedly"));
        }
        assert_eq!(numbers(&home), Vec::<i64>::new());
    }

    #[tokio::test]
    async fn a_call_after_the_writer_panicked_is_answered_failed() {
        let (_home, writer) = writer().await;
        let bug = |_: &mut WriteConnections| -> Result<(), WriterError> {
            panic!("a bug, as this test wants")
        };
        let _failed = writer.submit(None, ROUTER, bug).await;
        // The queue is gone once the thread has ended, and closing waits for that.
        let mut ended = writer.ended.clone();
        ended.wait_for(Option::is_some).await.unwrap_err();
        let answer = writer.submit(None, ROUTER, |_| Ok(())).await;
        assert!(failure_of(&answer).contains("stopped unexpectedly"));
    }

    fn task(uaid: u8, target: Target) -> Task {
        let (reply, _answer) = oneshot::channel();
        let run = |_: &mut WriteConnections| Ok(Progress::Done(()));
        let job = Box::new(QueuedJob { run, outcome: None, reply });
        Task { uaid: Some(Uaid([uaid; 16])), target, job }
    }

    #[test]
    fn an_agents_writes_to_different_files_are_never_in_one_batch() {
        let month = Target::File(FileKey::Month("2026_11".parse().unwrap()));
        let mut batch = WriteBatch::default();
        batch.push(task(1, month));
        batch.push(task(2, ROUTER));
        batch.push(task(3, Target::ManyFiles));
        assert!(batch.admits(&task(1, month)) && batch.admits(&task(2, ROUTER)));
        assert!(batch.admits(&task(4, Target::ManyFiles)));
        for refused in [(1, ROUTER), (2, month), (1, Target::ManyFiles), (3, month), (3, ROUTER)] {
            assert!(!batch.admits(&task(refused.0, refused.1)), "{refused:?}");
        }
    }

    #[test]
    fn an_exclusive_job_is_alone_in_its_batch() {
        let mut batch = WriteBatch::default();
        assert!(batch.admits(&task(1, Target::Exclusive)));
        batch.push(task(1, Target::Exclusive));
        assert!(!batch.admits(&task(2, ROUTER)));
        let mut batch = WriteBatch::default();
        batch.push(task(1, ROUTER));
        assert!(!batch.admits(&task(2, Target::Exclusive)));
    }
}
