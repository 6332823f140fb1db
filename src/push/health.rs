//! The health checks of Dockerflow.

use std::time::{Duration, Instant};

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use actors::NodeDirectory;
use actors::broadcasts::BroadcastView;
use actors::registry::CountConnections;
use serde::Serialize;
use serde_json::{Value, json};
use slog::warn;
use storage::{COMMIT_BOUNDS_MS, CommitTimes, RecordReads};
use tokio::time::timeout;

use super::app::{AppState, SharedState, WebSocketRole};
use super::error::PushError;
use super::port::request_id::request_id;
use crate::limits::PortName;
use crate::system::build::Build;

/// Clocks of other nodes in the body, those that differ most.
const CLOCKS_MAX: usize = 10;

/// Maximum time for the store or the registry to answer a check.
const CHECK_WAIT: Duration = Duration::from_secs(2);

/// 200 if the store can be read and accepts writes and has space for messages, feeds are published, the ports accept
/// connections, the certificate is valid and the log is written, otherwise 503. On a connection node the registry must
/// answer and broadcasts be published too. The body has the counts of either. The line of a 503 shows whether a log that
/// failed works again.
pub(super) async fn heartbeat(request: HttpRequest, node: Data<AppState>) -> HttpResponse {
    let common = &node.common;
    let checks = Checks::of(common, node.connections.as_deref().map(AsRef::as_ref)).await;
    // Large, so it is made when nothing is waited for any more.
    let mut body = counts(&node);
    if let Some(connections) = &node.connections {
        body["connections"] = json!(checks.connections);
        body["frames_delayed"] = json!(connections.clients.frame_limits.delayed());
    }
    if checks.are_passed() {
        body["status"] = json!("OK");
        return HttpResponse::Ok().json(body);
    }
    let Checks {
        store,
        store_error,
        space,
        log,
        feeds,
        accepts,
        certificate,
        registry,
        broadcasts,
        ..
    } = &checks;
    warn!(common.log, "the server is unhealthy"; "request" => request_id(request.headers()), "store" => store,
        "store_error" => store_error, "space" => space, "log" => log, "feeds" => feeds, "accepts" => accepts,
        "certificate" => certificate, "registry" => registry, "broadcasts" => broadcasts);
    body["status"] = json!("unhealthy");
    body["checks"] = json!(checks);
    PushError::Unavailable.response_with(&"the server is unhealthy, checks says why", &body)
}

/// The parts of a node, and whether each of them works.
#[derive(Serialize)]
pub(super) struct Checks {
    pub(super) store: bool,
    /// Why the store failed, for the log.
    #[serde(skip)]
    store_error: Option<String>,
    pub(super) space: bool,
    pub(super) log: bool,
    feeds: bool,
    accepts: bool,
    /// Whether the certificate of the public port is valid still, if it has one.
    pub(super) certificate: bool,
    registry: bool,
    broadcasts: bool,
    /// The user agents that are connected, if the registry answered.
    #[serde(skip)]
    connections: Option<usize>,
}

impl Checks {
    /// Takes at most twice [`CHECK_WAIT`].
    pub(super) async fn of(common: &SharedState, connections: Option<&WebSocketRole>) -> Self {
        let store_error = match timeout(CHECK_WAIT, common.store.check()).await {
            Ok(checked) => checked.err().map(|error| error.to_string()),
            Err(late) => Some(late.to_string()),
        };
        let mut checks = Self {
            store: store_error.is_none(),
            store_error,
            space: common.store.state().disk.is_none_or(|disk| !disk.is_low()),
            log: common.log_state.works(Instant::now()),
            feeds: common.feeds.is_running(),
            accepts: !common.accept_failures.are_recent(),
            certificate: common
                .certificates
                .current()
                .is_none_or(|current| common.clock.now() < current.valid.expires),
            registry: true,
            broadcasts: true,
            connections: None,
        };
        if let Some(WebSocketRole { clients, .. }) = connections {
            let count = timeout(CHECK_WAIT, clients.registry.send(CountConnections)).await;
            checks.connections = count.ok().and_then(Result::ok);
            checks.registry = checks.connections.is_some();
            checks.broadcasts = clients.broadcasts.as_ref().is_none_or(BroadcastView::is_running);
        }
        checks
    }

    pub(super) fn are_passed(&self) -> bool {
        let Self { store, space, log, feeds, accepts, certificate, registry, broadcasts, .. } =
            *self;
        store && space && log && feeds && accepts && certificate && registry && broadcasts
    }
}

/// What was refused since the start, and what is under way.
fn counts(node: &AppState) -> Value {
    let common = &node.common;
    let store = common.store.state();
    let refused = common.limits.refused().filter(|(_, refused)| *refused > 0);
    let (refused, port) = (refused.collect::<Value>(), common.limits.port_state(PortName::Public));
    let mut counts = json!({"refused": refused, "port": port});
    if let Some(endpoints) = &node.endpoints {
        counts["pushes_in_flight"] = json!(endpoints.shared.in_flight());
        let (refused, gave_way) = (endpoints.shared.refused_full(), store.messages_gave_way);
        counts["waiting"] = json!({"refused": refused, "gave_way": gave_way});
        // The application by its bridge and name. The file of bridges bounds how many there are.
        let bridges = endpoints.bridges.observe();
        let bridges = bridges
            .map(|(bridge, app, state)| (format!("{}/{app}", bridge.as_str()), json!(state)));
        counts["bridges"] = bridges.collect();
        counts["bridge_pushes_refused"] = json!(endpoints.shared.bridge_refused());
    }
    let clocks = node.nodes().map(NodeDirectory::clocks).unwrap_or_default();
    if !clocks.clocks.is_empty() {
        // A wrong clock leaves the node healthy: it serves, and a load balancer that removed it would correct nothing.
        let differing = clocks.differing().take(CLOCKS_MAX);
        let differing =
            differing.map(|clock| json!({"node": clock.name(), "ahead_s": clock.ahead.seconds()}));
        counts["clocks"] = json!({
            "compared": clocks.clocks.len(),
            "majority": clocks.has_majority,
            "differing": differing.collect::<Value>(),
        });
    }
    if let Some(disk) = store.disk {
        counts["disk"] = json!({
            "free_bytes": disk.free_bytes,
            "free_bytes_min": disk.free_bytes_min,
            "messages_refused": disk.messages_refused,
            "subscriptions_refused": disk.subscriptions_refused,
        });
    }
    if let Some(CommitTimes { counts: commits, longest_ms }) = store.commit_times {
        counts["commits"] =
            json!({"bounds_ms": COMMIT_BOUNDS_MS, "counts": commits, "longest_ms": longest_ms});
    }
    if let Some(RecordReads { from_memory, from_file }) = store.record_reads {
        counts["record_reads"] = json!({"from_memory": from_memory, "from_file": from_file});
    }
    counts
}

/// 200; from the start of the shutdown 503, so that a load balancer sends no more requests.
pub(super) async fn alive(node: Data<AppState>) -> HttpResponse {
    match node.common.is_draining() {
        false => HttpResponse::Ok().json(json!({"status": "OK"})),
        true => HttpResponse::ServiceUnavailable().json(json!({"status": "draining"})),
    }
}

pub(super) async fn version() -> HttpResponse {
    let Build { version, commit, date } = Build::THIS;
    HttpResponse::Ok().json(json!({
        "status": "OK", "name": "kalends", "version": version, "commit": commit, "date": date,
    }))
}
