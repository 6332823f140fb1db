//! The server of `admin.sock`, through which commands use a store that the server holds.
//!
//! It is HTTP: `POST /commands`, with the name of the command and its arguments as the first line of the body. The response is a line of JSON for
//! each [`Output`](super::output::Output). The request's body stays open while the command is wanted; its end, or the end of the
//! connection, stops the job between two steps. The mode of the file lets only its owner connect.
//!
//! Jobs run on a thread of their own, so that none delays the server's connections.

use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::error::ErrorBadRequest;
use actix_web::rt::spawn;
use actix_web::web::{self, Data, Payload};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, Result};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use serde_json::Value;
use slog::{Logger, o, warn};
use state_machine::feed::FeedValue;
use storage::durable;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::context::Context;
use super::output::Completion;
use super::protocol::{FILE, PATH, Request, VERSION, VERSION_HEADER, short_path};
use super::served::{Served, Started};
use super::store_command::note;

/// Maximum size of a request, in bytes: the largest value of a feed, of which JSON may write a byte as six, and the
/// fields around it.
pub const REQUEST_BYTES_MAX: usize = 6 * FeedValue::BYTES_MAX + 4096;

/// Commands that run at once.
pub const COMMANDS_MAX: usize = 8;

/// `feed tail` commands that run at once. They have permits of their own: neither kind keeps the other out.
pub const TAILS_MAX: usize = 16;

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = COMMANDS_MAX + TAILS_MAX + 8;

/// How long a client may take to send its request.
const REQUEST_WAIT: Duration = Duration::from_secs(5);

/// How long the end of the server waits for jobs to stop between two steps, in seconds.
const STOP_WAIT_S: u64 = 1;

/// The socket's name until its mode is set.
pub const UNFINISHED: &str = "admin.sock.new";

/// A socket that accepts commands. Its file is removed when this is dropped.
pub struct AdminSocket {
    path: PathBuf,
    _dir: File,
    stop: watch::Sender<bool>,
    server: ServerHandle,
}

/// What each request needs.
#[derive(Clone)]
struct Admin {
    served: Arc<[Served]>,
    context: Context,
    commands: Arc<Semaphore>,
    tails: Arc<Semaphore>,
    server_stops: watch::Receiver<bool>,
    log: Logger,
}

/// Listens in the data directory, which this process must hold. None if the socket cannot be made: the log has the
/// reason, and the server works without it.
pub fn start(
    data_dir: &Path,
    served: impl Iterator<Item = Served>,
    context: Context,
    log: &Logger,
) -> Option<AdminSocket> {
    try_start(data_dir, served.collect(), context, log)
        .inspect_err(|error| {
            warn!(log, "cannot listen on admin.sock: kalends tables, users, feed and preflight work only \
                while this server is stopped"; "error" => %error);
        })
        .ok()
}

fn try_start(
    data_dir: &Path,
    served: Arc<[Served]>,
    context: Context,
    log: &Logger,
) -> io::Result<AdminSocket> {
    let (stop, server_stops) = watch::channel(false);
    let admin = Admin {
        served,
        context,
        commands: Arc::new(Semaphore::new(COMMANDS_MAX)),
        tails: Arc::new(Semaphore::new(TAILS_MAX)),
        server_stops,
        log: log.clone(),
    };
    let listener = bind(data_dir)?;
    let (dir, path) = short_path(data_dir, FILE)?;
    let app =
        move || App::new().app_data(Data::new(admin.clone())).route(PATH, web::post().to(answer));
    let server = HttpServer::new(app)
        .workers(1)
        .max_connections(CONNECTIONS_MAX)
        .client_request_timeout(REQUEST_WAIT)
        .shutdown_timeout(STOP_WAIT_S)
        .disable_signals()
        .listen_uds(listener)?
        .run();
    let handle = server.handle();
    spawn(server);
    Ok(AdminSocket { path, _dir: dir, stop, server: handle })
}

/// Binds under another name and renames: the file under its final name always has its mode, and replaces what a
/// killed server left.
fn bind(data_dir: &Path) -> io::Result<UnixListener> {
    let (_dir, unfinished) = short_path(data_dir, UNFINISHED)?;
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&unfinished)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
    durable::rename(&unfinished, &unfinished.with_file_name(FILE))?;
    Ok(listener)
}

impl AdminSocket {
    /// Stops the jobs between two steps, and the server. A job that takes longer than [`STOP_WAIT_S`] ends with the
    /// store.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.server.stop(true).await;
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // The next server replaces a file that stays.
        let _ = fs::remove_file(&self.path);
    }
}

/// Starts the job of a request. The response streams its output.
async fn answer(http: HttpRequest, mut body: Payload, admin: Data<Admin>) -> Result<HttpResponse> {
    check_version(&http).map_err(ErrorBadRequest)?;
    let (name, args) = read_request(&mut body).await.map_err(ErrorBadRequest)?;
    let command = admin.served.iter().find(|command| command.name == name);
    let unknown = || ErrorBadRequest(format!("the server does not know this request: {name:?}"));
    let command = *command.ok_or_else(unknown)?;
    let (stop, stopped) = watch::channel(false);
    let started = (command.start)(args, admin.context.clone(), stopped);
    let Started { job, lines } = started.map_err(ErrorBadRequest)?;
    let permit = admin.permit(command).map_err(ErrorBadRequest)?;
    spawn(async move {
        admin.perform(command, job, stop, body).await;
        drop(permit);
    });
    let lines = lines.map(Ok::<_, Infallible>);
    Ok(HttpResponse::Ok().content_type("application/x-ndjson").streaming(lines))
}

impl Admin {
    /// Performs a job, until it ends or the server stops. The end of the request's body, which is that of the connection
    /// at the latest, stops it too.
    async fn perform(
        &self,
        Served { name, only_reads, .. }: Served,
        mut job: LocalBoxFuture<'static, Completion>,
        stop: watch::Sender<bool>,
        mut body: Payload,
    ) {
        let log = self.log.new(o!("command" => name));
        note(&log, only_reads, "an operator's command began");
        let mut server_stops = self.server_stops.clone();
        let body_ended = async { while let Some(Ok(_)) = body.next().await {} };
        let ended = tokio::select! {
            ended = &mut job => Some(ended),
            () = body_ended => None,
            _ = server_stops.wait_for(|stops| *stops) => None,
        };
        let end = match ended {
            Some(end) => end,
            None => {
                stop.send_replace(true);
                job.await
            }
        };
        note(&log.new(o!("result" => end.name())), only_reads, "an operator's command ended");
    }

    fn permit(&self, command: Served) -> Result<OwnedSemaphorePermit, String> {
        let (permits, running) = match command.follows {
            true => (&self.tails, format!("{TAILS_MAX} commands follow feeds")),
            false => (&self.commands, format!("{COMMANDS_MAX} commands are running")),
        };
        let permit = Arc::clone(permits).try_acquire_owned();
        permit.map_err(|_| format!("{running} already: try again later"))
    }
}

fn check_version(http: &HttpRequest) -> Result<(), String> {
    let version = http.headers().get(VERSION_HEADER).and_then(|value| value.to_str().ok());
    match version {
        Some(VERSION) => Ok(()),
        Some(other) => Err(format!(
            "this command is version {other} and the server is version {VERSION}: use the same program"
        )),
        None => Err("this is no request of a kalends command".to_owned()),
    }
}

/// Reads the first line of the body.
async fn read_request(body: &mut Payload) -> Result<Request<Value>, String> {
    let mut line = Vec::new();
    let read = async {
        while let Some(chunk) = body.next().await {
            line.extend_from_slice(
                &chunk.map_err(|error| format!("the request broke off: {error}"))?,
            );
            if line.len() > REQUEST_BYTES_MAX {
                return Err(format!("a request has at most {REQUEST_BYTES_MAX} bytes"));
            }
            if line.ends_with(b"\n") {
                break;
            }
        }
        Ok(())
    };
    let seconds = REQUEST_WAIT.as_secs();
    timeout(REQUEST_WAIT, read).await.map_err(|_| format!("no request within {seconds} s"))??;
    serde_json::from_slice(&line)
        .map_err(|error| format!("the server does not know this request: {error}"))
}
