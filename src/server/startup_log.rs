//! Output of a node that accepts connections: addresses and next steps on standard output, the
//! same for operators in the log.

use std::io::{Write, stdout};

use slog::{Logger, info, warn};
use storage::{DiskSpace, Store};

use super::listen::RunningServers;
use crate::push::app::SharedState;
use crate::settings::{AccessMode, ListenAddress, Role, Settings};
use crate::system::networks::Networks;

/// What a person does until the first certificate is there.
const AWAITED: &str = "Its certificate is ordered now, and nothing can connect before: `kalends status` shows how it is\n";

/// Writes both, or `line` alone on standard output. A node serves even if that is closed.
pub(super) fn write(
    line: Option<String>,
    (role, settings): (Role, &Settings),
    ports: &RunningServers,
    origin: &str,
    SharedState { store, certificates, log, .. }: &SharedState,
) {
    warn_of_low_disk(&**store, settings, log);
    let bound = &ports.public.socket.address;
    let rest = match role {
        Role::All => of_single_node(settings, origin),
        Role::Connection => of_connection_node(settings, ports, origin),
        Role::Endpoint => of_endpoint_node(settings, origin),
    };
    let awaited = if certificates.awaited.lock().is_some() { AWAITED } else { "" };
    let scheme = match bound {
        ListenAddress::Tcp(_) => format!("{}://", settings.scheme()),
        ListenAddress::Unix(_) => String::new(),
    };
    let text = || format!("Kalends is listening on {scheme}{bound}\n{awaited}{rest}");
    let mut stdout = stdout().lock();
    let _ = stdout.write_all(line.unwrap_or_else(text).as_bytes()).and_then(|()| stdout.flush());
    if let (None, Some(bound)) = (&settings.public_url, bound.tcp()) {
        warn_of_own_url(bound.ip().is_unspecified(), settings, origin, log);
    }
    if let Some(http) = &ports.http {
        info!(log, "listening for http, to redirect it"; "address" => %http.socket.address);
    }
    info!(log, "listening"; "role" => role.name(), "address" => %bound, "public_url" => origin);
    if let Some(router) = ports.router_address() {
        info!(log, "listening for other nodes"; "address" => %router, "node" => %settings.node_id(router));
    }
}

/// Warns if user agents on other machines get endpoint URLs of this one.
fn warn_of_own_url(is_everywhere: bool, settings: &Settings, origin: &str, log: &Logger) {
    if is_everywhere {
        warn!(log, "endpoint URLs name this machine only, and listen is all addresses: set public_url";
            "public_url" => origin);
    } else if settings.trusted_proxies != Networks::default() {
        warn!(log, "endpoint URLs name this machine only, and trusted_proxies names a proxy: set public_url";
            "public_url" => origin);
    }
}

/// Warns of a disk on which no message can be stored.
fn warn_of_low_disk(store: &dyn Store, settings: &Settings, log: &Logger) {
    if let Some(disk) = store.state().disk.filter(DiskSpace::is_low) {
        warn!(log, "the disk has less free space than disk_free_min, messages are refused";
            "data_dir" => %settings.data_dir.display(), "free_bytes" => disk.free_bytes,
            "disk_free_min" => disk.free_bytes_min);
    }
}

fn of_single_node(settings: &Settings, origin: &str) -> String {
    let socket = origin.replacen("http", "ws", 1);
    let data = settings.data_dir.display();
    // Without a token a user agent is refused.
    let (path, first) = match settings.access {
        AccessMode::Open => ("/", String::new()),
        AccessMode::Token => (
            "/u/TOKEN",
            format!("Make an access token: kalends access add NAME --data-dir {data}\n"),
        ),
    };
    let insecure = match socket.starts_with("wss:") {
        true => "",
        false => "  dom.push.testing.allowInsecureServerURL = true\n",
    };
    format!(
        "Endpoint URLs begin with {origin}/wpush/, data is in {data}\n\
         {first}\
         Firefox: open about:config and set\n  \
           dom.push.serverURL = {socket}{path}\n\
         {insecure}\
         Try it: kalends subscribe {socket}{path}\n"
    )
}

fn of_connection_node(settings: &Settings, ports: &RunningServers, origin: &str) -> String {
    let Some(router) = ports.router_address() else { return String::new() };
    let node = settings.node_id(router);
    // Which URL leads to a Unix socket is known to its proxy.
    let first = ports.public.socket.address.tcp().map_or_else(String::new, |bound| {
        let scheme = settings.scheme().replacen("http", "ws", 1);
        format!("Try it: kalends subscribe {scheme}://{bound}/\n")
    });
    format!(
        "Router port: http://{router}, known to other nodes as {node}\n\
         Endpoint URLs begin with {origin}/wpush/\n\
         {first}"
    )
}

fn of_endpoint_node(settings: &Settings, origin: &str) -> String {
    let allowed = &settings.nodes_allowed;
    format!(
        "Endpoint URLs begin with {origin}/wpush/, messages are delivered to nodes in {allowed}\n\
         Connection nodes must be started with --public-url {origin}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_of_a_closed_server_have_a_token() {
        let origin = "https://push.example.net";
        let open = of_single_node(&Settings::default(), origin);
        assert!(open.contains("subscribe wss://push.example.net/\n"), "{open}");
        let settings = Settings { access: AccessMode::Token, ..Settings::default() };
        let closed = of_single_node(&settings, origin);
        assert!(closed.contains("\nMake an access token: kalends access add NAME "), "{closed}");
        assert!(
            closed.contains("dom.push.serverURL = wss://push.example.net/u/TOKEN\n"),
            "{closed}"
        );
        assert!(closed.contains("subscribe wss://push.example.net/u/TOKEN\n"), "{closed}");
    }
}
