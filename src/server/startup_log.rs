//! What a node says when it is ready.

use std::io::{Write, stdout};

use slog::{Logger, info, warn};

use super::listen::RunningServers;
use crate::settings::{Role, Settings};

/// Says where it is and what to do next. A closed standard output is no reason not to serve.
pub(super) fn write(
    role: Role,
    settings: &Settings,
    ports: &RunningServers,
    origin: &str,
    log: &Logger,
) {
    let bound = ports.public_address();
    let rest = match role {
        Role::Serve => of_serve(settings, origin),
        Role::Connect => of_connect(settings, ports, origin),
        Role::Endpoint => of_endpoint(settings, origin),
    };
    let text = format!("Kalends is listening on http://{bound}\n{rest}");
    let _ = stdout().write_all(text.as_bytes());
    if bound.ip().is_unspecified() && settings.public_url.is_none() {
        warn!(log, "listening on all addresses, but endpoints name this machine only: set public_url";
            "endpoints" => origin);
    }
    info!(log, "listening"; "role" => role.command(), "address" => %bound, "public_url" => origin);
    if let Some(router) = ports.router_address() {
        info!(log, "listening for other nodes"; "address" => %router, "node" => %settings.node_id(router));
    }
}

fn of_serve(settings: &Settings, origin: &str) -> String {
    let socket = origin.replacen("http", "ws", 1);
    let data = settings.data_dir.display();
    format!(
        "Endpoints begin with {origin}/wpush/, data is in {data}\n\
         Firefox: open about:config and set\n  \
           dom.push.serverURL = {socket}/\n  \
           dom.push.testing.allowInsecureServerURL = true   (only while it is ws:, not wss:)\n\
         Try it: kalends listen {socket}/\n"
    )
}

fn of_connect(settings: &Settings, ports: &RunningServers, origin: &str) -> String {
    let Some(router) = ports.router_address() else { return String::new() };
    let (node, bound) = (settings.node_id(router), ports.public_address());
    format!(
        "Router port: http://{router}, known to other nodes as {node}\n\
         User agents are told that endpoints begin with {origin}/wpush/\n\
         Try it: kalends listen ws://{bound}/\n"
    )
}

fn of_endpoint(settings: &Settings, origin: &str) -> String {
    let allowed = &settings.nodes_allowed;
    format!(
        "Endpoints begin with {origin}/wpush/, messages go to nodes in {allowed}\n\
         Connection nodes must be started with --public-url {origin}\n"
    )
}
