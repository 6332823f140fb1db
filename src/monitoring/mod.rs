//! Metrics and the operator's page. Scrapers' requests and browsers' enter, and what the parts of a node count. Texts and
//! packets of metrics, and pages, leave.
//!
//! One [`table`] names the metrics, [`collect`](mod@collect) reads them, [`text`] and [`statsd`] write them.
//! [`admin_page`] is the operator's page.
//!
//! Counters are plain atomics at the places where things happen, which know nothing of this folder. They are read when
//! a scraper asks. No label has a uaid, a token, a sender or an address.

mod admin_page;
pub mod collect;
mod process;
#[cfg(test)]
mod reference_tests;
pub mod statsd;
pub mod table;
pub mod text;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::http::header::{ACCEPT, CONTENT_TYPE};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use slog::{Logger, info, warn};

use crate::command::Context;
use crate::push::app::AppState;
use crate::push::methods::read;
use crate::settings::Settings;
use crate::settings::table::METRICS_LISTEN;
use crate::system::http_port;
use crate::system::http_port::{Admitted, HttpPortLimits};
use admin_page::page::AdminPage;
use text::Format;

/// Connections of the port at once. Further ones wait in the kernel.
const CONNECTIONS_MAX: usize = 256;

/// Maximum time for the headers of a request: a scraper sends them at once, and others must not take its place.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for the last answer, once the port is closed.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);

/// The address of `metrics_listen` is not available.
#[derive(Debug, thiserror::Error)]
#[error("metrics_listen: cannot listen on {address}: {source} (`off` for none)")]
pub struct MetricsPortError {
    address: SocketAddr,
    source: io::Error,
}

/// Binds the port of metrics. A server without settings starts beside another one on the same machine: if the default
/// is taken, there is no port.
pub fn bind(
    settings: &Settings,
    inherited: Option<TcpListener>,
    log: &Logger,
) -> Result<Option<TcpListener>, MetricsPortError> {
    let Some(address) = settings.metrics_listen.0 else { return Ok(None) };
    let user_timeout = Duration::from_millis(settings.tcp_user_timeout_ms);
    let bound = match inherited {
        Some(listener) => http_port::prepare(listener, user_timeout),
        None => http_port::bind(address, user_timeout),
    };
    match bound {
        Ok(listener) => Ok(Some(listener)),
        Err(source) if settings.metrics_listen == METRICS_LISTEN => {
            warn!(log, "cannot listen on the default of metrics_listen, there are no metrics for Prometheus";
                "address" => %address, "error" => %source);
            Ok(None)
        }
        Err(source) => Err(MetricsPortError { address, source }),
    }
}

/// What the end of a server ends.
pub struct Monitoring(Option<Data<AdminPage>>);

/// Serves the metrics on a thread of their own, and sends them to a statsd server if there is one. Runs until the
/// process ends.
pub fn start(
    port: Option<TcpListener>,
    settings: &Settings,
    node: &AppState,
    jobs: Context,
) -> Result<Monitoring, MetricsPortError> {
    let log = &node.common.log;
    let mut monitoring = Monitoring(None);
    if let Some(listener) = port {
        let address = settings.metrics_listen.0.expect("a bound port has an address");
        let failed = |source| MetricsPortError { address, source };
        let address = listener.local_addr().map_err(failed)?;
        let limits = HttpPortLimits {
            workers: 1,
            worker_connections_max: CONNECTIONS_MAX,
            headers_timeout: HEADERS_TIMEOUT,
            shutdown_timeout: SHUTDOWN_WAIT,
            allows_half_closed: true,
            unread_max: None,
        };
        let page = AdminPage::new(settings, node, jobs);
        if page.is_some() {
            node.common.judge.operator_page.get_or_init(|| address);
        }
        monitoring = Monitoring(page.clone());
        let paths = if page.is_some() { "/metrics, /admin" } else { "/metrics" };
        let node = Data::new(node.clone());
        let server = http_port::serve(
            listener,
            limits,
            None,
            |_| Ok(Admitted::new(())),
            move || routes(Data::clone(&node), page.clone()),
        );
        actix_web::rt::spawn(server.map_err(failed)?);
        info!(log, "listening for scrapers of metrics"; "address" => %address, "path" => paths);
    } else if let Some(address) = settings.metrics_listen.0 {
        node.common.judge.metrics_port_taken.get_or_init(|| address);
    }
    if let Some(address) = settings.statsd_address {
        statsd::start(address, Duration::from_secs(settings.statsd_interval_s), node.clone());
    }
    Ok(monitoring)
}

impl Monitoring {
    /// Keeps what the server after this one shows too.
    pub async fn end(self) {
        if let Some(page) = self.0 {
            page.end().await;
        }
    }
}

fn routes(
    node: Data<AppState>,
    page: Option<Data<AdminPage>>,
) -> impl FnOnce(&mut ServiceConfig) + Clone {
    move |service| {
        service.app_data(node).service(web::resource("/metrics").route(read().to(metrics)));
        if let Some(page) = &page {
            admin_page::routes(page, service);
        }
    }
}

async fn metrics(request: HttpRequest, node: Data<AppState>) -> HttpResponse {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let text = text::write(&collect::collect(&node).await, format);
    HttpResponse::Ok().insert_header((CONTENT_TYPE, format.content_type())).body(text)
}
