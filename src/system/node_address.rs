//! Addresses of nodes, and the list of those that may be called.
//!
//! A router record names the node that its user agent is connected to. An attacker with write
//! access to the store must not be able to make a server call any address. So a node's name is
//! parsed strictly, as `http://HOST:PORT` in the one form that all URL parsers understand alike,
//! and a node is called only if [`AllowedNodes`] allows it.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use state_machine::NodeId;

use super::networks::{NETWORKS_MAX, network, show};

const SCHEME: &str = "http://";

/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 80;

/// Maximum length of a host name, and of one label (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// The URL of a node's router port: `http://HOST[:PORT]`, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    node: NodeId,
    /// An IPv6 address has no brackets here.
    host: Box<str>,
    ip: Option<IpAddr>,
    port: u16,
}

/// The name of a node is not the URL of a router port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected http://HOST:PORT and nothing behind it, where HOST is a name, an IPv4 address or an IPv6 address in \
     brackets"
)]
pub struct AddressError;

impl NodeAddress {
    pub fn parse(node: &NodeId) -> Result<Self, AddressError> {
        let text = node.as_str();
        let authority = text.strip_prefix(SCHEME).ok_or(AddressError)?;
        let (host, port) = split_port(authority).ok_or(AddressError)?;
        let (bare, ip) = read_host(host).ok_or(AddressError)?;
        let port = port.map_or(Some(DEFAULT_PORT), read_port).ok_or(AddressError)?;
        Ok(Self { node: node.clone(), host: bare.into(), ip, port })
    }

    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Host and port as in the `Host` header.
    pub fn authority(&self) -> &str {
        &self.node.as_str()[SCHEME.len()..]
    }

    /// The host; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// None if the host is a name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

/// A list of patterns, at least one, of which the address of a node must match one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedNodes(Vec<Pattern>);

/// `HOST[:PORT]`; without a port, any port matches.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    /// A single address is a net of its full width. No host bits are set.
    Net(IpNet),
    /// A name, in lower case and without a dot at its end.
    Name(String),
    /// The end of a name, from a dot on.
    Suffix(String),
}

impl AllowedNodes {
    /// The loopback addresses of this machine.
    pub fn loopback() -> Self {
        let v4 = Ipv4Net::new_assert([127, 0, 0, 0].into(), 8);
        let nets = [IpNet::V4(v4), IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST))];
        Self(nets.map(|net| Pattern { host: Host::Net(net), port: None }).into())
    }

    /// Reads the setting: patterns separated by commas. An empty list is an error, because a node with
    /// it could call no node, itself included.
    pub fn parse(text: &str) -> Result<Self, String> {
        let patterns = text.split(',').map(|pattern| Pattern::parse(pattern.trim()));
        let patterns: Vec<_> = patterns.take(NETWORKS_MAX + 1).collect::<Result<_, _>>()?;
        match patterns.len() > NETWORKS_MAX {
            true => Err(format!("expected at most {NETWORKS_MAX} patterns")),
            false => Ok(Self(patterns)),
        }
    }

    /// Whether this node may be called.
    ///
    /// A name matches only names: it is not resolved. An IPv4 address written as an IPv6 address
    /// (`[::ffff:127.0.0.1]`) is that IPv4 address.
    pub fn allows(&self, node: &NodeAddress) -> bool {
        self.0.iter().any(|pattern| pattern.matches(node))
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = split_port(text).ok_or_else(|| expected(text))?;
        let port = port.map(|port| read_port(port).ok_or_else(|| expected(text))).transpose()?;
        Ok(Self { host: Host::parse(host, text)?, port })
    }

    fn matches(&self, node: &NodeAddress) -> bool {
        if self.port.is_some_and(|port| port != node.port()) {
            return false;
        }
        let name = without_dot(node.host());
        match (&self.host, node.ip()) {
            (Host::Net(net), Some(ip)) => net.contains(&ip.to_canonical()),
            (Host::Name(allowed), None) => name.eq_ignore_ascii_case(allowed),
            (Host::Suffix(suffix), None) => {
                let (name, suffix) = (name.as_bytes(), suffix.as_bytes());
                name.len() > suffix.len()
                    && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
            }
            (Host::Net(_), None) | (Host::Name(_) | Host::Suffix(_), Some(_)) => false,
        }
    }
}

impl Host {
    fn parse(host: &str, text: &str) -> Result<Self, String> {
        let name = |name: &str| is_name(name).then(|| without_dot(name).to_ascii_lowercase());
        let (address, bits) = host.split_once('/').map_or((host, None), |(a, b)| (a, Some(b)));
        let parsed = match (host.strip_prefix("*."), read_host(address), bits) {
            (Some(parent), _, _) => name(parent).map(|name| Self::Suffix(format!(".{name}"))),
            (None, Some((_, Some(ip))), bits) => return Ok(Self::Net(network(ip, bits, text)?)),
            (None, Some((host, None)), None) => name(host).map(Self::Name),
            (None, _, _) => None,
        };
        parsed.ok_or_else(|| expected(text))
    }
}

fn expected(text: &str) -> String {
    format!(
        "{text:?} is no HOST or HOST:PORT, where HOST is a name (node1.example.net), the end of names \
         (*.example.net), an address (10.0.0.1, [fd00::1]) or a net (10.0.0.0/8, [fd00::]/8)"
    )
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Net(net) => f.write_str(&show(*net))?,
            Host::Name(name) => f.write_str(name)?,
            Host::Suffix(suffix) => write!(f, "*{suffix}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for AllowedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns: Vec<String> = self.0.iter().map(Pattern::to_string).collect();
        f.write_str(&patterns.join(", "))
    }
}

/// Splits off the port. The colons of an IPv6 address are inside brackets.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let from = if authority.starts_with('[') { authority.find(']')? } else { 0 };
    match authority[from..].find(':') {
        None => Some((authority, None)),
        Some(at) => Some((&authority[..from + at], Some(&authority[from + at + 1..]))),
    }
}

/// The host without brackets, and its address if it is one.
fn read_host(host: &str) -> Option<(&str, Option<IpAddr>)> {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?;
        return Some((inner, Some(inner.parse::<Ipv6Addr>().ok()?.into())));
    }
    match host.parse::<Ipv4Addr>() {
        Ok(ip) => Some((host, Some(ip.into()))),
        Err(_) => is_name(host).then_some((host, None)),
    }
}

fn read_port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if is_number { text.parse().ok() } else { None }
}

/// Whether a host is a name, which may end in a dot.
///
/// One that ends in a number is not: to resolvers, `2130706433` and `0x7f.1` are 127.0.0.1.
fn is_name(host: &str) -> bool {
    let name = without_dot(host);
    let fits = name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label);
    fits && !name.rsplit('.').next().is_some_and(is_numeric)
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn is_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_allowed)
}

fn is_numeric(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    let is_hex = hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hex || label.bytes().all(|byte| byte.is_ascii_digit())
}
