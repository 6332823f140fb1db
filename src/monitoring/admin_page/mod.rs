//! The operator's page, at `/admin` on the port of metrics. Requests of browsers enter. Pages, event streams, and an
//! operator's commands to the node leave.
//!
//! - [`session`]: who may see it. [`guard`]: which requests are answered. [`page`]: what all requests share.
//! - [`live`]: the events of open pages. [`beside`]: what is asked meanwhile, and [`asked`] when. [`resources`]: bars.
//! - [`agents`]: the list of user agents.
//! - [`history`]: what the figures show. [`series`]: how it follows from the metrics. [`history_file`]: over a restart.
//! - [`actions`]: what operators do. [`buttons`]: its forms and questions.
//! - [`pages`]: the texts. [`identity`]: their titles. Nothing that a stranger sent is in them unescaped, and no contents of a message.

mod actions;
mod agents;
mod asked;
mod beside;
mod buttons;
mod guard;
mod history;
mod history_file;
mod identity;
mod live;
pub(super) mod page;
mod pages;
mod resources;
mod series;
mod session;

use std::convert::Infallible;

use actix_web::guard::fn_guard;
use actix_web::http::header::{LOCATION, RETRY_AFTER, SET_COOKIE};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Bytes, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use slog::info;

use crate::operate::access::operator::LINK_PARAMETER;
use crate::operate::doctor::command::can_visit;
use crate::push::methods::read;
use guard::{cookie_of, read_form};
use page::AdminPage;
use pages::{Can, Refusal, with_security};

/// The routes of the page, and the task that computes its events on this thread.
pub(super) fn routes(page: &Data<AdminPage>, service: &mut ServiceConfig) {
    live::start(Data::clone(page));
    let scope = web::scope("/admin")
        .app_data(Data::clone(page))
        .guard(fn_guard(guard::has_address))
        .service(web::resource("").route(read().to(show)))
        .service(web::resource("/login").route(read().to(ask)).post(sign_in))
        .service(web::resource("/logout").post(sign_out))
        .service(web::resource("/events").route(read().to(events)))
        .service(web::resource("/inspect").route(read().to(back)).post(actions::inspect))
        .service(web::resource("/people").route(read().to(actions::people)).post(actions::revoke))
        .service(web::resource("/people/add").route(read().to(back)).post(actions::add))
        .service(web::resource("/drop").route(read().to(back)).post(actions::drop_user))
        .service(web::resource("/doctor").route(read().to(back)).post(actions::doctor))
        .service(web::resource("/backup").route(read().to(back)).post(actions::backup))
        .service(web::resource("/stop").route(read().to(back)).post(actions::stop))
        .service(web::resource("/{file}").route(read().to(file)));
    let wrong_host = web::scope("/admin").default_service(web::to(guard::misdirected));
    let start = web::redirect("/", "/admin").see_other();
    service.service(scope).service(wrong_host).service(start);
}

type Answer = Result<HttpResponse, Refusal>;

fn redirect(to: &str, cookie: Option<String>) -> HttpResponse {
    let mut answer = HttpResponse::SeeOther();
    with_security(&mut answer).insert_header((LOCATION, to));
    if let Some(cookie) = cookie {
        answer.insert_header((SET_COOKIE, cookie));
    }
    answer.finish()
}

async fn back() -> HttpResponse {
    redirect("/admin", None)
}

async fn file(name: Path<String>) -> HttpResponse {
    pages::file(&name)
}

async fn show(request: HttpRequest, page: Data<AdminPage>) -> Answer {
    let session = page.admit(&request).await?;
    let settings = &page.jobs.settings;
    let can = Can { back_up: settings.backup_dir.is_some(), visit: can_visit(settings) };
    Ok(pages::live(&page.shell(&session), can))
}

/// Shows the link that is to be used. Only the form uses it, so that the preview of a link does not.
async fn ask(request: HttpRequest) -> HttpResponse {
    let pairs = url::form_urlencoded::parse(request.query_string().as_bytes());
    let link = pairs.filter(|(name, _)| name == LINK_PARAMETER).map(|(_, link)| link).next();
    pages::sign_in(StatusCode::OK, &link.unwrap_or_default())
}

async fn sign_in(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let form = read_form(&request, body).await?;
    let text = form.field(LINK_PARAMETER);
    // An operator may paste the whole link.
    let link = text.rsplit_once('=').map_or(text, |(_, link)| link);
    let Some(session) = page.sessions.sign_in(link, page.now()) else {
        return Ok(page.refuse().await);
    };
    let common = &page.node.common;
    common.operator_logins.count(0);
    info!(common.log, "an operator signed in to the operator's page");
    Ok(redirect("/admin", Some(cookie_of(request.headers(), &session))))
}

async fn sign_out(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    page.admit_form(&request, body).await?;
    page.sessions.sign_out(page.now());
    let log = &page.node.common.log;
    info!(log, "an operator signed out: all sessions of the operator's page ended");
    Ok(redirect("/admin/login", Some(cookie_of(request.headers(), ""))))
}

async fn events(request: HttpRequest, page: Data<AdminPage>) -> Answer {
    let session = page.admit(&request).await?;
    let mut answer = HttpResponse::Ok();
    let answer = with_security(&mut answer).content_type("text/event-stream");
    if *request.method() == Method::HEAD {
        return Ok(answer.streaming(stream::empty::<Result<Bytes, Infallible>>()));
    }
    Ok(match live::events(page, session) {
        Some(events) => answer.streaming(events),
        None => with_security(&mut HttpResponse::ServiceUnavailable())
            .insert_header((RETRY_AFTER, "10"))
            .finish(),
    })
}
