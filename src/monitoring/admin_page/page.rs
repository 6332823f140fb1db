//! The state of the page: who may see it, what operators may do, and what all open pages share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use actors::SharedLogLimiter;
use parking_lot::{Mutex, MutexGuard};
use slog::{o, warn};
use state_machine::token_bucket::{Rate, TokenBucket};
use state_machine::{NodeId, Span, Time};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::sleep;

use super::asked::Asked;
use super::guard::{Form, cookie, read_form};
use super::history::History;
use super::history_file::HistoryFile;
use super::identity::Identity;
use super::pages::{self, Refusal, Shell, refusal};
use super::session::{Session, Sessions};
use crate::command::store_command::{note, run_here};
use crate::command::{Completion, Context, Output, StoreCommand};
use crate::operate::nodes::table::NodeTable;
use crate::push::app::AppState;
use crate::settings::keys::Keys;
use crate::settings::{Settings, StoreKind};

/// Commands of pages that run at once. A further one is refused.
const COMMANDS_MAX: usize = 4;

/// Maximum time of a command. It stops between two steps.
const COMMAND_WAIT: Duration = Duration::from_secs(60);

/// Event streams at once. A further one is answered 503, and its page tries again.
pub(super) const STREAMS_MAX: usize = 32;

/// Wrong logins, and requests with unknown sessions, that are answered in a minute. Further ones get 429 at once.
const WRONG_PER_MINUTE_MAX: usize = 10;

/// Time until such a request is answered.
const WRONG_WAIT: Duration = Duration::from_secs(1);

/// Minimum time between two log lines of them.
const LOG_EVERY: Span = Span::from_secs(60);

/// The state of the page.
pub(crate) struct AdminPage {
    pub(super) node: AppState,
    pub(super) jobs: Context,
    pub(super) identity: Identity,
    pub(super) data_dir: PathBuf,
    pub(super) interval: Duration,
    /// Whether the agents of each month are counted: on DynamoDB that would cost reads of all records.
    pub(super) counts_months: bool,
    pub(super) sessions: Sessions,
    pub(super) live: Live,
    /// One backup at a time.
    pub(super) backups: Arc<Semaphore>,
    /// One visit of the public URL at a time.
    pub(super) visits: Semaphore,
    /// The server was asked to stop.
    pub(super) stops: AtomicBool,
    commands: Semaphore,
    wrong_rate: Rate,
    wrong: Mutex<TokenBucket>,
    log_limiter: SharedLogLimiter,
}

/// A node, whether it does not answer, and whether its clock differs.
pub(super) type KnownNode = (NodeId, bool, bool);

/// What all open pages share.
pub(super) struct Live {
    history: Mutex<History>,
    /// The last `now` event.
    pub(super) frames: watch::Sender<String>,
    /// A page was opened: it does not wait for the next interval.
    pub(super) opened: Notify,
    pub(super) streams: Arc<Semaphore>,
    /// One task computes the events, on the thread of the port.
    pub(super) runs: Arc<Semaphore>,
    pub(super) months: Asked<()>,
    pub(super) nodes: Asked<NodeTable>,
    /// What this node knew by its own calls when it asked them.
    pub(super) nodes_known: Mutex<Vec<KnownNode>>,
    /// Of the store, which writes a row.
    pub(super) checks: Asked<()>,
    pub(super) file: HistoryFile,
}

impl Live {
    fn new((file, history): (HistoryFile, History)) -> Self {
        Self {
            history: Mutex::new(history),
            frames: watch::Sender::new(String::new()),
            opened: Notify::new(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            runs: Arc::new(Semaphore::new(1)),
            months: Asked::default(),
            nodes: Asked::default(),
            nodes_known: Mutex::default(),
            checks: Asked::default(),
            file,
        }
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock()
    }
}

impl AdminPage {
    /// None if the setting or the keys forbid it: then the log has the reason.
    pub(crate) fn new(settings: &Settings, node: &AppState, jobs: Context) -> Option<Data<Self>> {
        if !settings.admin_page {
            return None;
        }
        let common = &node.common;
        let keys = Keys::load(&settings.data_dir)
            .inspect_err(|error| {
                warn!(common.log, "cannot read the keys: there is no operator's page"; "error" => %error);
            })
            .ok()?;
        let now = common.clock.now();
        let wrong_rate = Rate::per_minute(WRONG_PER_MINUTE_MAX);
        Some(Data::new(Self {
            sessions: Sessions::new(&keys, now),
            identity: Identity::of(node, jobs.origin.as_deref()),
            node: node.clone(),
            jobs,
            data_dir: settings.data_dir.clone(),
            interval: Duration::from_millis(settings.admin_page_interval_ms),
            counts_months: settings.store != StoreKind::DynamoDb,
            live: Live::new(HistoryFile::open(&settings.data_dir, now, &common.log)),
            backups: Arc::new(Semaphore::new(1)),
            visits: Semaphore::new(1),
            stops: AtomicBool::new(false),
            commands: Semaphore::new(COMMANDS_MAX),
            wrong: Mutex::new(wrong_rate.bucket()),
            wrong_rate,
            log_limiter: SharedLogLimiter::new(LOG_EVERY),
        }))
    }

    pub(super) fn now(&self) -> Time {
        self.node.common.clock.now()
    }

    /// Writes the history for the server after this one.
    pub(crate) async fn end(&self) {
        let written = self.live.history().whole();
        self.live.file.end(&written, self.now()).await;
    }

    /// Runs a command of an operator and collects its results and its sentences.
    pub(super) async fn perform<C: StoreCommand>(
        &self,
        command: C,
    ) -> Result<(Vec<C::Report>, Vec<String>), String> {
        let permit = self.commands.try_acquire();
        let _permit = permit.map_err(|_| "other commands are running: try again".to_owned())?;
        let mut outputs = (Vec::new(), Vec::new());
        let collect = &mut |output| {
            match output {
                Output::Progress(_) | Output::Problem(_) | Output::End(_) => {}
                Output::Report(report) => outputs.0.push(report),
                Output::Note(note) => outputs.1.push(note),
            }
            Ok(None)
        };
        let ended = run_here(command, &self.jobs, collect, sleep(COMMAND_WAIT)).await;
        let end = ended.unwrap_or_else(|error| Completion::Failed(error.to_string()));
        let log = self.node.common.log.new(o!("command" => C::NAME, "result" => end.name()));
        note(&log, C::ONLY_READS, "a command of the operator's page ended");
        match end {
            Completion::Failed(why) => Err(why),
            Completion::Stopped => Err("the command took too long and was stopped".to_owned()),
            Completion::Done | Completion::Unwell => Ok(outputs),
        }
    }

    /// The session of a request. A request without one gets the page that explains how to sign in.
    pub(super) async fn admit(&self, request: &HttpRequest) -> Result<Session, Refusal> {
        let Some(cookie) = cookie(request.headers()) else {
            return Err(refusal(pages::sign_in(StatusCode::UNAUTHORIZED, "")));
        };
        match self.sessions.open(cookie, self.now()) {
            Some(session) => Ok(session),
            None => Err(refusal(self.refuse().await)),
        }
    }

    /// The session of a form that was sent by a page of the session.
    pub(super) async fn admit_form(
        &self,
        request: &HttpRequest,
        body: Payload,
    ) -> Result<(Session, Form), Refusal> {
        let form = read_form(request, body).await?;
        let session = self.admit(request).await?;
        match self.sessions.is_form_of(&session, form.field("form")) {
            true => Ok((session, form)),
            false => {
                let text = "This form is of another session: open the page again.";
                Err(refusal(pages::message(StatusCode::FORBIDDEN, text)))
            }
        }
    }

    /// Answers a wrong login or an unknown session. Both answers are the same, late, and counted.
    pub(super) async fn refuse(&self) -> HttpResponse {
        let (common, now) = (&self.node.common, self.now());
        let is_over = {
            let mut bucket = self.wrong.lock();
            bucket.try_acquire(&self.wrong_rate, 0, now).is_err()
        };
        common.operator_logins.count(if is_over { 2 } else { 1 });
        if let Some(refused) = self.log_limiter.count(now) {
            warn!(common.log, "requests to the operator's page without a valid link or session are refused";
                "refused" => refused);
        }
        if is_over {
            let why = "Too many links were refused in this minute: wait, and make a new one.";
            return pages::sign_in_again(StatusCode::TOO_MANY_REQUESTS, "", why);
        }
        sleep(WRONG_WAIT).await;
        let why = "Refused: the link was used, is older than five minutes, or is of another server; or the session \
                   has ended. Make a new link.";
        pages::sign_in_again(StatusCode::UNAUTHORIZED, "", why)
    }

    /// What the pages of a session share.
    pub(super) fn shell(&self, session: &Session) -> Shell {
        Shell {
            title: self.identity.title(),
            host: self.identity.host.clone(),
            node: self.identity.node(),
            form: self.sessions.form_token(session),
        }
    }
}
