//! A web site whose page subscribes, and whose service worker reports each message.
//!
//! Firefox allows push to `localhost` without TLS.

use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::rt::System;
use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse, HttpServer};
use serde::Deserialize;

const INDEX: (&str, &str) = ("text/html", include_str!("page/index.html"));
const PAGE: (&str, &str) = ("text/javascript", include_str!("page/page.js"));
const WORKER: (&str, &str) = ("text/javascript", include_str!("page/worker.js"));

/// Maximum time until the service worker has reported a message: Firefox waits 5 s before it
/// reconnects, and may have to start first.
const REPORT_WAIT: Duration = Duration::from_secs(60);

/// A report of the service worker.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Report {
    /// A push message arrived, decrypted; `None` if it had no payload.
    Message(Option<String>),
    /// Firefox dropped the subscription.
    Lost(bool),
}

/// A running web site, which stops when this is dropped.
pub(super) struct Site {
    url: String,
    reports: Receiver<Report>,
    server: ServerHandle,
}

impl Site {
    /// Starts a site on a free port.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let (teller, reports) = channel();
        let (starter, started) = channel();
        thread::spawn(move || System::new().block_on(serve(listener, teller, &starter)));
        let server = started.recv().expect("the site starts");
        Self { url: format!("http://localhost:{port}/"), reports, server }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the next `count` messages that the service worker reports.
    pub(super) fn next_messages(&self, count: usize) -> Vec<Option<String>> {
        (0..count).map(|nth| self.next(nth)).collect()
    }

    fn next(&self, nth: usize) -> Option<String> {
        match self.reports.recv_timeout(REPORT_WAIT) {
            Ok(Report::Message(text)) => text,
            Ok(Report::Lost(_)) => panic!("Firefox has dropped its subscription"),
            Err(_) => {
                panic!("the service worker heard {nth} messages and then none for {REPORT_WAIT:?}")
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The server stops even if the returned future is dropped.
        drop(self.server.stop(false));
    }
}

async fn serve(
    listener: TcpListener,
    teller: Sender<Report>,
    started: &Sender<ServerHandle>,
) -> std::io::Result<()> {
    let teller = Data::new(Mutex::new(teller));
    let site = move || {
        App::new()
            .app_data(Data::clone(&teller))
            .route("/", web::get().to(async || file(INDEX)))
            .route("/page.js", web::get().to(async || file(PAGE)))
            .route("/worker.js", web::get().to(async || file(WORKER)))
            .route("/reports", web::post().to(take))
    };
    let server = HttpServer::new(site).workers(1).disable_signals().listen(listener)?.run();
    started.send(server.handle()).expect("the test waits for it");
    server.await
}

fn file((kind, text): (&'static str, &'static str)) -> HttpResponse {
    HttpResponse::Ok().content_type(kind).body(text)
}

async fn take(report: String, teller: Data<Mutex<Sender<Report>>>) -> HttpResponse {
    let report = serde_json::from_str(&report).expect("the worker reports in JSON");
    let teller = teller.lock().expect("sending does not panic");
    // Fails when the test has ended.
    let _ = teller.send(report);
    HttpResponse::NoContent().finish()
}
