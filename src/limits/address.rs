//! The address that a request counts for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use actix_web::http::header::HeaderMap;
use actors::SharedLogLimiter;
use serde::{Deserialize, Serialize};
use slog::{Logger, debug, warn};
use state_machine::{Span, Time};

use crate::settings::Settings;
use crate::system::networks::Networks;

const FORWARDED: &str = "x-forwarded-for";

/// The bits of an IPv6 address that name its site: one customer has many addresses, often a whole /56.
const SITE: Ipv6Addr = Ipv6Addr::from_bits(!0 << (128 - 56));

/// Minimum time between two log lines about proxies, which anyone can cause by a header.
const LOG_EVERY: Span = Span::from_secs(60 * 60);

/// Who a request comes from.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub address: IpAddr,
    pub from: ClientSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientSource {
    #[serde(rename = "connection")]
    Connection,
    /// The header of a trusted proxy.
    #[serde(rename = "X-Forwarded-For")]
    Forwarded,
}

pub(super) struct Addresses {
    trusted_proxies: Networks,
    /// Whether the public port is a Unix socket. Then its peers have no address, and each is a proxy on this machine.
    has_unix_socket: bool,
    loopback_limited: bool,
    untrusted: SharedLogLimiter,
    unusable: SharedLogLimiter,
    log: Logger,
}

impl Addresses {
    pub(super) fn new(settings: &Settings, log: Logger) -> Self {
        Self {
            trusted_proxies: settings.trusted_proxies.clone(),
            has_unix_socket: settings.listen.is_unix(),
            loopback_limited: settings.loopback_limited,
            untrusted: SharedLogLimiter::new(LOG_EVERY),
            unusable: SharedLogLimiter::new(LOG_EVERY),
            log,
        }
    }

    /// The address or the IPv6 /56 that a request of this peer counts for; none if it has no limit by address. A header
    /// of a proxy that is not trusted is logged, and one of a trusted proxy that names no client.
    pub(super) fn of(
        &self,
        peer: Option<SocketAddr>,
        headers: &HeaderMap,
        now: Time,
    ) -> Option<IpAddr> {
        let (peer, is_trusted) = self.peer(peer)?;
        let has_header = headers.contains_key(FORWARDED);
        if has_header && !is_trusted {
            self.warn_of_untrusted(peer, now);
        }
        let forwarded = if is_trusted { self.forwarded(headers) } else { None };
        if is_trusted && forwarded.is_none() {
            self.warn_of_unusable(peer, now);
        }
        let is_forwarded = is_trusted && has_header;
        if peer.is_loopback() && !is_forwarded && !self.loopback_limited {
            return None;
        }
        Some(site(forwarded.unwrap_or(peer)))
    }

    /// Who a request comes from, as limits see it.
    pub(super) fn client(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Option<Client> {
        let (peer, is_trusted) = self.peer(peer)?;
        let has_header = headers.contains_key(FORWARDED) && is_trusted;
        let forwarded = has_header.then(|| self.forwarded(headers)).flatten();
        let from = if has_header { ClientSource::Forwarded } else { ClientSource::Connection };
        Some(Client { address: forwarded.unwrap_or(peer), from })
    }

    /// The address of a peer, and whether it is a trusted proxy. One on the Unix socket counts as such a proxy on loopback.
    fn peer(&self, peer: Option<SocketAddr>) -> Option<(IpAddr, bool)> {
        match peer.map(|peer| peer.ip().to_canonical()) {
            Some(peer) => Some((peer, self.trusted_proxies.contains(peer))),
            // Without a socket it is a connection that was reset already.
            None => self.has_unix_socket.then_some((Ipv4Addr::LOCALHOST.into(), true)),
        }
    }

    /// The address or the IPv6 /56 that a connection counts for before it has a request; none if it has no limit by
    /// address, as those of trusted proxies.
    pub(super) fn of_connection(&self, peer: Option<SocketAddr>) -> Option<IpAddr> {
        let peer = peer?.ip().to_canonical();
        let is_exempt = peer.is_loopback() && !self.loopback_limited;
        (!is_exempt && !self.trusted_proxies.contains(peer)).then(|| site(peer))
    }

    /// Whether a peer is an operator on this machine, and no proxy.
    pub(super) fn is_operator(&self, peer: Option<SocketAddr>) -> bool {
        let peer = peer.map(|peer| peer.ip().to_canonical());
        let is_local = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].map(Some);
        is_local.contains(&peer) && peer.is_some_and(|peer| !self.trusted_proxies.contains(peer))
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

    fn warn_of_untrusted(&self, peer: IpAddr, now: Time) {
        if let Some(requests) = self.untrusted.count(now) {
            warn!(self.log, "a peer that is not in trusted_proxies sends X-Forwarded-For, the header is ignored";
                "requests" => requests, "is_loopback" => peer.is_loopback());
            debug!(self.log, "a peer that is not in trusted_proxies"; "peer" => %peer);
        }
    }

    fn warn_of_unusable(&self, peer: IpAddr, now: Time) {
        if let Some(requests) = self.unusable.count(now) {
            warn!(self.log, "a trusted proxy sends no X-Forwarded-For with the address of a client, its clients are not told apart";
                "requests" => requests, "is_loopback" => peer.is_loopback());
            debug!(self.log, "a trusted proxy without a valid X-Forwarded-For"; "peer" => %peer);
        }
    }
}

/// The part of an address that names a customer.
fn site(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => (address & SITE).into(),
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
    use slog::{Discard, o};

    use super::*;
    use crate::fuzz::fuzz;

    const NOW: Time = Time(1_000_000);

    fn counted(trusted: &str, loopback_limited: bool, peer: &str, forwarded: &[&str]) -> String {
        counted_by(&addresses(trusted, loopback_limited), peer, forwarded)
    }

    fn addresses(trusted: &str, loopback_limited: bool) -> Addresses {
        let trusted_proxies = Networks::parse(trusted).unwrap();
        let settings = Settings { trusted_proxies, loopback_limited, ..Settings::default() };
        Addresses::new(&settings, Logger::root(Discard, o!()))
    }

    fn peer(address: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(address.parse().unwrap(), 1000))
    }

    fn counted_by(addresses: &Addresses, peer: &str, forwarded: &[&str]) -> String {
        let lines = forwarded.iter().map(|line| HeaderValue::from_bytes(line.as_bytes()).unwrap());
        let address = addresses.of(self::peer(peer), &headers(lines), NOW);
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
    fn a_client_is_told_which_address_counts_and_who_names_it() {
        use ClientSource::{Connection, Forwarded};
        let addresses = addresses("10.0.0.0/8", false);
        for (peer, forwarded, address, from) in [
            ("192.0.2.1", None, "192.0.2.1", Connection),
            ("192.0.2.1", Some("1.2.3.4"), "192.0.2.1", Connection),
            ("10.0.0.1", None, "10.0.0.1", Connection),
            ("10.0.0.1", Some("1.2.3.4"), "1.2.3.4", Forwarded),
            ("10.0.0.1", Some("10.0.0.2"), "10.0.0.1", Forwarded),
        ] {
            let lines = forwarded.map(HeaderValue::from_static);
            let client = addresses.client(self::peer(peer), &headers(lines)).unwrap();
            assert_eq!(client, Client { address: address.parse().unwrap(), from }, "{peer}");
        }
    }

    #[test]
    fn a_connection_counts_before_its_request_unless_it_is_of_a_trusted_proxy() {
        let of = |loopback_limited, peer: &str| {
            let addresses = addresses("10.0.0.0/8", loopback_limited);
            let address = addresses.of_connection(Some(peer.parse().unwrap()));
            address.map(|address| address.to_string())
        };
        assert_eq!(of(false, "192.0.2.1:5").as_deref(), Some("192.0.2.1"));
        assert_eq!(of(false, "[2001:db8:1:2ff::1]:5").as_deref(), Some("2001:db8:1:200::"));
        assert_eq!(of(false, "[::ffff:192.0.2.1]:5").as_deref(), Some("192.0.2.1"));
        assert_eq!(of(false, "[::ffff:10.0.0.1]:5"), None);
        assert_eq!(of(false, "[::ffff:127.0.0.1]:5"), None);
        assert_eq!(of(false, "10.0.0.1:5"), None);
        assert_eq!(of(false, "127.0.0.1:5"), None);
        assert_eq!(of(true, "127.0.0.1:5").as_deref(), Some("127.0.0.1"));
        for (peer, trusted, expected) in [
            ("127.0.0.1:5", "10.0.0.0/8", true),
            ("[::1]:5", "10.0.0.0/8", true),
            ("[::ffff:127.0.0.1]:5", "10.0.0.0/8", true),
            ("127.0.0.1:5", "127.0.0.0/8", false),
            ("192.0.2.1:5", "10.0.0.0/8", false),
            ("10.0.0.1:5", "10.0.0.0/8", false),
        ] {
            let peer = Some(peer.parse().unwrap());
            assert_eq!(addresses(trusted, false).is_operator(peer), expected, "{peer:?}");
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
    fn a_peer_on_the_unix_socket_counts_as_a_trusted_proxy_on_loopback() {
        let limited = |loopback_limited| {
            let listen = "unix:/run/a.sock".parse().unwrap();
            let settings = Settings { listen, loopback_limited, ..Settings::default() };
            Addresses::new(&settings, Logger::root(Discard, o!()))
        };
        for (forwarded, counted, with_loopback) in [
            (None, "", "127.0.0.1"),
            (Some("1.2.3.4"), "1.2.3.4", "1.2.3.4"),
            (Some("9.9.9.9, 1.2.3.4"), "1.2.3.4", "1.2.3.4"),
            (Some("forged"), "127.0.0.1", "127.0.0.1"),
        ] {
            for (addresses, expected) in [(limited(false), counted), (limited(true), with_loopback)]
            {
                let headers = headers(forwarded.map(HeaderValue::from_static));
                let address = addresses.of(None, &headers, NOW);
                let address = address.map(|address| address.to_string()).unwrap_or_default();
                assert_eq!(address, expected, "{forwarded:?}");
                let from = match forwarded {
                    Some(_) => ClientSource::Forwarded,
                    None => ClientSource::Connection,
                };
                assert_eq!(addresses.client(None, &headers).unwrap().from, from);
                assert_eq!(addresses.of_connection(None), None);
                assert!(!addresses.is_operator(None));
            }
        }
        // Without a Unix socket a peer without an address is gone.
        let headers = headers([HeaderValue::from_static("1.2.3.4")]);
        assert_eq!(addresses("127.0.0.1", true).of(None, &headers, NOW), None);
        assert_eq!(addresses("127.0.0.1", true).client(None, &headers), None);
    }

    #[test]
    fn a_proxy_that_is_not_trusted_or_names_no_address_is_reported() {
        for (peer, forwarded, untrusted, unusable) in [
            ("192.0.2.1", [].as_slice(), 0, 0),
            ("192.0.2.1", &["1.2.3.4"], 1, 0),
            ("127.0.0.1", &["1.2.3.4"], 1, 0),
            ("10.0.0.1", &["1.2.3.4"], 0, 0),
            ("10.0.0.1", &["10.0.0.2"], 0, 1),
            ("10.0.0.1", &[], 0, 1),
            ("10.0.0.1", &["unknown"], 0, 1),
            ("127.0.0.2", &[], 0, 1),
            ("127.0.0.2", &["unknown"], 0, 1),
        ] {
            let addresses = addresses("10.0.0.0/8, 127.0.0.2", false);
            counted_by(&addresses, peer, forwarded);
            counted_by(&addresses, peer, forwarded);
            let reported = |limiter: &SharedLogLimiter| limiter.rest(NOW + LOG_EVERY).unwrap_or(0);
            let reported = (reported(&addresses.untrusted), reported(&addresses.unusable));
            assert_eq!(reported, (untrusted, unusable), "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn no_hostile_forwarded_address_is_trusted_before_the_one_that_a_proxy_appends() {
        let addresses = addresses("10.0.0.0/8, fd00::/8", false);
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
            let of = |peer: IpAddr, lines: &[HeaderValue]| {
                addresses.of(Some((peer, 1000).into()), &headers(lines.to_vec()), NOW)
            };
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
