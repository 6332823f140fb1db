//! The server's end of `admin.sock`, through which commands reach a store that it holds.
//!
//! A client sends one request on one line, and gets lines until the one that says how it ended. It
//! stops the job by closing its side. Who may connect is settled by the file's mode: its owner.
//! Commands that end and those that follow a feed have places of their own, so that neither keeps
//! the other out.
//!
//! It has a thread of its own, so that no job holds up what the server is there for.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use slog::{Logger, info, warn};
use socket2::{Domain, SockAddr, Socket, Type};
use state_machine::feed::FeedValue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::address::{Address, FILE};
use super::job;
use super::job_context::JobContext;
use super::output::{Completion, Output};
use super::request::Request;

/// Bytes a request may have: the largest value of a feed, of which JSON may make six bytes of one,
/// and what is around it.
pub const REQUEST_BYTES_MAX: usize = 6 * FeedValue::BYTES_MAX + 4096;

/// Commands that are at work at once.
pub const COMMANDS_MAX: usize = 8;

/// Commands that follow a feed at once.
pub const TAILS_MAX: usize = 16;

/// Connections at once: beside those at work, some that still have to say what they want.
pub const CONNECTIONS_MAX: usize = COMMANDS_MAX + TAILS_MAX + 8;

/// How long a client may take to send its request.
const REQUEST_WAIT: Duration = Duration::from_secs(5);

/// How long a client may take to read a line before it counts as gone.
const WRITE_WAIT: Duration = Duration::from_secs(30);

/// How long is waited after a connection could not be accepted.
const ACCEPT_WAIT: Duration = Duration::from_secs(1);

/// How long the end of a server waits for jobs to end between two steps.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// Connections that the system holds which were not accepted yet.
const BACKLOG: i32 = 16;

/// The socket before it is ready.
const UNFINISHED: &str = "admin.sock.new";

/// A socket that is listened on. Its file goes when this is dropped.
pub struct AdminSocket {
    address: Address,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

/// Places for commands at work.
#[derive(Clone)]
struct Places {
    commands: Arc<Semaphore>,
    tails: Arc<Semaphore>,
}

/// Listens in the data directory, which this process must have to itself. None where that cannot
/// be; the log says why, and the server works without it.
pub fn start(data_dir: &Path, context: JobContext, log: &Logger) -> Option<AdminSocket> {
    try_start(data_dir, context, log)
        .inspect_err(|error| {
            warn!(log, "cannot listen on admin.sock: kalends tables, users, feed and preflight work only \
                while this server is stopped"; "error" => %error);
        })
        .ok()
}

fn try_start(data_dir: &Path, context: JobContext, log: &Logger) -> io::Result<AdminSocket> {
    let (address, listener) = bind(data_dir)?;
    let ((stop, stopped), (is_ended, ended)) = (watch::channel(false), oneshot::channel());
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let log = log.clone();
    thread::Builder::new().name("admin".into()).spawn(move || {
        if let Err(error) = runtime.block_on(accept(listener, &context, stopped, &log)) {
            warn!(log, "cannot accept on admin.sock any more"; "error" => %error);
        }
        // The server may have ended without waiting for this.
        let _ = is_ended.send(());
    })?;
    Ok(AdminSocket { address, stop, ended })
}

/// Binds under another name, so that under its own it is never open to others, and takes the place
/// of what a killed server left.
fn bind(data_dir: &Path) -> io::Result<(Address, BlockingListener)> {
    let unfinished = Address::new(data_dir, UNFINISHED)?;
    let address = Address::new(data_dir, FILE)?;
    match fs::remove_file(unfinished.path()) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(unfinished.path())?)?;
    fs::set_permissions(unfinished.path(), Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    fs::rename(unfinished.path(), address.path())?;
    Ok((address, socket.into()))
}

impl AdminSocket {
    /// Takes no further commands, and stops those at work between two steps.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // What is still at work then gets its answer from a store that is closed.
        let _ = timeout(STOP_WAIT, &mut self.ended).await;
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // A file that stays is one that the next server replaces.
        let _ = fs::remove_file(self.address.path());
    }
}

async fn accept(
    listener: BlockingListener,
    context: &JobContext,
    stopped: watch::Receiver<bool>,
    log: &Logger,
) -> io::Result<()> {
    let mut stop = stopped.clone();
    let listener = UnixListener::from_std(listener)?;
    let (mut connections, places) = (JoinSet::new(), Places::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let stream = match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // No descriptors are left, most likely: others will end.
                        warn!(log, "cannot accept on admin.sock, will try again"; "error" => %error);
                        sleep(ACCEPT_WAIT).await;
                        continue;
                    }
                };
                while connections.try_join_next().is_some() {}
                if connections.len() < CONNECTIONS_MAX {
                    let (context, places, log) = (context.clone(), places.clone(), log.clone());
                    connections.spawn(serve(stream, context, places, stopped.clone(), log));
                } else {
                    refuse(&stream);
                }
            }
            // An error is a server that is gone.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Says so, if that can be said without waiting.
fn refuse(stream: &UnixStream) {
    let why = format!("{CONNECTIONS_MAX} commands are connected already: try again later");
    let _ = stream.try_write(String::from(Output::End(Completion::Failed(why))).as_bytes());
}

impl Places {
    fn new() -> Self {
        Self {
            commands: Arc::new(Semaphore::new(COMMANDS_MAX)),
            tails: Arc::new(Semaphore::new(TAILS_MAX)),
        }
    }

    /// A place for as long as what is returned lives.
    fn take(&self, request: &Request) -> Result<OwnedSemaphorePermit, String> {
        let (places, taken) = match request {
            Request::FeedTail(_) => (&self.tails, format!("{TAILS_MAX} commands follow feeds")),
            _ => (&self.commands, format!("{COMMANDS_MAX} commands are at work")),
        };
        let place = Arc::clone(places).try_acquire_owned();
        place.map_err(|_| format!("{taken} already: try again later"))
    }
}

/// One connection: reads the request, and does it until it is done or not wanted any more.
async fn serve(
    stream: UnixStream,
    context: JobContext,
    places: Places,
    server_stops: watch::Receiver<bool>,
    log: Logger,
) {
    let (read, write) = stream.into_split();
    let mut read = BufReader::new(read);
    let (lines, queue) = mpsc::channel(job::LINES_MAX);
    let (stop, stopped) = watch::channel(false);
    let work = async {
        let request = read_request(&mut read).await;
        match request.and_then(|request| Ok((places.take(&request)?, request))) {
            Ok((_place, request)) => {
                let work = perform(request, &context, lines, stopped, &log);
                stop_when(gone(&mut read, server_stops), &stop, work).await;
            }
            Err(why) => drop(lines.send(Output::End(Completion::Failed(why))).await),
        }
    };
    tokio::join!(work, write_lines(queue, write));
}

async fn perform(
    request: Request,
    context: &JobContext,
    lines: mpsc::Sender<Output>,
    stop: watch::Receiver<bool>,
    log: &Logger,
) {
    let asked = format!("{request:?}");
    info!(log, "an operator's command begins"; "request" => &asked);
    let end = job::perform(request, context, lines, stop).await;
    info!(log, "an operator's command ended"; "request" => &asked, "end" => ?end);
}

/// Does the work, and tells it to stop when the event comes before its end.
async fn stop_when(event: impl Future, stop: &watch::Sender<bool>, work: impl Future<Output = ()>) {
    tokio::pin!(work);
    tokio::select! {
        () = &mut work => {}
        _ = event => {
            stop.send_replace(true);
            work.await;
        }
    }
}

/// Comes when the client closed its side, or said something where there is nothing to say, or the
/// server stops.
async fn gone(read: &mut BufReader<OwnedReadHalf>, mut server_stops: watch::Receiver<bool>) {
    tokio::select! {
        _ = read.read_u8() => {}
        _ = server_stops.wait_for(|stop| *stop) => {}
    }
}

async fn read_request(read: &mut BufReader<OwnedReadHalf>) -> Result<Request, String> {
    let (mut line, max) = (Vec::new(), REQUEST_BYTES_MAX as u64 + 1);
    let mut bounded = read.take(max);
    match timeout(REQUEST_WAIT, bounded.read_until(b'\n', &mut line)).await {
        Err(_) => Err(format!("no request came within {} s", REQUEST_WAIT.as_secs())),
        Ok(Err(error)) => Err(format!("the request cannot be read: {error}")),
        Ok(Ok(_)) if line.len() > REQUEST_BYTES_MAX => {
            Err(format!("a request has at most {REQUEST_BYTES_MAX} bytes"))
        }
        Ok(Ok(_)) => Request::from_line(&line),
    }
}

/// Ends with the queue, or with the client.
async fn write_lines(mut queue: mpsc::Receiver<Output>, mut write: OwnedWriteHalf) {
    while let Some(line) = queue.recv().await {
        let text = String::from(line);
        match timeout(WRITE_WAIT, write.write_all(text.as_bytes())).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests;
