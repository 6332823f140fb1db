//! The operator's page, at `/admin` on the port of metrics.
//!
//! - [`session`]: who may see it. [`guard`]: which requests are answered.
//! - [`live`]: the events of open pages. [`history`]: what the plots show.
//! - [`pages`]: the texts. Nothing that a stranger sent is in them unescaped, and no contents of a message.

mod guard;
mod history;
mod live;
mod pages;
mod session;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use actix_web::guard::fn_guard;
use actix_web::http::StatusCode;
use actix_web::http::header::{LOCATION, RETRY_AFTER, SET_COOKIE};
use actix_web::web::{self, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use actors::SharedLogLimiter;
use slog::{info, warn};
use state_machine::Time;
use state_machine::token_bucket::{Rate, TokenBucket};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::command::job::OUTPUTS_MAX;
use crate::command::store_command::perform;
use crate::command::{Completion, Context, Output, StoreCommand};
use crate::operate::access::list::AccessList;
use crate::operate::access::operator::LINK_PARAMETER;
use crate::operate::access::revoke::AccessRevoke;
use crate::operate::inspect::command::Inspect;
use crate::operate::inspect::facts::Inspection;
use crate::operate::inspect::target::Target;
use crate::push::app::AppState;
use crate::settings::keys::Keys;
use crate::settings::{Settings, StoreKind};
use guard::{LOG_EVERY, WRONG_PER_MINUTE_MAX, cookie_of, read_form, with_security};
use live::Live;
use session::{Session, Sessions};

/// Commands of pages that run at once. A further one is refused.
const COMMANDS_MAX: usize = 4;

/// Maximum time of a command. It stops between two steps.
const COMMAND_WAIT: Duration = Duration::from_secs(60);

/// The state of the page.
pub(super) struct AdminPage {
    node: AppState,
    jobs: Context,
    data_dir: PathBuf,
    interval: Duration,
    /// Whether the agents of each month are counted: on DynamoDB that would cost reads of all records.
    counts_months: bool,
    sessions: Sessions,
    live: Live,
    commands: Semaphore,
    wrong_rate: Rate,
    wrong: Mutex<TokenBucket>,
    log_limiter: SharedLogLimiter,
}

impl AdminPage {
    /// None if the setting or the keys forbid it: then the log has the reason.
    pub(super) fn new(settings: &Settings, node: &AppState, jobs: Context) -> Option<Data<Self>> {
        if !settings.admin_page {
            return None;
        }
        let common = &node.common;
        let keys = Keys::load(&settings.data_dir)
            .inspect_err(|error| {
                warn!(common.log, "cannot read the keys: there is no operator's page"; "error" => %error);
            })
            .ok()?;
        let wrong_rate = Rate::per_minute(WRONG_PER_MINUTE_MAX);
        Some(Data::new(Self {
            sessions: Sessions::new(&keys, common.clock.now()),
            node: node.clone(),
            jobs,
            data_dir: settings.data_dir.clone(),
            interval: Duration::from_millis(settings.admin_page_interval_ms),
            counts_months: settings.store == StoreKind::Embedded,
            live: Live::new(),
            commands: Semaphore::new(COMMANDS_MAX),
            wrong: Mutex::new(wrong_rate.bucket()),
            wrong_rate,
            log_limiter: SharedLogLimiter::new(LOG_EVERY),
        }))
    }

    fn now(&self) -> Time {
        self.node.common.clock.now()
    }

    /// Counts a wrong login. False if there were too many.
    fn try_wrong(&self, now: Time) -> bool {
        let mut bucket = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.try_acquire(&self.wrong_rate, 0, now).is_ok()
    }

    /// Runs a command of an operator and collects its results and its sentences.
    async fn perform<C: StoreCommand>(
        &self,
        command: C,
    ) -> Result<(Vec<C::Report>, Vec<String>), String> {
        let permit = self.commands.try_acquire();
        let _permit = permit.map_err(|_| "other commands are running: try again".to_owned())?;
        let (outputs, mut queue) = mpsc::channel(OUTPUTS_MAX);
        let (stop, stopped) = watch::channel(false);
        let work = async {
            let stops = async {
                let job = perform(command, &self.jobs, outputs, stopped);
                tokio::pin!(job);
                if let Ok(end) = timeout(COMMAND_WAIT, &mut job).await {
                    return end;
                }
                stop.send_replace(true);
                job.await
            };
            let collect = async {
                let (mut reports, mut notes) = (Vec::new(), Vec::new());
                while let Some(output) = queue.recv().await {
                    match output {
                        Output::Progress(_) | Output::Problem(_) | Output::End(_) => {}
                        Output::Report(report) => reports.push(report),
                        Output::Note(note) => notes.push(note),
                    }
                }
                (reports, notes)
            };
            tokio::join!(stops, collect)
        };
        let (end, outputs) = work.await;
        info!(self.node.common.log, "a command of the operator's page ended";
            "command" => C::NAME, "result" => end.name());
        match end {
            Completion::Failed(why) => Err(why),
            Completion::Stopped => Err("the command took too long and was stopped".to_owned()),
            Completion::Done | Completion::Unwell => Ok(outputs),
        }
    }
}

/// The routes of the page, and the task that computes its events on this thread.
pub(super) fn routes(page: &Data<AdminPage>, service: &mut ServiceConfig) {
    live::start(Data::clone(page));
    let scope = web::scope("/admin")
        .app_data(Data::clone(page))
        .guard(fn_guard(guard::has_address))
        .service(web::resource("").get(show))
        .service(web::resource("/login").get(ask).post(sign_in))
        .service(web::resource("/logout").post(sign_out))
        .service(web::resource("/events").get(events))
        .service(web::resource("/inspect").get(back).post(inspect))
        .service(web::resource("/people").get(people).post(revoke))
        .service(web::resource("/{file}").get(file));
    let wrong_host = web::scope("/admin").default_service(web::to(guard::misdirected));
    service.service(scope).service(wrong_host);
}

type Answer = Result<HttpResponse, HttpResponse>;

/// The answer of a handler, whichever of the two it is.
fn either(answer: Answer) -> HttpResponse {
    answer.unwrap_or_else(|refusal| refusal)
}

fn redirect(to: &str) -> HttpResponse {
    with_security(&mut HttpResponse::SeeOther()).insert_header((LOCATION, to)).finish()
}

async fn back() -> HttpResponse {
    redirect("/admin")
}

async fn file(name: Path<String>) -> HttpResponse {
    pages::file(&name)
}

async fn show(request: HttpRequest, page: Data<AdminPage>) -> HttpResponse {
    either(page.admit(&request).await.map(|session| pages::live(&page.form_token(&session))))
}

/// Shows the link that is to be used. Only the form uses it, so that the preview of a link does not.
async fn ask(request: HttpRequest) -> HttpResponse {
    let pairs = url::form_urlencoded::parse(request.query_string().as_bytes());
    let link = pairs.filter(|(name, _)| name == LINK_PARAMETER).map(|(_, link)| link).next();
    pages::sign_in(StatusCode::OK, &link.unwrap_or_default())
}

async fn sign_in(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> HttpResponse {
    let form = match read_form(&request, body).await {
        Ok(form) => form,
        Err(refusal) => return refusal,
    };
    let text = form.field(LINK_PARAMETER);
    // An operator may paste the whole link.
    let link = text.rsplit_once('=').map_or(text, |(_, link)| link);
    let Some(session) = page.sessions.sign_in(link, page.now()) else { return page.refuse().await };
    let common = &page.node.common;
    common.operator_logins.count(0);
    info!(common.log, "an operator signed in to the operator's page");
    let mut answer = HttpResponse::SeeOther();
    let cookie = cookie_of(request.headers(), &session);
    with_security(&mut answer)
        .insert_header((LOCATION, "/admin"))
        .insert_header((SET_COOKIE, cookie))
        .finish()
}

async fn sign_out(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> HttpResponse {
    either(page.admit_form(&request, body).await.map(|_| {
        page.sessions.sign_out(page.now());
        info!(
            page.node.common.log,
            "an operator signed out: all sessions of the operator's page ended"
        );
        let mut answer = HttpResponse::SeeOther();
        with_security(&mut answer)
            .insert_header((LOCATION, "/admin/login"))
            .insert_header((SET_COOKIE, cookie_of(request.headers(), "")))
            .finish()
    }))
}

async fn events(request: HttpRequest, page: Data<AdminPage>) -> HttpResponse {
    let session = match page.admit(&request).await {
        Ok(session) => session,
        Err(refusal) => return refusal,
    };
    match live::events(page, session) {
        Some(events) => with_security(&mut HttpResponse::Ok())
            .content_type("text/event-stream")
            .streaming(events),
        None => with_security(&mut HttpResponse::ServiceUnavailable())
            .insert_header((RETRY_AFTER, "10"))
            .finish(),
    }
}

async fn inspect(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> HttpResponse {
    let (session, form) = match page.admit_form(&request, body).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let found = page.inspect(form.field("target")).await;
    pages::inspection(&page.form_token(&session), &found)
}

async fn people(request: HttpRequest, page: Data<AdminPage>) -> HttpResponse {
    let session = match page.admit(&request).await {
        Ok(session) => session,
        Err(refusal) => return refusal,
    };
    page.list(&session, "").await
}

/// Asks for a confirmation, and revokes a token with it.
async fn revoke(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> HttpResponse {
    let (session, form) = match page.admit_form(&request, body).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let name = form.field("name");
    if form.field("confirmed") != "yes" {
        return pages::confirmation(&page.form_token(&session), name);
    }
    let command = AccessRevoke { name: name.to_owned() };
    let revoked = match command.is_within_bounds() {
        true => page.perform(command).await,
        false => Err("this is no name of an access token".to_owned()),
    };
    let text = revoked.map_or_else(|why| why, |(_, notes)| notes.concat());
    page.list(&session, &text).await
}

impl AdminPage {
    fn form_token(&self, session: &Session) -> String {
        self.sessions.form_token(session)
    }

    async fn inspect(&self, target: &str) -> Result<Inspection, String> {
        let target: Target = target.parse()?;
        let subject =
            target.decode(|| Keys::load(&self.data_dir)).map_err(|why| why.to_string())?;
        let command = Inspect { subject: Some(subject), ..Inspect::default() };
        let found = self.perform(command).await?.0.pop();
        found.ok_or_else(|| "there is no result".to_owned())
    }

    /// The page of access tokens, with a sentence about what was done.
    async fn list(&self, session: &Session, done: &str) -> HttpResponse {
        let listed = self.perform(AccessList::default()).await;
        let rows = listed.map(|(batches, _)| batches.into_iter().flat_map(|rows| rows.0).collect());
        pages::people(&self.form_token(session), rows, done)
    }
}
