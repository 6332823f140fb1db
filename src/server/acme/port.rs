//! The port of `http_listen`: answers the challenges of an authority, and sends all others to https.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_server::Server;
use actix_web::http::{Method, header};
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use parking_lot::RwLock;

use crate::limits::Limits;
use crate::settings::Settings;
use crate::system::http_port;
use crate::system::http_port::{HttpPortLimits, Listener};

/// Connections of the port. Above it, further ones wait. Each ends with its first answer, and an address has few of them
/// ([`Limits::open_plain_connection`]).
const CONNECTIONS_MAX: usize = 256;

const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// The token of the challenge of the order in progress, and its answer.
#[derive(Debug, Default)]
pub struct Answers(RwLock<Option<(String, String)>>);

impl Answers {
    pub(super) fn set(&self, answer: Option<(String, String)>) {
        *self.0.write() = answer;
    }

    fn of(&self, asked: &str) -> Option<String> {
        let current = self.0.read();
        current.as_ref().filter(|(token, _)| token == asked).map(|(_, answer)| answer.clone())
    }
}

/// Serves the port. `origin` is where requests are sent.
pub fn serve(
    listener: Listener,
    settings: &Settings,
    origin: &str,
    answers: &Arc<Answers>,
    limits: &Arc<Limits>,
) -> io::Result<Server> {
    let limited = Arc::clone(limits);
    let limits = HttpPortLimits {
        workers: 1,
        worker_connections_max: CONNECTIONS_MAX,
        headers_timeout: Duration::from_millis(settings.request_headers_timeout_ms),
        shutdown_timeout: Duration::from_millis(settings.shutdown_wait_ms),
        allows_half_closed: true,
        unread_max: None,
    };
    let (origin, answers): (Arc<str>, _) = (origin.into(), Arc::clone(answers));
    http_port::serve(
        listener,
        limits,
        None,
        move |peer| limited.open_plain_connection(peer),
        move || {
            let (origin, answers) = (Arc::clone(&origin), Arc::clone(&answers));
            move |service: &mut ServiceConfig| {
                service.default_service(web::to(move |request: HttpRequest| {
                    let answer = answer(&request, &origin, &answers);
                    async move { answer }
                }));
            }
        },
    )
}

fn answer(request: &HttpRequest, origin: &str, answers: &Answers) -> HttpResponse {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    if !is_read {
        return HttpResponse::Forbidden()
            .force_close()
            .body("this server is reached over https only\n");
    }
    if let Some(token) = request.path().strip_prefix(CHALLENGE_PATH) {
        return match answers.of(token) {
            Some(answer) => HttpResponse::Ok()
                .force_close()
                .content_type("application/octet-stream")
                .body(answer),
            None => HttpResponse::NotFound().force_close().finish(),
        };
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let location = (header::LOCATION, format!("{origin}{path}"));
    HttpResponse::PermanentRedirect().force_close().insert_header(location).finish()
}
