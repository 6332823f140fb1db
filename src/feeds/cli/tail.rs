//! `kalends feed tail`: a feed's updates from the store, or through the server that holds it. With `--url`,
//! [`tail_url`] reads them.

use std::io::ErrorKind::BrokenPipe;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::Duration;

use state_machine::Span;
use state_machine::backoff::Backoff;
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::args::Tail;
use super::remote::Remote;
use super::{FeedCliError, stdout_closed, tail_url};
use crate::operate::admin::backend::{Backend, connect, reach};
use crate::operate::admin::bar::Bar;
use crate::operate::admin::client;
use crate::operate::admin::command::{AdminError, interrupt, run_here};
use crate::operate::admin::commands::{FeedTail, Request};
use crate::operate::admin::output::Completion;
use crate::operate::admin::print::Printer;
use crate::operate::admin::tail_cursor::TailCursor;
use crate::settings::{Settings, StoreKind};

/// The wait before the first attempt to reach a server again; it doubles up to [`RETRY_MAX`].
const RETRY: Span = Span(250);

/// The longest of these waits.
const RETRY_MAX: Span = Span::from_secs(4);

/// Prints updates until `--count`, the end of the feed with `--once`, or an interrupt.
pub fn run(args: &Tail, settings: &Settings) -> Result<(), FeedCliError> {
    let remote = args.url.as_ref().map(Remote::at).transpose()?;
    let FeedTail { feed, after, .. } = &args.tail;
    let cursor = TailCursor::begin(feed, *after, args.cursor_file.as_deref());
    let cursor = cursor.map_err(AdminError::from)?;
    let bar = Bar::new(stderr().is_terminal());
    let mut printer = Printer::new(stdout().lock(), args.json, bar).tailing(cursor);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = interrupted();
        match &remote {
            Some(remote) => tokio::select! {
                () = stopped(stop) => Ok(()),
                ended = tail_url::follow(args, remote, &mut printer) => ended,
            },
            None => Ok(Local { args, settings, stop }.follow(&mut printer).await?),
        }
    });
    // An HTTP request in progress is abandoned.
    runtime.shutdown_background();
    let ended = match ended {
        // A reader such as `head` closes the output when it has enough. That is no error.
        Err(FeedCliError::Admin(AdminError::Io(error))) if error.kind() == BrokenPipe => Ok(()),
        ended => ended,
    };
    printer.end();
    // Not after a tail that was refused at once.
    if let Some(cursor) = printer.tail().filter(|_| args.cursor_file.is_some())
        && (ended.is_ok() || cursor.count() > 0)
    {
        printer.eprint(&cursor.summary());
    }
    ended
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

/// The updates that are still to be printed.
pub(super) fn remaining<W: Write>(args: &Tail, printer: &Printer<W>) -> FeedTail {
    let (after, printed) =
        printer.tail().map_or((args.tail.after, 0), |tail| (tail.cursor(), tail.count()));
    let count = args.tail.count.map(|count| count.saturating_sub(printed));
    FeedTail { after, count, ..args.tail.clone() }
}

/// A feed in the store that the settings name.
struct Local<'a> {
    args: &'a Tail,
    settings: &'a Settings,
    stop: watch::Receiver<bool>,
}

impl Local<'_> {
    async fn follow<W: Write>(&self, printer: &mut Printer<W>) -> Result<(), AdminError> {
        let request = Request::FeedTail(remaining(self.args, printer));
        let Some(backend) = self.or_interrupted(reach(&request, self.settings)).await else {
            return Ok(());
        };
        match backend? {
            Backend::Server(stream) => self.follow_servers(stream, printer).await,
            Backend::Own(context) => {
                let has_lock = self.settings.store == StoreKind::Embedded;
                // A tail that stayed in the store would keep its server out.
                let once = self.args.tail.once || has_lock;
                let tail = FeedTail { once, ..remaining(self.args, printer) };
                let stop = stopped(self.stop.clone());
                let end = run_here(Request::FeedTail(tail), &context, printer, stop).await;
                context.store.close().await?;
                drop(context);
                let is_done = self.is_done(end?, printer)?;
                if is_done || !has_lock {
                    return Ok(());
                }
                printer.eprint("no server is running here: this is all there is until one starts");
                let mut backoff = Backoff::new(RETRY, RETRY_MAX);
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
        printer: &mut Printer<W>,
    ) -> Result<(), AdminError> {
        let (mut backoff, mut is_lost) = (Backoff::new(RETRY, RETRY_MAX), false);
        loop {
            let (request, began) =
                (Request::FeedTail(remaining(self.args, printer)), Instant::now());
            match client::call(stream, &request, printer, stopped(self.stop.clone())).await {
                Ok(Completion::Stopped) | Err(AdminError::Server(_) | AdminError::ServerGone) => {
                    if *self.stop.borrow() {
                        return Ok(());
                    }
                    if self.args.tail.once {
                        return Err(AdminError::ServerGone);
                    }
                }
                end => return self.is_done(end?, printer).map(|_| ()),
            }
            if began.elapsed() > Duration::from_millis(RETRY_MAX.0) || !is_lost {
                backoff.reset();
                is_lost = true;
                printer.eprint("the server is gone, waiting for it");
            }
            let Some(next) = self.next_server(&mut backoff).await? else { return Ok(()) };
            stream = next;
        }
    }

    /// A connection to the next server; none after an interrupt.
    async fn next_server(&self, backoff: &mut Backoff) -> Result<Option<UnixStream>, AdminError> {
        while self.or_interrupted(sleep(Duration::from_millis(backoff.next().0))).await.is_some() {
            if let Some(stream) = connect(&self.settings.data_dir).await? {
                return Ok(Some(stream));
            }
        }
        Ok(None)
    }

    /// Whether all wanted updates are printed.
    fn is_done<W: Write>(&self, end: Completion, printer: &Printer<W>) -> Result<bool, AdminError> {
        match end {
            Completion::Failed(why) => Err(AdminError::Job(why)),
            Completion::Stopped => Ok(true),
            Completion::Done | Completion::Unwell => {
                Ok(self.args.tail.once || remaining(self.args, printer).count == Some(0))
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
