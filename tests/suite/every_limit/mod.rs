//! Each way into the server and each setting that is a limit: a test that reaches it, or a reason.

mod table;
mod ways;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use kalends::monitoring::table as metrics_table;
use kalends::settings::setting::Setting;
use serde_json::json;

use crate::harness::{AT_ONCE, Agent, Authority, Raw, Sender, Server, until};
use crate::metrics::scrape;
use crate::openapi::described;
use crate::standards;

use table::Cell::{self, Bytes, No, Refused, Tested};
use table::{ALL, BOUNDS, LIMITS, Limit, of_route};
use ways::{Family, Way, World};

#[test]
fn each_route_and_each_limit_has_its_cells() {
    for (path, methods) in described() {
        for method in methods {
            assert!(of_route(&method, &path).is_some(), "{method} {path} is no known way in");
        }
    }
    let driven = LIMITS.iter().map(|limit| limit.setting);
    let bounds = BOUNDS.iter().flat_map(|(_, settings)| *settings).copied();
    let known: Vec<&str> = driven.chain(bounds).collect();
    let names: BTreeSet<_> = known.iter().copied().collect();
    assert_eq!(names.len(), known.len(), "a limit is in one table once");
    let settings = Setting::all().map(|setting| setting.name).filter(|name| name.contains("_max"));
    let limits: BTreeSet<_> = settings.chain(metrics_table::LIMITS.iter().copied()).collect();
    assert_eq!(names, limits);
    let all: BTreeSet<_> = ALL.iter().flat_map(|ways| ways.iter()).copied().collect();
    for Limit { setting, cells, .. } in LIMITS {
        let ways: Vec<Way> = cells.iter().flat_map(|(ways, _)| ways.concat()).collect();
        assert_eq!(ways.iter().copied().collect::<BTreeSet<_>>(), all, "{setting}");
        assert_eq!(ways.len(), all.len(), "a way is in two cells of {setting}");
        for (_, cell) in *cells {
            match cell {
                Tested(test) => {
                    let exists =
                        ["suite", "kalends"].map(|of| standards::exists(&format!("{of} {test}")));
                    assert!(exists.contains(&true), "{setting}: there is no test {test}");
                }
                No(reason) => assert!(reason.contains(' '), "{setting}: {reason} is no reason"),
                Refused(_) | Bytes(..) => {}
            }
        }
    }
}

/// The count of a limit, if it has one. That of user agents has all of "Waiting messages".
async fn refusals(world: &World, setting: &str) -> Option<f64> {
    let is_waiting = setting.starts_with("user_") || setting.starts_with("channel_");
    let counter = if is_waiting { "user_messages_max" } else { setting };
    scrape(&world.server)
        .await
        .get(&format!("kalends_limit_refusals_total{{limit=\"{counter}\"}}"))
        .copied()
}

async fn drive(limits: impl Fn(&str) -> bool) {
    for Limit { setting, value, cells } in LIMITS.iter().filter(|limit| limits(limit.setting)) {
        let is_driven = |(_, cell): &&(_, Cell)| matches!(cell, Refused(_) | Bytes(..));
        if !cells.iter().any(|cell| is_driven(&cell)) {
            continue;
        }
        let world = World::start(setting, value);
        let families =
            if setting.starts_with("address_") { &Family::ALL[..] } else { &Family::ALL[..1] };
        for (ways, cell) in cells.iter().filter(is_driven) {
            for (way, family) in
                ways.concat().iter().flat_map(|way| families.iter().map(move |of| (*way, *of)))
            {
                reaches(&world, (*setting, way, family), cell).await;
            }
        }
    }
}

/// Asks until a limit refuses, which is counted once and concerns no other sender.
async fn reaches(world: &World, (setting, way, family): (&str, Way, Family), cell: &Cell) {
    const MANY: usize = 1000;
    let (size, allowed, expected) = match cell {
        Refused(expected) => (60, 60, *expected),
        Bytes(bytes, expected) => (bytes + 1, *bytes, *expected),
        Tested(_) | No(_) => return,
    };
    let what = format!("{setting} by {way:?} of {family:?}");
    let before = refusals(world, setting).await;
    let mut asker = world.asker(way, family, size).await;
    let mut refused = None;
    for passed in 0..MANY {
        if let Err(refusal) = asker.ask().await {
            refused = Some((passed, refusal));
            break;
        }
    }
    let (passed, refusal) = refused.unwrap_or_else(|| panic!("{MANY} passed: {what}"));
    assert_eq!(refusal, expected, "{what}");
    let passes = if matches!(cell, Bytes(..)) { passed == 0 } else { passed > 0 };
    assert!(passes, "{passed} passed: {what}");
    let counted = refusals(world, setting).await;
    assert_eq!(counted, before.map(|before| before + 1.0), "{what}");
    let mut other = world.asker(way, family, allowed).await;
    assert_eq!(other.ask().await, Ok(()), "another asker: {what}");
}

#[actix_web::test]
async fn each_limit_by_address_is_reached_by_each_way_and_refuses_no_other() {
    drive(|setting| setting.starts_with("address_")).await;
}

#[actix_web::test]
async fn each_limit_by_sender_is_reached_by_each_way_and_refuses_no_other() {
    drive(|setting| setting.ends_with("_per_minute_max") && !setting.starts_with("address_")).await;
}

#[actix_web::test]
async fn each_limit_of_a_number_or_a_size_is_reached_by_each_way_and_refuses_no_other() {
    drive(|setting| !setting.ends_with("_per_minute_max") && !setting.starts_with("address_"))
        .await;
}

#[actix_web::test]
async fn a_push_by_each_way_is_kept_no_longer_than_the_limit() {
    let (server, uaid, channel) = Server::with_offline(&["--ttl-max-s=0"]).await;
    let sender = Sender::new();
    let pushed = sender.post(&channel.endpoint).ttl(60).body("x").send().await;
    assert_eq!((pushed.status, pushed.header("ttl")), (201, Some("0")));
    let devices = json!([{"app_id": "a", "pushkey": channel.endpoint}]);
    let body = json!({"notification": {"event_id": "$e", "devices": devices}}).to_string();
    let notify = sender.post(&format!("{}/_matrix/push/v1/notify", server.origin()));
    assert_eq!(notify.raw_body(body).send().await.status, 200);
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.pending_notifications().await, []);
}

#[actix_web::test]
async fn a_handshake_is_refused_while_no_further_agent_may_connect() {
    let server = Server::start_with(&["--connects-per-second-max=1"]);
    until(AT_ONCE, "a handshake is refused", async || {
        // Its hello is charged, unless the handshake was refused.
        let refused = Agent::try_new(&server).await.is_err();
        let mut raw = Raw::open(&server).await;
        raw.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n").await;
        let answer = raw.answer().await;
        assert!(refused || [101, 503].contains(&answer.status), "{answer}");
        answer.status == 503 && answer.header("retry-after").is_some()
    })
    .await;
}

#[actix_web::test]
async fn each_peer_of_a_port_for_both_families_has_limits_of_its_own() {
    // Of more than the limits, so that one peer alone reaches them.
    const TRIES: usize = 40;
    let authority = Authority::new();
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let mut launch = authority.launch().with(&[
        "--loopback-limited=true",
        "--address-handshakes-per-minute-max=10",
        &format!("--http-listen={both}"),
        "--metrics-listen=127.0.0.1:0",
    ]);
    launch.port = Some(both);
    let server = Server::launch(launch);
    let line = server.logged("listening for http, to redirect it").await;
    let line: serde_json::Value = serde_json::from_str(&line).expect("the log is JSON");
    let plain: SocketAddr =
        line["address"].as_str().expect("an address").parse().expect("an address");
    let before = scrape(&server).await;
    for (port, limit) in [
        (server.address().port(), "address_handshakes_per_minute_max"),
        (plain.port(), "http_listen"),
    ] {
        let name = format!("kalends_limit_refusals_total{{limit=\"{limit}\"}}");
        let mut refused = before[&name];
        for peer in [
            Ipv4Addr::new(127, 0, 0, 2).into(),
            Ipv4Addr::new(127, 0, 0, 3).into(),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ] {
            let to = if peer.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { peer };
            let mut open = Vec::new();
            for _ in 0..TRIES {
                open.push(Raw::open_from(peer, SocketAddr::new(to, port)).await);
                if open.len() == 1 {
                    // The first one of a peer is served, whatever another has used up.
                    let raw = &mut open[0];
                    raw.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
                    assert!(raw.is_answered().await, "{limit} of {peer}");
                }
            }
            until(AT_ONCE, "further ones are refused and counted", async || {
                scrape(&server).await[&name] > refused
            })
            .await;
            drop(open);
            until(AT_ONCE, "all are counted", async || {
                let counted = scrape(&server).await[&name];
                std::mem::replace(&mut refused, counted) == counted
            })
            .await;
        }
    }
}
