//! What a process serves, and which settings each role needs.

use std::net::SocketAddr;

use clap::ValueEnum;
use state_machine::NodeId;

use super::table::Settings;
use super::value::StoreKind;
use crate::system::node_address::{AddressError, NodeAddress};

/// What a process serves (`--role`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Both others in one process
    #[default]
    All,
    /// A connection node of a cluster: user agents connect to it
    Connection,
    /// An endpoint node of a cluster: application servers send to it
    Endpoint,
}

/// A setting that the role needs, or that contradicts it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleProblem {
    #[error(
        "the nodes of a cluster share their tables, and store = \"embedded\" has them in files of one process: set \
         store = \"dynamodb\", or run `kalends serve` without --role {0}"
    )]
    StoreOfOne(&'static str),
    #[error(
        "public_url is not set: a connection node issues endpoint URLs, which begin with it; set it to the URL of the \
         endpoint nodes, the same on every node"
    )]
    NoPublicUrl,
    #[error(
        "public_url is not set, and listen = {0} is reached from other machines: set it to the URL of the endpoint \
         nodes, with which endpoint URLs begin, the same on every node"
    )]
    NoPublicOrigin(SocketAddr),
    #[error(
        "public_url is not set, and listen is a Unix socket, which no URL names: set public_url to the URL of the proxy \
         in front of it, such as https://push.example.net"
    )]
    NoOriginOfSocket,
    #[error(
        "router_listen = {0} is all addresses of this machine, and other nodes need one of them: set router_url, such as \
         http://10.0.0.5:8081"
    )]
    NoRouterUrl(SocketAddr),
    #[error("router_url = `{url}`: {error}")]
    RouterUrl { url: String, error: AddressError },
    #[error(
        "the router port of this node, {0}, is not in nodes_allowed: no node with these settings would call it; set \
         nodes_allowed to all nodes, the same on every node"
    )]
    NotAllowed(NodeId),
    #[error(
        "listen and router_listen are both port {0}: the router port is for other nodes only, set another port"
    )]
    OnePort(u16),
}

impl Role {
    /// The value of `--role`, and of the field `role` in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Connection => "connection",
            Self::Endpoint => "endpoint",
        }
    }

    /// Whether user agents connect to this process.
    pub fn has_connections(self) -> bool {
        self != Self::Endpoint
    }

    /// Whether application servers send to this process.
    pub fn has_endpoints(self) -> bool {
        self != Self::Connection
    }

    /// Whether the process is one of several that relay messages to one another.
    pub fn is_cluster_node(self) -> bool {
        self != Self::All
    }
}

impl Settings {
    /// Checks the settings that `role` needs.
    pub fn check(&self, role: Role) -> Result<(), RoleProblem> {
        if role.is_cluster_node() && self.store == StoreKind::Embedded {
            return Err(RoleProblem::StoreOfOne(role.name()));
        }
        match (role, self.listen.tcp()) {
            (_, None) if self.public_url.is_none() => Err(RoleProblem::NoOriginOfSocket),
            (Role::Connection, _) => self.check_router_port(),
            (Role::Endpoint, Some(public))
                if self.public_url.is_none() && !public.ip().is_loopback() =>
            {
                Err(RoleProblem::NoPublicOrigin(public))
            }
            (Role::All | Role::Endpoint, _) => Ok(()),
        }
    }

    fn check_router_port(&self) -> Result<(), RoleProblem> {
        if self.public_url.is_none() {
            return Err(RoleProblem::NoPublicUrl);
        }
        let router = self.router_listen;
        if self.listen.tcp().is_some_and(|public| overlap(public, router)) {
            return Err(RoleProblem::OnePort(router.port()));
        }
        if router.ip().is_unspecified() && self.router_url.is_none() {
            return Err(RoleProblem::NoRouterUrl(router));
        }
        // Port 0 is not known yet: only a pattern without a port allows it.
        let node = self.node_id(SocketAddr::new(router.ip(), router.port().max(1)));
        let address = NodeAddress::parse(&node)
            .map_err(|error| RoleProblem::RouterUrl { url: node.to_string(), error })?;
        match self.nodes_allowed.allows(&address) {
            true => Ok(()),
            false => Err(RoleProblem::NotAllowed(node)),
        }
    }

    /// Name in router records of the connection node whose router port is `bound`.
    pub fn node_id(&self, bound: SocketAddr) -> NodeId {
        match &self.router_url {
            Some(url) => NodeId::new(url.as_str()),
            None => NodeId::new(&format!("http://{bound}")),
        }
    }
}

/// Whether the addresses cannot both be bound. Port 0 is a different port each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (is_all, other_is_all) = (one.ip().is_unspecified(), other.ip().is_unspecified());
    let is_same_host = one.ip() == other.ip() || is_all || other_is_all;
    is_same_host && one.port() == other.port() && one.port() != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PublicUrl;
    use crate::settings::value::Value;
    use crate::system::node_address::AllowedNodes;

    /// Checks correct settings of a connection node after `change`.
    fn connect(change: impl FnOnce(&mut Settings)) -> Result<(), RoleProblem> {
        let public_url = Some(PublicUrl::parse("https://push.example.net").unwrap());
        let mut settings =
            Settings { store: StoreKind::DynamoDb, public_url, ..Settings::default() };
        change(&mut settings);
        settings.check(Role::Connection)
    }

    fn url(text: &str) -> Option<PublicUrl> {
        Some(PublicUrl::parse(text).unwrap())
    }

    #[test]
    fn the_defaults_fit_a_single_node_and_their_store_fits_no_cluster() {
        let settings = Settings::default();
        assert_eq!(settings.check(Role::All), Ok(()));
        for role in [Role::Connection, Role::Endpoint] {
            assert_eq!(settings.check(role), Err(RoleProblem::StoreOfOne(role.name())));
        }
        let settings = Settings { store: StoreKind::DynamoDb, ..settings };
        assert_eq!(settings.check(Role::Endpoint), Ok(()));
        assert_eq!(settings.check(Role::Connection), Err(RoleProblem::NoPublicUrl));
        let open = SocketAddr::from(([10, 0, 0, 5], 8090));
        let settings = Settings { listen: open.into(), ..settings };
        assert_eq!(settings.check(Role::Endpoint), Err(RoleProblem::NoPublicOrigin(open)));
        let public_url = url("https://push.example.net");
        let settings = Settings { public_url, ..settings };
        assert_eq!(settings.check(Role::Endpoint), Ok(()));
        assert_eq!(connect(|_| ()), Ok(()));
        let socket =
            Settings { listen: "unix:/run/a.sock".parse().unwrap(), ..Settings::default() };
        assert_eq!(socket.check(Role::All), Err(RoleProblem::NoOriginOfSocket));
        let socket = Settings { public_url: url("https://push.example.net"), ..socket };
        assert_eq!(socket.check(Role::All), Ok(()));
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        assert_eq!(connect(|settings| settings.router_listen = any_port), Ok(()));
    }

    #[test]
    fn a_router_port_on_all_addresses_needs_a_router_url() {
        for all in ["0.0.0.0:8081", "[::]:8081"] {
            let all: SocketAddr = all.parse().unwrap();
            let problem = connect(|settings| settings.router_listen = all);
            assert_eq!(problem, Err(RoleProblem::NoRouterUrl(all)));
            let named = connect(|settings| {
                settings.router_listen = all;
                settings.router_url = url("http://127.0.0.1:8081");
            });
            assert_eq!(named, Ok(()));
        }
    }

    #[test]
    fn a_node_outside_nodes_allowed_is_refused() {
        let elsewhere = connect(|settings| settings.router_url = url("http://10.0.0.5:8081"));
        assert_eq!(elsewhere, Err(RoleProblem::NotAllowed(NodeId::new("http://10.0.0.5:8081"))));
        let allowed = connect(|settings| {
            settings.router_url = url("http://10.0.0.5:8081");
            settings.nodes_allowed = AllowedNodes::parse("10.0.0.0/8").unwrap();
        });
        assert_eq!(allowed, Ok(()));
        let encrypted = connect(|settings| settings.router_url = url("https://127.0.0.1:8081"));
        assert!(matches!(encrypted, Err(RoleProblem::RouterUrl { .. })), "{encrypted:?}");
    }

    #[test]
    fn the_two_ports_must_differ() {
        for (public, router, is_one) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("0.0.0.0:8080", "127.0.0.1:8080", true),
            ("127.0.0.2:8080", "127.0.0.1:8080", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("127.0.0.1:8080", "127.0.0.1:8081", false),
        ] {
            let outcome = connect(|settings| {
                settings.listen = public.parse().unwrap();
                settings.router_listen = router.parse().unwrap();
            });
            let expected = if is_one { Err(RoleProblem::OnePort(8080)) } else { Ok(()) };
            assert_eq!(outcome, expected, "{public} {router}");
        }
    }
}
