use std::sync::mpsc;

use rusqlite::Connection;
use storage::upgrade::UpgradeWatch;
use tempfile::TempDir;

use super::*;
use crate::files::DataDir;
use crate::readers::Readers;
use crate::statements::run;

const ROUTER: Target = Target::File(FileKey::Router);

/// A writer whose router table has the tables that the jobs below write to.
async fn writer() -> (TempDir, Writer) {
    writer_with(Duration::MAX).await
}

/// A writer whose batches may take this long.
async fn writer_with(write_batch_time_max: Duration) -> (TempDir, Writer) {
    let home = tempfile::tempdir().unwrap();
    let (dir, lock, months) = DataDir::open(home.path(), None, UpgradeWatch::NONE).unwrap();
    let (dir, months) = (Arc::new(dir), Arc::new(months));
    let readers = Arc::new(Readers::new(dir.clone(), months.clone(), 1, 1));
    let files = WriteConnections::new(dir, months, readers, 1, Arc::default());
    let options = EmbeddedOptions { write_batch_time_max, ..EmbeddedOptions::new(4096) };
    let writer = Writer::start(files, lock, &options).unwrap();
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
    move |files| files.write(FileKey::Router, |conn| run(conn, &text))
}

/// Queues jobs while the writer is held up, so that they become one batch.
async fn in_one_batch(writer: &Writer, jobs: &[&str]) -> Vec<Result<(), StoreError>> {
    let (release, held) = mpsc::channel::<()>();
    let first = writer.submit(None, Target::Exclusive, move |_| Ok(held.recv().is_ok()));
    let answers: Vec<_> = jobs.iter().map(|job| writer.submit(None, ROUTER, sql(job))).collect();
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
    assert!(failure_of(&answers[1]).starts_with("cannot write router.db: no such table: nowhere"));
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

/// Each batch ends with its first job, so that a commit that fails fails one of them.
#[tokio::test]
async fn a_batch_whose_time_is_up_is_committed_and_the_next_one_has_the_rest() {
    let (home, writer) = writer_with(Duration::ZERO).await;
    let next = "INSERT INTO numbers SELECT max(n) + 1 FROM numbers";
    let jobs = ["INSERT INTO numbers VALUES (1)", "INSERT INTO pairs VALUES (7)", next, next];
    let answers = in_one_batch(&writer, &jobs).await;
    assert!(failure_of(&answers[1]).contains("FOREIGN KEY constraint failed"));
    assert_eq!((&answers[0], &answers[2], &answers[3]), (&Ok(()), &Ok(()), &Ok(())));
    assert_eq!(numbers(&home), [1, 2, 3]);
}

#[tokio::test]
async fn the_time_of_a_batch_has_that_of_its_jobs() {
    let (_home, writer) = writer().await;
    let slow = Duration::from_millis(60);
    let held = move |_: &mut WriteConnections| {
        let began = Instant::now();
        while began.elapsed() <= slow {
            thread::yield_now();
        }
        Ok(())
    };
    writer.submit(None, Target::Exclusive, held).await.unwrap();
    // A batch is counted after its answers, and before the next one.
    writer.submit(None, ROUTER, sql("INSERT INTO numbers VALUES (1)")).await.unwrap();
    let times = writer.commit_times();
    assert!(times.longest_ms >= 60 && times.counts[6..] != [0; 4], "{times:?}");
}

/// Runs a job of three pages, and queues another one during its first page.
async fn in_pages(writer: &Writer, of_page: [&str; 3]) -> [Result<(), StoreError>; 2] {
    let mut pages: VecDeque<_> = of_page.into_iter().map(sql).collect();
    let ((begin, begun), (release, held)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let paged = writer.submit_paged(None, Target::Exclusive, move |files| {
        if pages.len() == 3 {
            begin.send(()).unwrap();
            held.recv().unwrap();
        }
        pages.pop_front().expect("there is a page")(files)?;
        Ok(if pages.is_empty() { Progress::Done(()) } else { Progress::Page })
    });
    begun.recv().unwrap();
    let behind =
        writer.submit(None, ROUTER, sql("INSERT INTO numbers SELECT max(n) + 10 FROM numbers"));
    release.send(()).unwrap();
    [paged.await, behind.await]
}

/// The next number, or one that is this much larger than the last.
fn next_number(more: u32) -> String {
    format!("INSERT INTO numbers SELECT coalesce(max(n), 0) + {more} FROM numbers")
}

#[tokio::test]
async fn a_job_waits_for_one_page_of_all_jobs_before_it() {
    let (home, writer) = writer().await;
    let (release, held) = mpsc::channel::<()>();
    let first = writer.submit(None, Target::Exclusive, move |_| Ok(held.recv().is_ok()));
    let page = next_number(1);
    let paged = (0..10).map(|nth| {
        let (uaid, mut pages) = (Uaid([nth; 16]), 0);
        let mut page = sql(&page);
        writer.submit_paged(Some(uaid), Target::Exclusive, move |files| {
            pages += 1;
            page(files)?;
            Ok(if pages == 3 { Progress::Done(()) } else { Progress::Page })
        })
    });
    let paged: Vec<_> = paged.collect();
    let behind = writer.submit(None, ROUTER, sql(&next_number(1000)));
    release.send(()).unwrap();
    assert_eq!((first.await, behind.await), (Ok(true), Ok(())));
    assert_eq!(futures_util::future::join_all(paged).await, [const { Ok(()) }; 10]);
    let numbers = numbers(&home);
    assert!(numbers.len() == 31 && numbers[1] >= 1000, "{numbers:?}");
}

#[tokio::test]
async fn the_first_page_runs_after_earlier_writes_of_its_agent() {
    let (home, writer) = writer_with(Duration::ZERO).await;
    let (release, held) = mpsc::channel::<()>();
    let first = writer.submit(None, Target::Exclusive, move |_| Ok(held.recv().is_ok()));
    let writes: Vec<_> = [(1, 1), (2, 1), (3, 70)]
        .map(|(uaid, more)| writer.submit(Some(Uaid([uaid; 16])), ROUTER, sql(&next_number(more))))
        .into();
    let mut page = sql(&next_number(1));
    let paged = writer.submit_paged(Some(Uaid([3; 16])), Target::Exclusive, move |files| {
        page(files).map(Progress::Done)
    });
    release.send(()).unwrap();
    assert_eq!((first.await, paged.await), (Ok(true), Ok(())));
    assert!(futures_util::future::join_all(writes).await.iter().all(Result::is_ok));
    assert_eq!(numbers(&home), [1, 2, 72, 73]);
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
    Task { uaid: Some(Uaid([uaid; 16])), target, is_paged: false, job, _counted: Arc::new(()) }
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
