//! Addresses of nodes, and the list of those that may be called.
//!
//! A router record names the node that its user agent is connected to. An attacker with write
//! access to the store must not be able to make a server call any address. So a node's name is
//! parsed strictly, as `http://HOST:PORT` in the one form that all URL parsers understand alike,
//! and a node is called only if [`AllowedNodes`] allows it.

mod allowed;
mod networks;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use state_machine::NodeId;

pub use allowed::{AllowedNodes, PATTERNS_MAX};
pub use networks::Networks;

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
