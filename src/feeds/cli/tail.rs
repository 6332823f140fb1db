//! `kalends feed tail`: a feed's updates as they are published.
//!
//! The job reads the store, or follows the publisher of the server. The process of the command runs it on a store, and
//! then through one server of it after the other. [`tail_url`] reads the updates of a server over HTTP instead.

use std::io::ErrorKind::BrokenPipe;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Duration;

use actors::{FeedSubscription, Feeds, SubscriptionError};
use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::Span;
use state_machine::backoff::Backoff;
use state_machine::feed::consumer::ConsumerEnd;
use state_machine::feed::{FeedName, FeedPage, FeedSyncId};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use url::Url;

use super::key_args::server;
use super::remote::Remote;
use super::stdout_closed;
use super::tail_cursor::TailCursor;
use super::tail_url;
use super::update_printer::{Remaining, UpdatePrinter, restarts};
use crate::command::backend::{connect, reach};
use crate::command::client;
use crate::command::printer::Printer;
use crate::command::store_command::{interrupt, run_here};
use crate::command::{Backend, CommandError, Completion, Failure, Job, JobError, StoreCommand};
use crate::feeds::store::PAGE;
use crate::settings::{Settings, StoreKind};

/// The wait before the first attempt to reach a server again; it doubles up to [`SERVER_RETRY_MAX`].
const SERVER_RETRY: Span = Span(250);

/// The longest of these waits.
const SERVER_RETRY_MAX: Span = Span::from_secs(4);

/// The interval at which a store without a server in this process is read.
const POLL: Span = Span::from_secs(1);

/// The longest wait after a failure of the store; the first one is [`POLL`].
const RETRY_MAX: Span = Span::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedTail {
    /// Name of the feed
    #[arg(value_parser = FeedName::parse)]
    pub feed: FeedName,
    /// Begin behind number N; with --cursor-file, only if FILE does not exist yet
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = update_number)]
    pub after: u64,
    /// End after N updates
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End when all updates that exist are printed
    #[arg(long)]
    pub once: bool,
    /// If deletions behind the number are forgotten, begin again with the first update in place of ending
    #[arg(long)]
    pub restart_if_gone: bool,
    /// Keep the number of the last printed update in FILE, and begin behind it. Each update is printed at
    /// least once, also after kill -9: the last ones may be printed again. FILE.lock keeps a second tail away
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub cursor_file: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
    /// Use the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow reading
    #[arg(long, value_name = "URL", value_parser = server)]
    #[serde(skip)]
    pub url: Option<Url>,
}

fn update_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the number of an update, such as 42".to_owned())
}

impl StoreCommand for FeedTail {
    const NAME: &'static str = "feed tail";
    const ABOUT: &'static str = "Print a feed's updates as they are published";
    const HELP: &'static str = "\
Prints `NUMBER KEY = VALUE` or `NUMBER KEY deleted` until Ctrl-C, or until its output is closed. If
the server ends, it waits for the next one. If none runs on an embedded store, it prints what is there
and waits for one.

Examples:
  kalends feed tail prices --data-dir /var/lib/kalends
  kalends feed tail prices --cursor-file prices.cursor --json --config /etc/kalends/kalends.toml
  kalends feed tail prices --cursor-file prices.cursor --restart-if-gone --data-dir /var/lib/kalends
  kalends feed tail prices --once --after 42 --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed tail prices --url https://push.example.net";
    const FOLLOWS: bool = true;
    const ONLY_READS: bool = true;
    type Report = FeedPage;

    fn main(self, settings: &Settings) -> Result<(), Failure> {
        follow(&self, settings)
    }

    /// Writes pages until `count` updates are written, or with `once` until the end of the feed.
    async fn run(self, job: &Job<FeedPage>) -> Result<(), JobError> {
        let Self { feed, after, count, once, restart_if_gone, .. } = self;
        let mut pages = Pages::open(job, feed, FeedSyncId(after), once)?;
        pages.restart_if_gone = restart_if_gone;
        let mut left =
            count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
        loop {
            let mut page = pages.next(job).await?;
            let is_last = page.is_last();
            page.truncate(left);
            left -= page.updates.len();
            job.report(page).await?;
            if left == 0 || (once && is_last) {
                return Ok(());
            }
        }
    }
}

impl FeedTail {
    fn of(remaining: Remaining) -> Self {
        let Remaining { feed, after, count, once, restart_if_gone } = remaining;
        let (cursor_file, url) = (None, None);
        Self { feed, after, count, once, restart_if_gone, cursor_file, json: false, url }
    }
}

/// Prints updates until `--count`, the end of the feed with `--once`, or an interrupt.
fn follow(args: &FeedTail, settings: &Settings) -> Result<(), Failure> {
    let remote = args.url.as_ref().map(Remote::at).transpose()?;
    let tail = TailCursor::begin(&args.feed, args.after, args.cursor_file.as_deref())?;
    let printer = Printer::new(stdout().lock(), args.json);
    let FeedTail { count, once, restart_if_gone, .. } = *args;
    let mut printer = UpdatePrinter { printer, tail, count, once, restart_if_gone };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = interrupted();
        match &remote {
            Some(remote) => tokio::select! {
                () = stopped(stop) => Ok(()),
                ended = tail_url::follow(remote, &mut printer) => ended,
            },
            None => Local { settings, stop }.follow(&mut printer).await,
        }
    });
    // An HTTP request in progress is abandoned.
    runtime.shutdown_background();
    let ended = match ended {
        // A reader such as `head` closes the output when it has enough. That is no error.
        Err(CommandError::Io(error)) if error.kind() == BrokenPipe => Ok(()),
        ended => ended,
    };
    printer.printer.bar.end();
    // Not after a tail that was refused at once.
    let UpdatePrinter { printer, tail, .. } = printer;
    if args.cursor_file.is_some() && (ended.is_ok() || tail.count() > 0) {
        printer.eprint(&tail.summary());
    }
    Ok(ended?)
}

/// Turns true at the first interrupt, or when standard output is closed. A second interrupt ends the process.
fn interrupted() -> watch::Receiver<bool> {
    let (interrupts, stop) = watch::channel(false);
    let closes = interrupts.clone();
    tokio::spawn(async move {
        stdout_closed::wait(stdout()).await;
        closes.send_replace(true);
    });
    tokio::spawn(async move {
        interrupt().await;
        interrupts.send_replace(true);
        interrupts.closed().await;
    });
    stop
}

/// A feed in the store that the settings name.
struct Local<'a> {
    settings: &'a Settings,
    stop: watch::Receiver<bool>,
}

impl Local<'_> {
    async fn follow<W: Write>(&self, printer: &mut UpdatePrinter<W>) -> Result<(), CommandError> {
        let Some(backend) = self.or_interrupted(reach(self.settings)).await else {
            return Ok(());
        };
        match backend? {
            Backend::Server(stream) => self.follow_servers(stream, printer).await,
            Backend::Own(context) => {
                let has_lock = self.settings.store == StoreKind::Embedded;
                // A tail that stayed in the store would keep its server out.
                let once = printer.once || has_lock;
                let tail = FeedTail { once, ..FeedTail::of(printer.remaining()) };
                let stop = stopped(self.stop.clone());
                let end = run_here(tail, &context, &mut |output| printer.print(output), stop).await;
                context.store.close().await?;
                drop(context);
                let is_done = self.is_done(end?, printer)?;
                if is_done || !has_lock {
                    return Ok(());
                }
                printer
                    .printer
                    .eprint("no server is running here: this is all there is until one starts");
                let mut backoff = Backoff::new(SERVER_RETRY, SERVER_RETRY_MAX);
                let Some(stream) = self.next_server(&mut backoff).await? else { return Ok(()) };
                self.follow_servers(stream, printer).await
            }
        }
    }

    /// Follows through one server after the other. A store without a server is not opened: its server may be about to
    /// start. A server that stops accepts connections for a while, so the waits grow.
    async fn follow_servers<W: Write>(
        &self,
        mut stream: UnixStream,
        printer: &mut UpdatePrinter<W>,
    ) -> Result<(), CommandError> {
        let (mut backoff, mut is_lost) = (Backoff::new(SERVER_RETRY, SERVER_RETRY_MAX), false);
        loop {
            let began = Instant::now();
            let request = (FeedTail::NAME, FeedTail::of(printer.remaining()));
            let (sink, stop) = (&mut |output| printer.print(output), stopped(self.stop.clone()));
            match client::call(stream, request, sink, stop).await {
                Ok(Completion::Stopped)
                | Err(CommandError::Server(_) | CommandError::ServerGone) => {
                    if *self.stop.borrow() {
                        return Ok(());
                    }
                    if printer.once {
                        return Err(CommandError::ServerGone);
                    }
                }
                end => return self.is_done(end?, printer).map(|_| ()),
            }
            if began.elapsed() > Duration::from_millis(SERVER_RETRY_MAX.0) || !is_lost {
                backoff.reset();
                is_lost = true;
                printer.printer.eprint("the server is gone, waiting for it");
            }
            let Some(next) = self.next_server(&mut backoff).await? else { return Ok(()) };
            stream = next;
        }
    }

    /// A connection to the next server; none after an interrupt.
    async fn next_server(&self, backoff: &mut Backoff) -> Result<Option<UnixStream>, CommandError> {
        while self.or_interrupted(sleep(Duration::from_millis(backoff.next().0))).await.is_some() {
            if let Some(stream) = connect(&self.settings.data_dir).await? {
                return Ok(Some(stream));
            }
        }
        Ok(None)
    }

    /// Whether all wanted updates are printed.
    fn is_done<W: Write>(
        &self,
        end: Completion,
        printer: &UpdatePrinter<W>,
    ) -> Result<bool, CommandError> {
        match end {
            Completion::Failed(why) => Err(CommandError::Job(why)),
            Completion::Stopped => Ok(true),
            Completion::Done | Completion::Unwell => {
                Ok(printer.once || printer.remaining().count == Some(0))
            }
        }
    }

    async fn or_interrupted<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = stopped(self.stop.clone()) => None,
            output = event => Some(output),
        }
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The pages behind a cursor.
struct Pages {
    feed: FeedName,
    cursor: FeedSyncId,
    once: bool,
    restart_if_gone: bool,
    /// The publisher of this process; without one, the store is polled.
    publisher: Option<FeedSubscription>,
}

impl Pages {
    fn open(
        job: &Job<FeedPage>,
        feed: FeedName,
        cursor: FeedSyncId,
        once: bool,
    ) -> Result<Self, JobError> {
        let mut pages = Self { feed, cursor, once, restart_if_gone: false, publisher: None };
        pages.subscribe(job)?;
        Ok(pages)
    }

    fn subscribe(&mut self, job: &Job<FeedPage>) -> Result<(), JobError> {
        let feeds = job.context.part::<Feeds>().filter(|_| !self.once);
        let publisher = feeds.map(|feeds| feeds.subscribe(self.feed.clone(), self.cursor));
        let publisher = publisher.transpose();
        self.publisher = publisher.map_err(|error| JobError::Refused(error.to_string()))?;
        Ok(())
    }

    /// The next page; waits until there is one, unless the tail ends with what is there.
    async fn next(&mut self, job: &Job<FeedPage>) -> Result<FeedPage, JobError> {
        let page = loop {
            let Some(publisher) = &mut self.publisher else { break self.poll(job).await? };
            match job.or_interrupted(publisher.next()).await? {
                Ok(page) => break page,
                Err(SubscriptionError::Closed) => return Err(JobError::Stopped),
                Err(SubscriptionError::End(end)) => self.ended(job, end).await?,
            }
        };
        self.cursor = page.cursor;
        Ok(page)
    }

    async fn poll(&mut self, job: &Job<FeedPage>) -> Result<FeedPage, JobError> {
        let mut backoff = Backoff::new(POLL, RETRY_MAX);
        loop {
            let wait = match self.fetch(job).await {
                Ok(page) if self.once || page.cursor > self.cursor => return Ok(page),
                Ok(_) => {
                    backoff.reset();
                    POLL
                }
                Err(JobError::Store(error)) if !self.once => {
                    let wait = backoff.next();
                    let text = format!("{error}; trying again in {} s", wait.0 / 1000);
                    job.problem(text).await?;
                    wait
                }
                Err(error) => return Err(error),
            };
            job.wait_until(Instant::now() + Duration::from_millis(wait.0)).await?;
        }
    }

    async fn fetch(&mut self, job: &Job<FeedPage>) -> Result<FeedPage, JobError> {
        loop {
            let fetch = || job.context.store.fetch_feed(self.feed.clone(), self.cursor, PAGE);
            let page = job.step(fetch).await?;
            let page = page.or_else(|| self.feed.is_always_there().then(FeedPage::default));
            let page = page.ok_or_else(|| self.refused(ConsumerEnd::NoSuchFeed))?;
            match ConsumerEnd::of(&page, self.cursor) {
                Some(end) => self.ended(job, end).await?,
                None => return Ok(page),
            }
        }
    }

    /// Goes back to the first update if that is wanted and helps. A cursor of none is never too old.
    async fn ended(&mut self, job: &Job<FeedPage>, end: ConsumerEnd) -> Result<(), JobError> {
        match end {
            ConsumerEnd::CursorTooOld { .. } if self.restart_if_gone => {
                job.problem(restarts(&self.feed, self.cursor.0)).await?;
                self.cursor = FeedSyncId::NONE;
                self.subscribe(job)
            }
            end => Err(self.refused(end)),
        }
    }

    fn refused(&self, end: ConsumerEnd) -> JobError {
        let Self { feed, cursor, .. } = self;
        let head = match end {
            ConsumerEnd::CursorFromTheFuture { head } => head,
            ConsumerEnd::CursorTooOld { horizon } => {
                return JobError::Refused(format!(
                    "the cursor {cursor} is too old, {feed} has forgotten deletions up to {horizon}: discard what \
                     was printed, and remove the cursor file or give --after 0; --restart-if-gone does so by itself"
                ));
            }
            ConsumerEnd::NoSuchFeed if feed.is_always_there() => FeedSyncId::NONE,
            ConsumerEnd::NoSuchFeed => {
                return JobError::Refused(format!(
                    "there is no feed {feed}: it begins with its first write (`kalends feed put {feed} ...`)"
                ));
            }
        };
        JobError::Refused(format!(
            "the cursor {cursor} is from the future, the last number of {feed} is {head}: if it was restored \
             from a backup, remove the cursor file or give a lesser --after"
        ))
    }
}
