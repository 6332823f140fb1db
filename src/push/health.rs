//! The health checks of Dockerflow.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use actors::NodeDirectory;
use serde_json::{Value, json};
use slog::warn;
use storage::{COMMIT_BOUNDS_MS, CommitTimes, RecordReads};

use super::app::AppState;
use super::error::PushError;
use super::judge::{Check, Finding, Severity};
use super::port::request_id::request_id;
use crate::limits::PortName;
use crate::system::build::Build;

/// Clocks of other nodes in the body, those that differ most.
const CLOCKS_MAX: usize = 10;

/// 200 if no check finds an outage, otherwise 503. The body has the counts of either, and the names of what was found:
/// strangers learn no more. The line of a 503 shows whether a log that failed works again.
pub(super) async fn heartbeat(request: HttpRequest, node: Data<AppState>) -> HttpResponse {
    let common = &node.common;
    let judgement = node.judge().await;
    // Large, so it is made when nothing is waited for any more.
    let mut body = counts(&node);
    if let Some(connections) = &node.connections {
        body["connections"] = json!(judgement.connections);
        body["frames_delayed"] = json!(connections.clients.frame_limits.delayed());
    }
    let found = judgement.findings.iter().map(|finding| {
        let Finding { check, severity, since_ms, .. } = finding;
        json!({"check": check, "severity": severity, "since_ms": since_ms})
    });
    body["findings"] = found.collect();
    if judgement.is_healthy() {
        body["status"] = json!("OK");
        return HttpResponse::Ok().json(body);
    }
    let failed: Vec<_> = judgement.outages().map(|outage| outage.check.name()).collect();
    let why = judgement.outages().find_map(|outage| common.judge.whole_reason(outage));
    warn!(common.log, "the server is unhealthy"; "request" => request_id(request.headers()),
        "checks" => failed.join(", "), "store_error" => why);
    body["status"] = json!("unhealthy");
    let checks = Check::ALL.into_iter().filter(|check| check.severity() == Severity::Outage);
    let checks = checks.map(|check| (check.name().to_owned(), json!(!judgement.finds(check))));
    body["checks"] = checks.collect();
    PushError::Unavailable.response_with(&"the server is unhealthy, checks says why", &body)
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
        counts["disk"] = json!(disk);
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
