//! Which nodes are ever called: the setting `nodes_allowed`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{NodeAddress, is_name, read_host, read_port, split_port, without_dot};
use crate::settings::value::{TomlKind, Value};

/// Patterns that a list may have: each is looked at for a node that none of them allows.
pub const PATTERNS_MAX: usize = 1000;

/// Where the IPv4 addresses are among those of IPv6: in `::ffff:0:0/96`.
const MAPPED_BITS: u8 = 96;

/// The patterns that a node's address must match one of; at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct AllowedNodes(Vec<Pattern>);

/// `HOST[:PORT]`; without a port, any.
#[derive(Clone, PartialEq, Eq)]
struct Pattern {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq)]
enum Host {
    /// Addresses whose first `bits` are those of `ip`, which has no others.
    Net { ip: IpAddr, bits: u8 },
    /// A name, in lower case and without a dot at its end.
    Name(String),
    /// What a name ends with, from a dot on.
    Suffix(String),
}

impl AllowedNodes {
    /// The loopback addresses of this machine.
    pub fn loopback() -> Self {
        let net = |ip, bits| Pattern { host: Host::Net { ip, bits }, port: None };
        let (v4, v6) = (Ipv4Addr::new(127, 0, 0, 0), Ipv6Addr::LOCALHOST);
        Self(vec![net(v4.into(), 8), net(v6.into(), width(v6.into()))])
    }

    /// Whether this node may be called.
    ///
    /// A name matches only names: what address it has is not asked. An IPv4 address written as an IPv6 address
    /// (`[::ffff:127.0.0.1]`) is that IPv4 address.
    pub fn allows(&self, node: &NodeAddress) -> bool {
        self.0.iter().any(|pattern| pattern.matches(node))
    }
}

impl Pattern {
    fn matches(&self, node: &NodeAddress) -> bool {
        self.port.is_none_or(|port| port == node.port()) && self.host.matches(node)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = split_port(text).ok_or_else(|| expected(text))?;
        let port = port.map(|port| read_port(port).ok_or_else(|| expected(text))).transpose()?;
        Ok(Self { host: Host::parse(host, text)?, port })
    }
}

impl Host {
    fn matches(&self, node: &NodeAddress) -> bool {
        match (self, node.ip()) {
            (Self::Net { ip, bits }, Some(node)) => is_in(node.to_canonical(), *ip, *bits),
            (Self::Name(name), None) => without_dot(node.host()).eq_ignore_ascii_case(name),
            (Self::Suffix(suffix), None) => ends_with(without_dot(node.host()), suffix),
            (Self::Net { .. }, None) | (Self::Name(_) | Self::Suffix(_), Some(_)) => false,
        }
    }

    fn parse(host: &str, text: &str) -> Result<Self, String> {
        let name = |name: &str| is_name(name).then(|| without_dot(name).to_ascii_lowercase());
        if let Some(parent) = host.strip_prefix("*.") {
            return name(parent)
                .map(|name| Self::Suffix(format!(".{name}")))
                .ok_or_else(|| expected(text));
        }
        let (address, bits) = match host.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (host, None),
        };
        match (read_host(address), bits) {
            (Some((_, Some(ip))), bits) => net(ip, bits, text),
            (Some((host, None)), None) => name(host).map(Self::Name).ok_or_else(|| expected(text)),
            (Some((_, None)), Some(_)) | (None, _) => Err(expected(text)),
        }
    }
}

fn net(ip: IpAddr, bits: Option<&str>, text: &str) -> Result<Host, String> {
    let bits = bits.map_or(Some(width(ip)), |bits| read_bits(bits, ip));
    let bits = bits.ok_or_else(|| {
        format!("{text:?} has no number of bits behind the slash, which is 0 to {}", width(ip))
    })?;
    let first = first_of(ip, bits);
    if first != ip {
        return Err(format!(
            "the address of {text:?} has more than its first {bits} bits: did you mean {}?",
            Net(first, bits)
        ));
    }
    Ok(canonical(ip, bits))
}

/// A net of IPv4 addresses that are written as IPv6 addresses is one of IPv4 addresses, as these are when they are compared.
fn canonical(ip: IpAddr, bits: u8) -> Host {
    match ip.to_canonical() {
        short if short != ip && bits >= MAPPED_BITS => {
            Host::Net { ip: short, bits: bits - MAPPED_BITS }
        }
        _ => Host::Net { ip, bits },
    }
}

fn read_bits(text: &str, ip: IpAddr) -> Option<u8> {
    let is_number =
        text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    text.parse().ok().filter(|bits| is_number && *bits <= width(ip))
}

fn is_in(ip: IpAddr, net: IpAddr, bits: u8) -> bool {
    ip.is_ipv4() == net.is_ipv4() && first_of(ip, bits) == net
}

/// The first address that has the same first bits.
fn first_of(ip: IpAddr, bits: u8) -> IpAddr {
    let dropped = u32::from(width(ip) - bits);
    match ip {
        IpAddr::V4(ip) => {
            Ipv4Addr::from_bits(ip.to_bits() & u32::MAX.checked_shl(dropped).unwrap_or(0)).into()
        }
        IpAddr::V6(ip) => {
            Ipv6Addr::from_bits(ip.to_bits() & u128::MAX.checked_shl(dropped).unwrap_or(0)).into()
        }
    }
}

/// How many bits an address of this kind has.
fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn ends_with(name: &str, suffix: &str) -> bool {
    let (name, suffix) = (name.as_bytes(), suffix.as_bytes());
    name.len() > suffix.len() && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
}

fn expected(text: &str) -> String {
    format!(
        "{text:?} is no HOST or HOST:PORT, where HOST is a name (node1.example.net), the end of names \
         (*.example.net), an address (10.0.0.1, [fd00::1]) or a net (10.0.0.0/8, [fd00::]/8)"
    )
}

/// A net as it is written.
struct Net(IpAddr, u8);

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ip, bits) = self;
        match ip {
            IpAddr::V4(ip) => write!(f, "{ip}")?,
            IpAddr::V6(ip) => write!(f, "[{ip}]")?,
        }
        if *bits == width(*ip) { Ok(()) } else { write!(f, "/{bits}") }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Net { ip, bits } => Net(*ip, *bits).fmt(f)?,
            Host::Name(name) => f.write_str(name)?,
            Host::Suffix(suffix) => write!(f, "*{suffix}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for AllowedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pattern) in self.0.iter().enumerate() {
            write!(f, "{}{pattern}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Debug for AllowedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Value for AllowedNodes {
    const TOML_KIND: TomlKind = TomlKind::Text;
    const PLACEHOLDER: &'static str = "LIST";

    /// An empty list is refused: a node with it could call nobody, itself included.
    fn parse(text: &str) -> Result<Self, String> {
        let patterns = text.split(',').map(|pattern| Pattern::parse(pattern.trim()));
        let patterns: Vec<_> = patterns.take(PATTERNS_MAX + 1).collect::<Result<_, _>>()?;
        match patterns.len() > PATTERNS_MAX {
            true => Err(format!("expected at most {PATTERNS_MAX} patterns")),
            false => Ok(Self(patterns)),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}
