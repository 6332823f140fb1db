//! The operator's page, at `/admin` on the port of metrics. Requests of browsers enter. Pages, event streams, and an
//! operator's commands to the node leave.
//!
//! - [`session`]: who may see it. [`guard`]: which requests are answered. [`page`]: what all requests share.
//! - [`live`]: the events of open pages. [`history`]: what the plots show.
//! - [`pages`]: the texts. Nothing that a stranger sent is in them unescaped, and no contents of a message.

mod guard;
mod history;
mod live;
pub(super) mod page;
mod pages;
mod session;

use std::convert::Infallible;

use actix_web::guard::fn_guard;
use actix_web::http::header::{LOCATION, RETRY_AFTER, SET_COOKIE};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Bytes, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use slog::info;

use crate::command::StoreCommand;
use crate::operate::access::list::AccessList;
use crate::operate::access::operator::LINK_PARAMETER;
use crate::operate::access::revoke::AccessRevoke;
use crate::operate::inspect::command::Inspect;
use crate::operate::inspect::facts::Inspection;
use crate::operate::inspect::target::Target;
use crate::push::methods::read;
use crate::settings::keys::Keys;
use guard::{cookie_of, read_form};
use page::AdminPage;
use pages::{Refusal, with_security};
use session::Session;

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
        .service(web::resource("/inspect").route(read().to(back)).post(inspect))
        .service(web::resource("/people").route(read().to(people)).post(revoke))
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
    Ok(pages::live(&page.form_token(&session)))
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

async fn inspect(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let found = page.inspect(form.field("target")).await;
    Ok(pages::inspection(&page.form_token(&session), &found))
}

async fn people(request: HttpRequest, page: Data<AdminPage>) -> Answer {
    let session = page.admit(&request).await?;
    Ok(page.list(&session, "").await)
}

/// Asks for a confirmation, and revokes a token with it.
async fn revoke(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let name = form.field("name");
    if form.field("confirmed") != "yes" {
        return Ok(pages::confirmation(&page.form_token(&session), name));
    }
    let command = AccessRevoke { name: name.to_owned() };
    let revoked = match command.is_within_bounds() {
        true => page.perform(command).await,
        false => Err("this is no name of an access token".to_owned()),
    };
    let text = revoked.map_or_else(|why| why, |(_, notes)| notes.concat());
    Ok(page.list(&session, &text).await)
}

impl AdminPage {
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
