//! `kalends feed tail`: a feed's updates through its store, or through the server that has it.

use std::io::ErrorKind::BrokenPipe;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::args::TailWhat;
use super::{FeedCliError, stdout_closed};
use crate::admin::backend::{Backend, connect, reach};
use crate::admin::bar::Bar;
use crate::admin::client;
use crate::admin::command::{AdminError, interrupt, work};
use crate::admin::feed::{FeedTail, Name};
use crate::admin::output::Completion;
use crate::admin::print::Printer;
use crate::admin::request::Request;
use crate::admin::tail_cursor::TailCursor;
use crate::settings::{Settings, StoreKind};

/// How long is waited before a server that is not there is looked for again; it doubles up to [`LOOK_MAX`].
const LOOK: Duration = Duration::from_millis(250);

/// The longest of these waits.
const LOOK_MAX: Duration = Duration::from_secs(4);

/// Prints until there were as many as were asked for, or until it is interrupted.
pub fn run(what: &TailWhat, settings: &Settings) -> Result<(), FeedCliError> {
    let mut printer = printer(what)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = interrupted();
        Local { what, settings, stop }.follow(&mut printer).await
    });
    let ended = unless_nobody_reads(ended.map_err(FeedCliError::from));
    finish(&printer, what, ended.is_ok());
    ended
}

/// Prints a feed's updates on standard output, and remembers them.
pub(super) fn printer(what: &TailWhat) -> Result<Printer<impl Write>, FeedCliError> {
    let tailed = TailCursor::begin(&what.feed, what.after, what.cursor_file.as_deref())?;
    let bar = Bar::new(stderr().is_terminal());
    Ok(Printer::new(stdout().lock(), what.json, bar).tailing(tailed))
}

/// Who reads what is printed may go away when it has enough, as `head` does. That is an end as good as any.
pub(super) fn unless_nobody_reads(ended: Result<(), FeedCliError>) -> Result<(), FeedCliError> {
    match ended {
        Err(FeedCliError::Admin(AdminError::Io(error))) if error.kind() == BrokenPipe => Ok(()),
        ended => ended,
    }
}

/// Says how far it came, where that is not plain to see. What was refused came nowhere.
pub(super) fn finish<W: Write>(printer: &Printer<W>, what: &TailWhat, is_well: bool) {
    printer.end();
    let tailed = printer.tailed().filter(|_| what.cursor_file.is_some());
    if let Some(tailed) = tailed.filter(|tailed| is_well || tailed.count() > 0) {
        printer.eprint(&tailed.summary());
    }
}

/// Turns true at the first interrupt, or when nobody reads any more; a second interrupt ends the process.
pub(super) fn interrupted() -> watch::Receiver<bool> {
    let (is_interrupted, stop) = watch::channel(false);
    let is_unread = is_interrupted.clone();
    tokio::spawn(async move {
        stdout_closed::wait(stdout()).await;
        is_unread.send_replace(true);
    });
    tokio::spawn(async move {
        interrupt().await;
        is_interrupted.send_replace(true);
        is_interrupted.closed().await;
    });
    stop
}

/// What is behind the number that was printed last, as far as it was asked for.
pub(super) fn left<W>(what: &TailWhat, printer: &Printer<W>) -> FeedTail
where
    W: Write,
{
    let tailed = printer.tailed();
    let (after, seen) = tailed.map_or((what.after, 0), |tailed| (tailed.cursor(), tailed.count()));
    let count = what.count.map(|count| count.saturating_sub(seen));
    FeedTail { feed: Name(what.feed.clone()), after, count, once: what.once }
}

/// A feed of this machine's settings.
struct Local<'a> {
    what: &'a TailWhat,
    settings: &'a Settings,
    stop: watch::Receiver<bool>,
}

impl Local<'_> {
    async fn follow<W: Write>(&self, printer: &mut Printer<W>) -> Result<(), AdminError> {
        let request = Request::FeedTail(left(self.what, printer));
        let Some(way) = self.or_interrupted(reach(&request, self.settings)).await else {
            return Ok(());
        };
        match way? {
            Backend::Server(stream) => self.follow_servers(stream, printer).await,
            Backend::Own(context) => {
                let has_lock = self.settings.store == StoreKind::Embedded;
                // Who stays in a store keeps its server out.
                let tail =
                    FeedTail { once: self.what.once || has_lock, ..left(self.what, printer) };
                let end = work(Request::FeedTail(tail), &context, printer, self.stopped()).await;
                context.store.close().await?;
                drop(context);
                let is_done = self.is_done(end?, printer)?;
                if is_done || !has_lock {
                    return Ok(());
                }
                printer.eprint("no server is running here: this is all there is until one starts");
                let Some(stream) = self.next_server(&mut { LOOK }).await? else { return Ok(()) };
                self.follow_servers(stream, printer).await
            }
        }
    }

    /// Through one server after the other. A store without one is left alone: its server may be about to start.
    /// A server that stops lets everybody go at once and for a while takes in who comes back, so pauses grow where
    /// they follow each other closely.
    async fn follow_servers<W: Write>(
        &self,
        mut stream: UnixStream,
        printer: &mut Printer<W>,
    ) -> Result<(), AdminError> {
        let mut pause = LOOK;
        loop {
            let (request, began) = (Request::FeedTail(left(self.what, printer)), Instant::now());
            match client::ask(stream, &request, printer, self.stopped()).await {
                Ok(Completion::Stopped) | Err(AdminError::Server(_) | AdminError::ServerGone)
                    if *self.stop.borrow() =>
                {
                    return Ok(());
                }
                Ok(Completion::Stopped) | Err(AdminError::Server(_) | AdminError::ServerGone)
                    if !self.what.once => {}
                Ok(Completion::Stopped) => return Err(AdminError::ServerGone),
                Ok(end) => return self.is_done(end, printer).map(|_| ()),
                Err(error) => return Err(error),
            }
            if began.elapsed() > LOOK_MAX || pause == LOOK {
                pause = LOOK;
                printer.eprint("the server is gone, waiting for it");
            }
            let Some(next) = self.next_server(&mut pause).await? else { return Ok(()) };
            stream = next;
        }
    }

    /// The next server that is there; none where it is interrupted before.
    async fn next_server(&self, pause: &mut Duration) -> Result<Option<UnixStream>, AdminError> {
        while self.or_interrupted(sleep(*pause)).await.is_some() {
            *pause = (*pause * 2).min(LOOK_MAX);
            if let Some(stream) = connect(&self.settings.data_dir).await? {
                return Ok(Some(stream));
            }
        }
        Ok(None)
    }

    /// Whether all that was asked for was printed.
    fn is_done<W: Write>(&self, end: Completion, printer: &Printer<W>) -> Result<bool, AdminError> {
        match end {
            Completion::Failed(why) => Err(AdminError::Job(why)),
            Completion::Stopped => Ok(true),
            Completion::Done | Completion::Unwell => {
                Ok(self.what.once || left(self.what, printer).count == Some(0))
            }
        }
    }

    async fn stopped(&self) {
        let mut stop = self.stop.clone();
        // An error is a sender that is gone, and with it the end.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    async fn or_interrupted<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.stopped() => None,
            output = event => Some(output),
        }
    }
}
