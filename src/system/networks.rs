//! A list of addresses and networks, such as the setting `trusted_proxies`.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// Maximum number of networks in a list, or of patterns, which are compared one after the other.
pub(super) const NETWORKS_MAX: usize = 1000;

/// Bits of the IPv6 prefix `::ffff:0:0/96` of addresses mapped from IPv4.
const MAPPED_BITS: u8 = 96;

/// Addresses and networks, possibly none. A single address is a network of its full width.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Reads addresses and networks separated by commas. Brackets around an IPv6 address are optional.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let nets = text.split(',').take(NETWORKS_MAX + 1).map(|net| read(net.trim()));
        let nets: Vec<_> = nets.collect::<Result<_, _>>()?;
        match nets.len() > NETWORKS_MAX {
            true => Err(format!("expected at most {NETWORKS_MAX} networks")),
            false => Ok(Self(nets)),
        }
    }

    /// Whether one contains this address, in its [canonical](IpAddr::to_canonical) form.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|net| net.contains(&address))
    }
}

fn read(text: &str) -> Result<IpNet, String> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let bare = address.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let address = bare.unwrap_or(address).parse().map_err(|_| {
        format!("{text:?} is no address (10.0.0.1, fd00::1) and no network (10.0.0.0/8, fd00::/8)")
    })?;
    network(address, bits, text)
}

pub(super) fn network(ip: IpAddr, bits: Option<&str>, text: &str) -> Result<IpNet, String> {
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

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nets: Vec<String> = self.0.iter().map(|net| show(*net)).collect();
        f.write_str(&nets.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_shown() {
        for (text, shown) in [
            ("", ""),
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.0/8,fd00::/8 , [::1]", "10.0.0.0/8, [fd00::]/8, [::1]"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ] {
            let networks = Networks::parse(text).unwrap();
            assert_eq!(networks.to_string(), shown);
            assert_eq!(Networks::parse(shown), Ok(networks));
        }
        for wrong in [
            ",",
            "10.0.0.1,",
            "proxy",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "[::1",
            "10.0.0.1:80",
        ] {
            assert!(Networks::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Networks::parse(&vec!["10.0.0.1"; NETWORKS_MAX + 1].join(",")).is_err());
    }

    #[test]
    fn only_addresses_of_a_network_are_in_the_list() {
        let networks = Networks::parse("10.0.0.0/8, fd00::/8").unwrap();
        for (address, is_in) in
            [("10.9.9.9", true), ("11.0.0.1", false), ("fd12::1", true), ("fe80::1", false)]
        {
            assert_eq!(networks.contains(address.parse().unwrap()), is_in, "{address}");
        }
        assert!(!Networks::default().contains("10.0.0.1".parse().unwrap()));
    }
}
