//! A file of `docs/deploy`, in which a test replaces only addresses, ports and certificates.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Backends, Kind};

/// The addresses of the nodes in the samples.
const CONNECTS: [&str; 3] = ["10.0.0.11:8080", "10.0.0.12:8080", "10.0.0.13:8080"];
const ENDPOINTS: [&str; 2] = ["10.0.0.21:8080", "10.0.0.22:8080"];

/// The text of a sample.
#[derive(Debug, Clone)]
pub(super) struct Sample(String);

impl Sample {
    /// Reads the file with this name.
    pub(super) fn read(name: &str) -> Self {
        let path = folder().join(name);
        let text = fs::read_to_string(&path);
        Self(text.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// The sample of a proxy with the addresses of the test.
    pub(super) fn of(kind: Kind, address: &str, backends: &Backends) -> Self {
        match kind {
            Kind::Nginx => Self::read("nginx.conf").for_nginx(address).with_nodes(backends),
            Kind::Caddy => Self::read("Caddyfile").with_lists(backends).for_caddy(address),
            Kind::OneServerNginx => {
                Self::read("one-server.nginx.conf").for_nginx(address).with_server(backends)
            }
            Kind::OneServerCaddy => {
                Self::read("one-server.Caddyfile").with_server(backends).for_caddy(address)
            }
        }
    }

    /// Replaces a text that must occur exactly once.
    pub(super) fn replace(self, from: &str, to: &str) -> Self {
        assert_eq!(self.0.matches(from).count(), 1, "the sample has {from:?} once:\n{}", self.0);
        Self(self.0.replace(from, to))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    fn for_nginx(self, address: &str) -> Self {
        let folder = "/etc/letsencrypt/live/push.example.net";
        self.replace("listen 443 ssl;", &format!("listen {address};"))
            .replace("    listen [::]:443 ssl;\n", "")
            .replace(&format!("    ssl_certificate {folder}/fullchain.pem;\n"), "")
            .replace(&format!("    ssl_certificate_key {folder}/privkey.pem;\n"), "")
    }

    fn for_caddy(self, address: &str) -> Self {
        let site = format!("http://{address} {{\nbind 127.0.0.1\n");
        Self(format!("{{\nadmin off\n}}\n{}", self.replace("push.example.net {\n", &site).0))
    }

    fn with_server(self, backends: &Backends) -> Self {
        self.replace("127.0.0.1:8080", &backends.endpoint_nodes[0])
    }

    fn with_nodes(self, backends: &Backends) -> Self {
        let nodes = CONNECTS.iter().zip(padded(&backends.connection_nodes));
        let nodes = nodes.chain(ENDPOINTS.iter().zip(padded(&backends.endpoint_nodes)));
        nodes.fold(self, |text, (name, node)| match node {
            Some(node) => text.replace(&format!("server {name} "), &format!("server {node} ")),
            None => text.without_line(&format!("server {name} ")),
        })
    }

    fn with_lists(self, backends: &Backends) -> Self {
        self.replace(&CONNECTS.join(" "), &backends.connection_nodes.join(" "))
            .replace(&ENDPOINTS.join(" "), &backends.endpoint_nodes.join(" "))
    }

    fn without_line(self, with: &str) -> Self {
        let line = self.0.lines().find(|line| line.contains(with)).unwrap_or(with).to_owned();
        self.replace(&format!("{line}\n"), "")
    }
}

/// The directory of the samples.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/deploy")
}

/// One element for each line of the sample: the nodes, followed by `None` for surplus lines.
fn padded(nodes: &[String]) -> impl Iterator<Item = Option<&String>> {
    nodes.iter().map(Some).chain(std::iter::repeat(None))
}
