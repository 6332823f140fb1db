//! The setting `nodes_allowed`: the nodes that may be called.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use super::{NodeAddress, is_name, read_host, read_port, split_port, without_dot};

/// Maximum number of patterns in a list, which are compared one after the other.
pub const PATTERNS_MAX: usize = 1000;

/// Bits of the IPv6 prefix `::ffff:0:0/96` of addresses mapped from IPv4.
const MAPPED_BITS: u8 = 96;

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
        let patterns: Vec<_> = patterns.take(PATTERNS_MAX + 1).collect::<Result<_, _>>()?;
        match patterns.len() > PATTERNS_MAX {
            true => Err(format!("expected at most {PATTERNS_MAX} patterns")),
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
            (None, Some((_, Some(ip))), bits) => return Ok(Self::Net(net(ip, bits, text)?)),
            (None, Some((host, None)), None) => name(host).map(Self::Name),
            (None, _, _) => None,
        };
        parsed.ok_or_else(|| expected(text))
    }
}

pub(super) fn net(ip: IpAddr, bits: Option<&str>, text: &str) -> Result<IpNet, String> {
    let address = IpNet::from(ip);
    let net = bits.map_or(Some(address), |bits| {
        let number: u8 = bits.parse().ok()?;
        // `+8` and `08` are no numbers of bits.
        (number.to_string() == bits).then(|| IpNet::new(ip, number).ok())?
    });
    let net = net.ok_or_else(|| {
        let max = address.max_prefix_len();
        format!("{text:?} has no number of bits behind the slash, which is 0 to {max}")
    })?;
    if net.trunc() != net {
        return Err(format!(
            "the address of {text:?} has more than its first {} bits: did you mean {}?",
            net.prefix_len(),
            show(net.trunc())
        ));
    }
    Ok(canonical(net))
}

/// The IPv4 net that a net of mapped addresses stands for: addresses are compared in this form.
fn canonical(net: IpNet) -> IpNet {
    match (net.addr().to_canonical(), net.prefix_len().checked_sub(MAPPED_BITS), net) {
        (IpAddr::V4(ip), Some(bits), IpNet::V6(_)) => Ipv4Net::new_assert(ip, bits).into(),
        _ => net,
    }
}

fn expected(text: &str) -> String {
    format!(
        "{text:?} is no HOST or HOST:PORT, where HOST is a name (node1.example.net), the end of names \
         (*.example.net), an address (10.0.0.1, [fd00::1]) or a net (10.0.0.0/8, [fd00::]/8)"
    )
}

pub(super) fn show(net: IpNet) -> String {
    let address = match net.addr() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    match net.prefix_len() == net.max_prefix_len() {
        true => address,
        false => format!("{address}/{}", net.prefix_len()),
    }
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
