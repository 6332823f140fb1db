//! The address that a request counts for.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use actix_web::http::header::HeaderMap;

use crate::node_address::Networks;

const FORWARDED: &str = "x-forwarded-for";

/// The bits of an IPv6 address that name its site: one customer has many addresses, often a whole /56.
const SITE: Ipv6Addr = Ipv6Addr::from_bits(!0 << (128 - 56));

pub(super) struct Addresses {
    trusted_proxies: Networks,
    loopback_limited: bool,
}

impl Addresses {
    pub(super) fn new(trusted_proxies: Networks, loopback_limited: bool) -> Self {
        Self { trusted_proxies, loopback_limited }
    }

    /// The address or the IPv6 /56 that a request of this peer counts for; none if it has no limit by address.
    pub(super) fn of(&self, peer: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        let is_forwarded = self.trusted_proxies.contains(peer) && headers.contains_key(FORWARDED);
        if peer.is_loopback() && !is_forwarded && !self.loopback_limited {
            return None;
        }
        let forwarded = if is_forwarded { self.forwarded(headers) } else { None };
        Some(match forwarded.unwrap_or(peer) {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => (address & SITE).into(),
        })
    }

    /// The last address that no trusted proxy has: each proxy appends the address of its own peer, and what precedes
    /// that may be forged.
    fn forwarded(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let lines: Vec<_> = headers.get_all(FORWARDED).collect();
        let newest_first =
            lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        for address in newest_first {
            let address = parse(address)?;
            if !self.trusted_proxies.contains(address) {
                return Some(address);
            }
        }
        None
    }
}

/// An address, which some proxies write with its port. What is left of it in the header may be any bytes.
fn parse(address: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(address).ok()?.trim();
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    text.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::fuzz::fuzz;

    fn counted(trusted: &str, loopback_limited: bool, peer: &str, forwarded: &[&str]) -> String {
        let addresses = Addresses::new(Networks::parse(trusted).unwrap(), loopback_limited);
        let lines = forwarded.iter().map(|line| HeaderValue::from_bytes(line.as_bytes()).unwrap());
        let address = addresses.of(peer.parse().unwrap(), &headers(lines));
        address.map(|address| address.to_string()).unwrap_or_default()
    }

    fn headers(lines: impl IntoIterator<Item = HeaderValue>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(HeaderName::from_static(FORWARDED), line);
        }
        headers
    }

    #[test]
    fn the_forwarded_address_counts_only_if_a_trusted_proxy_sends_it() {
        let trusted = "10.0.0.0/8, 127.0.0.1, fd00::/8";
        for (peer, forwarded, expected) in [
            ("192.0.2.1", ["1.2.3.4"].as_slice(), "192.0.2.1"),
            ("10.0.0.1", &["1.2.3.4"], "1.2.3.4"),
            ("::ffff:10.0.0.1", &["::ffff:1.2.3.4"], "1.2.3.4"),
            ("127.0.0.1", &["1.2.3.4"], "1.2.3.4"),
            ("fd00::1", &["9.9.9.9, 1.2.3.4,10.0.0.2 , 10.0.0.3"], "1.2.3.4"),
            ("10.0.0.1", &["9.9.9.9, 1.2.3.4", "10.0.0.2"], "1.2.3.4"),
            ("10.0.0.1", &["forged", "1.2.3.4"], "1.2.3.4"),
            ("10.0.0.1", &["äöü, 1.2.3.4"], "1.2.3.4"),
            ("10.0.0.1", &["1.2.3.4:80"], "1.2.3.4"),
            ("10.0.0.1", &["[2001:db8::1]:80"], "2001:db8::"),
            ("10.0.0.1", &["127.0.0.2"], "127.0.0.2"),
        ] {
            assert_eq!(counted(trusted, false, peer, forwarded), expected, "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn the_address_of_the_proxy_counts_if_its_header_is_malformed_or_missing() {
        for forwarded in [
            [].as_slice(),
            &[""],
            &["unknown"],
            &["1.2.3.4:x"],
            &["1.2.3.4,"],
            &["1.2.3.4, x, 10.0.0.2"],
            &["10.0.0.2"],
            &["äöü"],
        ] {
            assert_eq!(counted("10.0.0.0/8", false, "10.0.0.1", forwarded), "10.0.0.1");
        }
    }

    #[test]
    fn ipv6_counts_by_its_first_56_bits() {
        for address in ["2001:db8:1:2ff::1", "2001:db8:1:200:ffff::"] {
            assert_eq!(counted("", false, address, &[]), "2001:db8:1:200::");
            assert_eq!(counted("10.0.0.1", false, "10.0.0.1", &[address]), "2001:db8:1:200::");
        }
        assert_eq!(counted("", false, "2001:db8:1:300::1", &[]), "2001:db8:1:300::");
    }

    #[test]
    fn a_peer_on_loopback_counts_only_by_the_setting() {
        for (peer, limited) in
            [("127.0.0.1", "127.0.0.1"), ("127.9.9.9", "127.9.9.9"), ("::1", "::")]
        {
            assert_eq!(counted("", false, peer, &["1.2.3.4"]), "");
            assert_eq!(counted("", true, peer, &["1.2.3.4"]), limited);
        }
        assert_eq!(counted("127.0.0.1", false, "127.0.0.1", &[]), "");
        assert_eq!(counted("127.0.0.1", false, "127.0.0.1", &["forged"]), "127.0.0.1");
    }

    #[test]
    fn no_hostile_forwarded_address_is_trusted_before_the_one_that_a_proxy_appends() {
        let addresses = Addresses::new(Networks::parse("10.0.0.0/8, fd00::/8").unwrap(), false);
        let [proxy, client, stranger] =
            ["10.0.0.1", "192.0.2.77", "198.51.100.1"].map(|text| text.parse().unwrap());
        // Each line is a header.
        let samples = [
            "1.2.3.4",
            "9.9.9.9, 1.2.3.4,10.0.0.2 , fd00::3",
            "1.2.3.4:80\n[2001:db8::1]:80\n10.0.0.2",
            "unknown, ::ffff:1.2.3.4\n_hidden",
        ];
        fuzz("forwarded_addresses", &samples, |bytes| {
            let lines = bytes.split(|byte| *byte == b'\n');
            let lines: Vec<_> = lines.flat_map(HeaderValue::from_bytes).collect();
            let of = |peer, lines: &[HeaderValue]| addresses.of(peer, &headers(lines.to_vec()));
            assert_eq!(of(stranger, &lines), Some(stranger));
            let counted = of(proxy, &lines).expect("no peer on loopback");
            assert!(counted == proxy || !addresses.trusted_proxies.contains(counted), "{counted}");
            for appended in ["192.0.2.77", "192.0.2.77:80, 10.9.9.9 ,fd00::1"] {
                let line = HeaderValue::from_static(appended);
                assert_eq!(of(proxy, &[&lines[..], &[line]].concat()), Some(client));
                if let Some(last) = lines.last() {
                    let line = [last.as_bytes(), b",", appended.as_bytes()].concat();
                    let line = HeaderValue::from_bytes(&line).expect("both parts are valid");
                    assert_eq!(
                        of(proxy, &[&lines[..lines.len() - 1], &[line]].concat()),
                        Some(client)
                    );
                }
            }
        });
    }
}
