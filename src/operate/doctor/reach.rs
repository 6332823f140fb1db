//! What the public URL leads to: its name in DNS and each address of it, the clock behind it, the address that limits
//! see, and the end of the certificate.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use actix_web::http::header::HttpDate;
use actix_web::rt::task::spawn_blocking;
use futures_util::future::join_all;
use serde::Deserialize;
use state_machine::Time;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_tungstenite::MaybeTlsStream;
use url::{Host, Url};

use super::findings::{Findings, Level, Verdict};
use crate::limits::{Client, ClientSource};
use crate::system::clock::SystemClock;
use crate::system::https_client::{WebSocket, http_client};
use crate::system::printable::time_left;
use crate::system::tls::certificate::{Validity, validity};

/// Maximum time for DNS to answer.
const DNS_WAIT: Duration = Duration::from_secs(10);

/// Maximum time for an address to accept a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Addresses of the name that are tried, at the same time.
const ADDRESSES_MAX: usize = 8;

/// Bytes of an answer that are read.
const BODY_BYTES_MAX: u64 = 16 * 1024;

/// Difference of two clocks above which the doctor warns. An answer has its time in whole seconds.
const CLOCK_WARN: Duration = Duration::from_secs(30);

/// Difference of two clocks above which the check fails: signed pushes are then refused by some servers.
const CLOCK_FAIL: Duration = Duration::from_secs(300);

/// Looks the name of the URL up, and connects to each of its addresses. Returns whether one answers.
pub(super) async fn dns(url: &Url, findings: &mut Findings) -> io::Result<bool> {
    let (Some(Host::Domain(name)), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Ok(true);
    };
    let found = match timeout(DNS_WAIT, lookup_host((name, port))).await {
        Ok(Ok(found)) => Ok(distinct(found.map(|address| address.ip()))),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer in {} s", DNS_WAIT.as_secs())),
    };
    match found {
        Ok(addresses) => {
            let list: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
            findings.ok("DNS", format!("{name} is {}", list.join(", ")))?;
            each_address(&addresses, port, findings).await
        }
        Err(why) => {
            let remedy = "add an A or AAAA record for the name, or correct public_url";
            findings.fail("DNS", format!("{name} has no address: {why}"), remedy)?;
            Ok(false)
        }
    }
}

/// Each address once, in the order of the answer.
fn distinct(found: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// Returns whether an address answers, as far as it can be tried. Loopback addresses are in no DNS, and are left out.
async fn each_address(
    addresses: &[IpAddr],
    port: u16,
    findings: &mut Findings,
) -> io::Result<bool> {
    let public = addresses.iter().filter(|address| !address.is_loopback()).take(ADDRESSES_MAX);
    let results = join_all(public.map(|&address| connected(address, port))).await;
    let answering = results.iter().filter(|(_, connected)| connected.is_ok()).count();
    let mut has_failed = false;
    for (address, connected) in &results {
        if let Err(error) = connected {
            let verdict = unanswered(*address, port, error, answering > 0);
            has_failed |= verdict.0 == Level::Fail;
            findings.verdict("address", verdict)?;
        }
    }
    if answering == results.len() && answering > 0 {
        findings.ok("address", format!("each answers on port {port}"))?;
    }
    Ok(answering > 0 || !has_failed)
}

async fn connected(address: IpAddr, port: u16) -> (IpAddr, io::Result<()>) {
    let late = |_| Err(io::Error::other(format!("no answer in {} s", CONNECT_WAIT.as_secs())));
    let connected = timeout(CONNECT_WAIT, TcpStream::connect((address, port))).await;
    (address, connected.unwrap_or_else(late).map(|_closed| ()))
}

/// Of an address that a connection failed to.
fn unanswered(address: IpAddr, port: u16, error: &io::Error, has_others: bool) -> Verdict {
    let record = if address.is_ipv4() { "A" } else { "AAAA" };
    let found = format!("the {record} record {address} does not answer on port {port}: {error}");
    if error.kind() == ErrorKind::NetworkUnreachable {
        let remedy = "this machine has no route to it: run the doctor on one that has";
        return (Level::Warn, found, remedy);
    }
    let remedy = match (has_others, address) {
        (false, _) => "let the server or its proxy listen there, and let firewalls pass the port",
        (true, IpAddr::V4(_)) => {
            "remove the record, or let the server or its proxy listen on 0.0.0.0 and firewalls pass the port"
        }
        (true, IpAddr::V6(_)) => {
            "remove the record, or let the server or its proxy listen on [::] and firewalls pass the port"
        }
    };
    (Level::Fail, found, remedy)
}

/// The answer to a plain request of the URL. Its status does not matter.
pub(super) struct Answer {
    date: Option<SystemTime>,
    /// Who the request came from. None if no server of Kalends answered.
    client: Option<Client>,
}

/// Requests the URL. There is no answer without a server: the next check has the reason.
pub(super) async fn request(url: &Url) -> Option<Answer> {
    let url = url.clone();
    spawn_blocking(move || answer(&url)).await.ok().flatten()
}

fn answer(url: &Url) -> Option<Answer> {
    #[derive(Deserialize)]
    struct Body {
        client: Client,
    }
    let mut answer = http_client(url).ok()?.get(url.as_str()).call().ok()?;
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok()?.parse().ok());
    let body = answer.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_string();
    let body = body.ok().and_then(|text| serde_json::from_str::<Body>(&text).ok());
    Some(Answer {
        date: date.map(|date: HttpDate| date.into()),
        client: body.map(|body| body.client),
    })
}

/// Compares the clock of this machine with the one that answers.
pub(super) fn clock(answer: &Answer, findings: &mut Findings) -> io::Result<()> {
    let Some(theirs) = answer.date else { return Ok(()) };
    findings.verdict("clock", compared(theirs, SystemTime::now()))
}

fn compared(theirs: SystemTime, ours: SystemTime) -> Verdict {
    let remedy = "run NTP on both machines: VAPID tokens, TTLs and months depend on the clock";
    let (apart, which) = match theirs.duration_since(ours) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    let level = match apart {
        _ if apart >= CLOCK_FAIL => Level::Fail,
        _ if apart >= CLOCK_WARN => Level::Warn,
        _ => {
            let found = format!("it differs by less than {} s", CLOCK_WARN.as_secs());
            return (Level::Ok, found, remedy);
        }
    };
    let found = format!("the clock that answers is {} s {which} this machine's", apart.as_secs());
    (level, found, remedy)
}

/// Whether the address of a client passes the proxy, if there is one. Otherwise all clients have the limits of one.
pub(super) fn client_address(
    answer: &Answer,
    has_proxy: bool,
    findings: &mut Findings,
) -> io::Result<()> {
    let Some(client) = &answer.client else { return Ok(()) };
    findings.verdict("limits by address", seen(client, has_proxy))
}

fn seen(Client { address, from }: &Client, has_proxy: bool) -> Verdict {
    let remedy = "let the proxy set X-Forwarded-For and name it in trusted_proxies: otherwise all clients together \
                  have the limits of one address";
    let found = format!("the server sees {address}");
    match from {
        ClientSource::Connection if has_proxy => {
            let found = format!("{found}, and no address in X-Forwarded-For of a trusted proxy");
            (Level::Warn, found, remedy)
        }
        ClientSource::Connection => (Level::Ok, found, remedy),
        ClientSource::Forwarded => {
            (Level::Ok, format!("{found}, by the proxy's X-Forwarded-For"), remedy)
        }
    }
}

/// Warns of a certificate that ends soon. Nothing is found without TLS.
pub(super) fn certificate(socket: &WebSocket, findings: &mut Findings) -> io::Result<()> {
    let MaybeTlsStream::Rustls(stream) = socket.get_ref() else { return Ok(()) };
    let chain = stream.get_ref().1.peer_certificates();
    let Some(valid) = chain.and_then(|chain| validity(chain.first()?)) else {
        return findings.warn("certificate", "its end cannot be read", "look at it with openssl");
    };
    findings.verdict("certificate", ends(valid, SystemClock::shifted(0).now()))
}

pub(super) fn ends(valid: Validity, now: Time) -> Verdict {
    if valid.begins > now {
        let remedy = "compare the clock of this machine with another, or use a certificate that is valid now";
        return (Level::Fail, "it begins only later".to_owned(), remedy);
    }
    let level = if valid.ends_soon(now).is_some() { Level::Warn } else { Level::Ok };
    let left = valid.expires.since(now);
    let found = format!("it ends in {}", time_left(left));
    (level, found, "renew it: all agents disconnect when it ends")
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn clocks_half_a_minute_apart_are_warned_of_and_five_minutes_fail() {
        let ours = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (seconds, level) in [
            (0, Level::Ok),
            (29, Level::Ok),
            (30, Level::Warn),
            (299, Level::Warn),
            (300, Level::Fail),
        ] {
            let apart = Duration::from_secs(seconds);
            let (ahead, behind) = (compared(ours + apart, ours), compared(ours - apart, ours));
            assert_eq!((ahead.0, behind.0), (level, level), "{seconds} s");
            let words = |which| format!("is {seconds} s {which} this machine's");
            if level != Level::Ok {
                assert!(
                    ahead.1.contains(&words("ahead of")) && behind.1.contains(&words("behind"))
                );
            }
        }
    }

    #[test]
    fn an_address_that_is_found_for_each_kind_of_socket_is_named_once() {
        let found = ["127.0.0.1", "::1", "127.0.0.1"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(distinct(found.into_iter()), found[..2]);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_beside_one_that_does_is_named_with_its_record() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let [ours, other] = ["127.0.0.1", "127.0.0.2"].map(|text| text.parse().unwrap());
        assert!(connected(ours, port).await.1.is_ok());
        let (_, refused) = connected(other, port).await;
        let (level, found, remedy) = unanswered(other, port, &refused.unwrap_err(), true);
        assert_eq!(level, Level::Fail);
        assert!(found.starts_with("the A record 127.0.0.2 does not answer on port "), "{found}");
        assert!(remedy.contains("0.0.0.0"), "{remedy}");
    }

    #[test]
    fn an_address_without_a_route_from_this_machine_is_no_fault_of_the_server() {
        let address = "2001:db8::1".parse().unwrap();
        for (kind, level, advice) in [
            (ErrorKind::NetworkUnreachable, Level::Warn, "no route"),
            (ErrorKind::ConnectionRefused, Level::Fail, "listen on [::]"),
        ] {
            let (found_level, found, remedy) = unanswered(address, 443, &kind.into(), true);
            assert_eq!(found_level, level);
            assert!(found.starts_with("the AAAA record 2001:db8::1 does not answer"), "{found}");
            assert!(remedy.contains(advice), "{remedy}");
        }
    }

    #[test]
    fn a_certificate_that_ends_soon_is_warned_of() {
        let day = 24 * 60 * 60 * 1000;
        let valid = Validity { begins: Time(0), expires: Time(90 * day) };
        for (now, level, left) in [
            (Time(100 * day), Level::Warn, "less than a minute"),
            (Time(76 * day), Level::Warn, "14 days"),
            (Time(76 * day - 1), Level::Ok, "14 days"),
            (Time(75 * day), Level::Ok, "15 days"),
        ] {
            let (found_level, found, _) = ends(valid, now);
            assert_eq!((found_level, found), (level, format!("it ends in {left}")));
        }
        let later = Validity { begins: Time(day), ..valid };
        assert_eq!([day - 1, day].map(|now| ends(later, Time(now)).0), [Level::Fail, Level::Ok]);
    }

    #[test]
    fn only_a_proxy_that_names_no_client_is_warned_of() {
        for (from, has_proxy, level, end) in [
            (ClientSource::Connection, true, Level::Warn, "of a trusted proxy"),
            (ClientSource::Connection, false, Level::Ok, "sees 192.0.2.1"),
            (ClientSource::Forwarded, true, Level::Ok, "by the proxy's X-Forwarded-For"),
            (ClientSource::Forwarded, false, Level::Ok, "by the proxy's X-Forwarded-For"),
        ] {
            let client = Client { address: [192, 0, 2, 1].into(), from };
            let (found_level, found, _) = seen(&client, has_proxy);
            assert_eq!(found_level, level, "{from:?} {has_proxy}");
            assert!(found.ends_with(end), "{found}");
        }
    }
}
