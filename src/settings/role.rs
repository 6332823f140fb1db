//! What a process of a cluster is, and which settings go together with that.

use std::net::SocketAddr;

use state_machine::NodeId;

use super::{Settings, StoreKind};
use crate::peers::address::{AddressError, NodeAddress};

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Both of the others in one: `kalends serve`.
    Serve,
    /// A connection node, which user agents connect to: `kalends connect`.
    Connect,
    /// An endpoint node, which application servers send to: `kalends endpoint`.
    Endpoint,
}

/// Settings that do not go together with what a process is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleProblem {
    /// The tables are where no other node could get at them.
    #[error(
        "`kalends {0}` is one of several nodes, which need tables that all of them reach: set store = \"dynamodb\", or \
         run `kalends serve` alone"
    )]
    StoreOfOne(&'static str),
    /// The endpoints that it hands out would not be those of the endpoint nodes.
    #[error(
        "public_url is not set: a connection node hands out endpoints, and must be told where they begin; it is the URL \
         of the endpoint nodes, the same on every node"
    )]
    NoPublicUrl,
    /// Signed pushes would be refused, and endpoints of other nodes too.
    #[error(
        "public_url is not set, and listen = {0} is reached from other machines: an endpoint node must be told where \
         endpoints begin; it is the URL of the endpoint nodes, the same on every node"
    )]
    NoPublicOrigin(SocketAddr),
    /// Nobody can tell where other nodes find it.
    #[error(
        "router_listen = {0} is all addresses of this machine, and other nodes must be told one: set router_url, such as \
         http://10.0.0.5:8081"
    )]
    NoRouterUrl(SocketAddr),
    /// Other nodes could not call it.
    #[error("router_url = `{url}`: {error}")]
    RouterUrl {
        /// What it is.
        url: String,
        /// What it must be.
        error: AddressError,
    },
    /// Other nodes would not call it.
    #[error(
        "the router port of this node, {0}, is not in nodes_allowed: no node with the same settings would call it; \
         nodes_allowed is to be the same on every node, and to have them all"
    )]
    NotAllowed(NodeId),
    /// Both ports are one.
    #[error(
        "listen and router_listen are both port {0}: the router port is for other nodes alone, give it a port of its own"
    )]
    OnePort(u16),
}

impl Role {
    /// The command that runs it.
    pub fn command(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Connect => "connect",
            Self::Endpoint => "endpoint",
        }
    }

    /// Whether user agents connect to it.
    pub fn has_connections(self) -> bool {
        self != Self::Endpoint
    }

    /// Whether application servers send to it.
    pub fn has_endpoints(self) -> bool {
        self != Self::Connect
    }

    /// Whether there are other nodes that it hands messages to or takes them from.
    pub fn is_one_of_several(self) -> bool {
        self != Self::Serve
    }
}

impl Settings {
    /// Refuses what does not go together with a role.
    pub fn check(&self, role: Role) -> Result<(), RoleProblem> {
        if role.is_one_of_several() && self.store == StoreKind::Embedded {
            return Err(RoleProblem::StoreOfOne(role.command()));
        }
        match role {
            Role::Connect => self.check_router_port(),
            Role::Endpoint if self.public_url.is_none() && !self.listen.ip().is_loopback() => {
                Err(RoleProblem::NoPublicOrigin(self.listen))
            }
            Role::Serve | Role::Endpoint => Ok(()),
        }
    }

    fn check_router_port(&self) -> Result<(), RoleProblem> {
        if self.public_url.is_none() {
            return Err(RoleProblem::NoPublicUrl);
        }
        let (public, router) = (self.listen, self.router_listen);
        if overlap(public, router) {
            return Err(RoleProblem::OnePort(public.port()));
        }
        if router.ip().is_unspecified() && self.router_url.is_none() {
            return Err(RoleProblem::NoRouterUrl(router));
        }
        // Port 0 is any, and is known too late: it must be one of those where any is allowed.
        let known = SocketAddr::new(router.ip(), router.port().max(1));
        self.check_node_id(&self.node_id(known))
    }

    fn check_node_id(&self, node: &NodeId) -> Result<(), RoleProblem> {
        let address = NodeAddress::parse(node)
            .map_err(|error| RoleProblem::RouterUrl { url: node.to_string(), error })?;
        match self.nodes_allowed.allows(&address) {
            true => Ok(()),
            false => Err(RoleProblem::NotAllowed(node.clone())),
        }
    }

    /// The name in router records of a connection node whose router port is bound there.
    pub fn node_id(&self, bound: SocketAddr) -> NodeId {
        match &self.router_url {
            Some(url) => NodeId::new(url.as_str()),
            None => NodeId::new(&format!("http://{bound}")),
        }
    }
}

/// Whether nobody could listen on both. Port 0 is another one each time.
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

    /// A connection node as it should be, but for what `change` changes.
    fn connect(change: impl FnOnce(&mut Settings)) -> Result<(), RoleProblem> {
        let public_url = Some(PublicUrl::parse("https://push.example.net").unwrap());
        let mut settings =
            Settings { store: StoreKind::DynamoDb, public_url, ..Settings::default() };
        change(&mut settings);
        settings.check(Role::Connect)
    }

    fn url(text: &str) -> Option<PublicUrl> {
        Some(PublicUrl::parse(text).unwrap())
    }

    #[test]
    fn the_defaults_are_right_for_one_process_and_its_tables_are_wrong_for_several() {
        let settings = Settings::default();
        assert_eq!(settings.check(Role::Serve), Ok(()));
        for role in [Role::Connect, Role::Endpoint] {
            assert_eq!(settings.check(role), Err(RoleProblem::StoreOfOne(role.command())));
        }
        let settings = Settings { store: StoreKind::DynamoDb, ..settings };
        assert_eq!(settings.check(Role::Endpoint), Ok(()));
        assert_eq!(settings.check(Role::Connect), Err(RoleProblem::NoPublicUrl));
        let open = SocketAddr::from(([10, 0, 0, 5], 8090));
        let settings = Settings { listen: open, ..settings };
        assert_eq!(settings.check(Role::Endpoint), Err(RoleProblem::NoPublicOrigin(open)));
        let public_url = url("https://push.example.net");
        let settings = Settings { public_url, ..settings };
        assert_eq!(settings.check(Role::Endpoint), Ok(()));
        assert_eq!(connect(|_| ()), Ok(()));
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        assert_eq!(connect(|settings| settings.router_listen = any_port), Ok(()));
    }

    #[test]
    fn a_router_port_on_all_addresses_needs_a_name() {
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
    fn a_node_that_no_other_may_call_is_refused() {
        let elsewhere = connect(|settings| settings.router_url = url("http://10.0.0.5:8081"));
        assert_eq!(elsewhere, Err(RoleProblem::NotAllowed(NodeId::new("http://10.0.0.5:8081"))));
        let allowed = connect(|settings| {
            settings.router_url = url("http://10.0.0.5:8081");
            settings.nodes_allowed = Value::parse("10.0.0.0/8").unwrap();
        });
        assert_eq!(allowed, Ok(()));
        let encrypted = connect(|settings| settings.router_url = url("https://127.0.0.1:8081"));
        assert!(matches!(encrypted, Err(RoleProblem::RouterUrl { .. })), "{encrypted:?}");
    }

    #[test]
    fn two_ports_cannot_be_one() {
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
