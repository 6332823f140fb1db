//! What operators do: each form of a session, and each change after a question.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use rustix::process::{Signal, getpid, kill_process};
use slog::info;
use state_machine::Uaid;
use tokio::time::{sleep, timeout};

use super::agents;
use super::buttons::{BACK_UP, DOCTOR, STOP, dropping, revoking};
use super::guard::Form;
use super::page::AdminPage;
use super::pages::{self, Refusal};
use super::session::Session;
use crate::command::StoreCommand;
use crate::operate::access::add::AccessAdd;
use crate::operate::access::list::AccessList;
use crate::operate::access::revoke::AccessRevoke;
use crate::operate::access::token::NewAccess;
use crate::operate::doctor::command::{can_visit, visit};
use crate::operate::doctor::findings::Finding;
use crate::operate::inspect::command::Inspect;
use crate::operate::inspect::facts::Inspection;
use crate::operate::inspect::target::Target;
use crate::operate::scheduled::at_once::back_up;
use crate::operate::users::drop::DropUser;
use crate::settings::keys::Keys;

/// How long the answer to a backup waits for its end.
const BACKUP_WAIT: Duration = Duration::from_secs(10);

/// Time for the answer to leave, before the server stops.
const ANSWER_TIME: Duration = Duration::from_millis(200);

type Answer = Result<HttpResponse, Refusal>;

fn is_confirmed(form: &Form) -> bool {
    form.field("confirmed") == "yes"
}

pub(super) async fn inspect(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let target = form.field("target");
    let listed = agents::named(&page.node, target).await.map(|uaid| uaid.to_string());
    let found = page.inspect(listed.as_deref().unwrap_or(target)).await;
    Ok(pages::inspection(&page.shell(&session), &found))
}

pub(super) async fn people(request: HttpRequest, page: Data<AdminPage>) -> Answer {
    let session = page.admit(&request).await?;
    Ok(page.list(&session, "").await)
}

pub(super) async fn add(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let name = form.field("name").to_owned();
    let command = AccessAdd { name, expires: None, agents_max: 0, json: false };
    let added = match command.is_within_bounds() {
        true => page.perform(command).await.map(|(added, _)| added),
        false => Err("a name has 1 to 64 of a-z A-Z 0-9 - _ . @".to_owned()),
    };
    let shown = |added: Vec<NewAccess>| {
        let each = added.iter().map(|NewAccess { name, token, address, .. }| {
            let address = address.as_ref().unwrap_or(token);
            format!("The address of {name}, shown once: {address}")
        });
        each.collect::<String>()
    };
    Ok(page.list(&session, &added.map_or_else(|why| why, shown)).await)
}

pub(super) async fn revoke(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let name = form.field("name");
    if !is_confirmed(&form) {
        let (fields, text) = ([("name", name)], format!("Revoke {name}"));
        return Ok(pages::question(&page.shell(&session), &revoking(&fields, &text)));
    }
    let command = AccessRevoke { name: name.to_owned() };
    let revoked = match command.is_within_bounds() {
        true => page.perform(command).await,
        false => Err("this is no name of an access token".to_owned()),
    };
    let text = revoked.map_or_else(|why| why, |(_, notes)| notes.concat());
    Ok(page.list(&session, &text).await)
}

pub(super) async fn drop_user(
    request: HttpRequest,
    body: Payload,
    page: Data<AdminPage>,
) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let shell = page.shell(&session);
    let Ok(uaid) = Uaid::parse(form.field("uaid")) else {
        return Ok(pages::done(&shell, Err("this is no uaid".to_owned())));
    };
    let (uaid, text) = (uaid.to_string(), format!("Drop {uaid}"));
    if !is_confirmed(&form) {
        return Ok(pages::question(&shell, &dropping(&[("uaid", &uaid)], &text)));
    }
    let dropped = page.perform(DropUser { uaid: Uaid::parse(&uaid).expect("it is one") }).await;
    Ok(pages::done(&shell, dropped.map(|(_, notes)| notes.concat())))
}

pub(super) async fn doctor(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let shell = page.shell(&session);
    Ok(match is_confirmed(&form) {
        true => pages::examined(&shell, &page.examine().await),
        false => pages::question(&shell, &DOCTOR),
    })
}

pub(super) async fn backup(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let shell = page.shell(&session);
    Ok(match is_confirmed(&form) {
        true => pages::done(&shell, page.back_up().await),
        false => pages::question(&shell, &BACK_UP),
    })
}

pub(super) async fn stop(request: HttpRequest, body: Payload, page: Data<AdminPage>) -> Answer {
    let (session, form) = page.admit_form(&request, body).await?;
    let shell = page.shell(&session);
    Ok(match is_confirmed(&form) {
        true => pages::done(&shell, Ok(page.stop())),
        false => pages::question(&shell, &STOP),
    })
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
        pages::people(&self.shell(session), rows, done)
    }

    /// One at a time: each leaves the record of a user agent.
    async fn examine(&self) -> Result<Vec<Finding>, String> {
        if !can_visit(&self.jobs.settings) {
            return Err("the doctor needs an access token or a listed VAPID key".to_owned());
        }
        let permit = self.visits.try_acquire();
        let _permit =
            permit.map_err(|_| "The doctor is at work already: wait for it.".to_owned())?;
        info!(self.node.common.log, "an operator asked for the doctor");
        Ok(visit(&self.jobs).await)
    }

    async fn back_up(&self) -> Result<String, String> {
        if self.jobs.settings.backup_dir.is_none() {
            return Err("backup_dir is not set".to_owned());
        }
        let permit = Arc::clone(&self.backups).try_acquire_owned();
        let permit =
            permit.map_err(|_| "A backup is under way already: wait for it.".to_owned())?;
        info!(self.node.common.log, "an operator asked for a backup");
        let end = back_up(&self.jobs, &self.node.common, permit);
        let end = end.map_err(|error| format!("the backup cannot begin: {error}"))?;
        match timeout(BACKUP_WAIT, end).await {
            Ok(Ok(ended)) => ended.map(|()| "The backup is done.".to_owned()),
            Ok(Err(_)) => Err("the backup panicked: the log has why".to_owned()),
            Err(_) => {
                Ok("The backup takes longer, and goes on. The live page shows its end.".to_owned())
            }
        }
    }

    /// As SIGTERM does, once: a second one would cut the drain short.
    fn stop(&self) -> String {
        let common = &self.node.common;
        if common.is_draining() || self.stops.swap(true, Ordering::Relaxed) {
            return "The server is stopping already.".to_owned();
        }
        info!(common.log, "an operator asked the server to stop");
        actix_web::rt::spawn(async {
            sleep(ANSWER_TIME).await;
            // A process may always signal itself.
            let _ = kill_process(getpid(), Signal::TERM);
        });
        "The server drains, and stops then.".to_owned()
    }
}
