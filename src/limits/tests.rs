use actors::Admission;
use slog::{Discard, o};
use state_machine::{Span, Time};

use super::*;
use crate::system::networks::Networks;

const NOW: Time = Time(1_000_000);
const A: Uaid = Uaid([1; 16]);
const B: Uaid = Uaid([2; 16]);
const CHID: Chid = Chid([3; 16]);
const OTHER_CHID: Chid = Chid([4; 16]);

/// The limits on a clock that a test moves.
struct Limited(Arc<Limits>, Clock);

impl Limited {
    fn by(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        change(&mut settings);
        let clock = Clock::starting_at(NOW);
        clock.set(NOW);
        let limits = Limits::new(&settings, clock.clone(), Logger::root(Discard, o!()));
        Self(limits, clock)
    }

    /// Checks that three requests pass, no fourth one does, and one more does 30 s later. Real time passes too.
    fn admits_three_a_minute(&self, admits: impl Fn(&Limits) -> bool) {
        let now = self.1.now();
        let passing = || (0..10).filter(|_| admits(&self.0)).count();
        assert_eq!(passing(), 3);
        self.1.set(now + Span(10_000));
        assert_eq!(passing(), 0);
        self.1.set(now + Span(30_000));
        assert_eq!(passing(), 1);
        self.1.set(now + Span(600_000));
        assert_eq!(passing(), 3);
    }

    fn agent(&self, address: &str) -> Box<dyn Admission> {
        self.0.of_agent(None, ip(address)).expect("the address has few connections")
    }
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn a_subscription_gets_so_many_pushes_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.subscription_pushes_per_minute_max = 3);
    limited.admits_three_a_minute(|limits| limits.push_to(A, CHID, None).is_ok());
    for (uaid, chid) in [(A, OTHER_CHID), (B, CHID)] {
        limited.admits_three_a_minute(|limits| limits.push_to(uaid, chid, None).is_ok());
    }
}

#[test]
fn a_vapid_key_sends_so_many_pushes_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.vapid_key_pushes_per_minute_max = 3);
    for key in [[1; 32], [2; 32]] {
        limited.admits_three_a_minute(|limits| limits.push_to(A, CHID, Some(key)).is_ok());
    }
    assert!((0..100).all(|_| limited.0.push_to(A, CHID, None).is_ok()), "no key, no limit");
}

#[test]
fn an_address_sends_so_many_pushes_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.address_pushes_per_minute_max = 3);
    for address in [ip("192.0.2.1"), ip("192.0.2.2")] {
        limited.admits_three_a_minute(|limits| limits.push_from(address).is_ok());
    }
    assert!((0..100).all(|_| limited.0.push_from(None).is_ok()), "no address, no limit");
}

#[test]
fn an_address_connects_so_often_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.address_connects_per_minute_max = 3);
    for address in [ip("192.0.2.1"), ip("192.0.2.2")] {
        limited.admits_three_a_minute(|limits| limits.connect_from(address).is_ok());
    }
}

#[test]
fn an_address_makes_so_many_handshakes_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| {
        settings.address_handshakes_per_minute_max = 3;
        settings.trusted_proxies = Networks::parse("10.0.0.0/8").unwrap();
    });
    for peer in ["192.0.2.1:1000", "192.0.2.2:1000", "[2001:db8::1]:1000"] {
        let peer = Some(peer.parse().unwrap());
        limited.admits_three_a_minute(|_| limited.0.open_connection(peer, true).is_ok());
    }
    for peer in ["10.0.0.1:1000", "127.0.0.1:1000"] {
        let peer = Some(peer.parse().unwrap());
        let open = |_| limited.0.open_connection(peer, true).is_ok();
        assert!((0..100).all(open), "{peer:?} has no limit");
    }
}

#[test]
fn an_address_has_few_connections_without_tls_and_another_is_unaffected() {
    let limited = Limited::by(|_| ());
    let open = |peer: &str| {
        let peer = Some(peer.parse().unwrap());
        (0..100).map_while(|_| limited.0.open_plain_connection(peer).ok()).collect::<Vec<_>>()
    };
    for peer in ["192.0.2.1:1000", "192.0.2.2:1000"] {
        let mut connections = open(peer);
        assert_eq!(connections.len(), PLAIN_CONNECTIONS_MAX);
        connections.pop();
        assert_eq!(open(peer).len(), 1);
    }
    assert_eq!(open("127.0.0.1:1000").len(), 100, "loopback has no limit");
    let refused = limited.0.refused().find(|(name, _)| *name == "http_listen");
    assert_eq!(refused, Some(("http_listen", 4)));
}

#[test]
fn an_address_has_so_many_open_connections_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.address_connections_max = 3);
    let open =
        |address| (0..10).filter_map(|_| limited.0.of_agent(None, address)).collect::<Vec<_>>();
    for address in [ip("192.0.2.1"), ip("192.0.2.2")] {
        let mut connections = open(address);
        assert_eq!(connections.len(), 3);
        connections.pop();
        assert_eq!(open(address).len(), 1);
    }
    assert_eq!(open(None).len(), 10, "no address, no limit");
}

/// Opens up to ten connections of a peer.
fn opened(limited: &Limited, peer: &str) -> Vec<Admitted<PublicConnection>> {
    let peer = Some(peer.parse().unwrap());
    (0..10).filter_map(|_| limited.0.open_connection(peer, false).ok()).collect()
}

#[test]
fn all_connections_of_an_address_count_together() {
    let limited = Limited::by(|settings| {
        settings.address_connections_max = 3;
        settings.trusted_proxies = Networks::parse("10.0.0.0/8").unwrap();
    });
    for [peer, same] in [
        ["192.0.2.1:1", "[::ffff:192.0.2.1]:2"],
        ["[::ffff:192.0.2.2]:1", "192.0.2.2:2"],
        ["[2001:db8:1:200::1]:1", "[2001:db8:1:2ff::1]:2"],
    ] {
        let mut connections = opened(&limited, peer);
        assert_eq!((connections.len(), opened(&limited, same).len()), (3, 0), "{peer}");
        // One that becomes a WebSocket counts once.
        let same_peer = Some(same.parse().unwrap());
        let address = limited.0.addresses.of_connection(same_peer);
        let agents: Vec<_> =
            (0..3).filter_map(|_| limited.0.of_agent(same_peer, address)).collect();
        assert_eq!(agents.len(), 3);
        drop(agents);
        assert_eq!(opened(&limited, same).len(), 0, "the connections are still open");
        connections.pop();
        assert_eq!(opened(&limited, same).len(), 1, "{peer}");
    }
    let refused = limited.0.refused().find(|(name, _)| *name == "address_connections_max");
    assert_eq!(refused, Some(("address_connections_max", 3 * (7 + 10 + 10 + 9))));
}

#[test]
fn a_trusted_proxy_has_many_connections_and_each_of_its_clients_few_websockets() {
    let limited = Limited::by(|settings| {
        settings.address_connections_max = 3;
        settings.trusted_proxies = Networks::parse("10.0.0.0/8").unwrap();
    });
    let of_proxy = opened(&limited, "10.0.0.1:1");
    assert_eq!((of_proxy.len(), opened(&limited, "127.0.0.1:1").len()), (10, 10));
    let proxy = Some("10.0.0.1:1".parse().unwrap());
    let agents = |address| {
        (0..10).filter_map(|_| limited.0.of_agent(proxy, ip(address))).collect::<Vec<_>>()
    };
    let of_client = agents("192.0.2.1");
    assert_eq!((of_client.len(), agents("192.0.2.2").len()), (3, 3));
    // The client is the same one without the proxy.
    assert_eq!(opened(&limited, "192.0.2.1:1").len(), 0);
    drop(of_client);
    assert_eq!(opened(&limited, "192.0.2.1:1").len(), 3);
}

#[test]
fn a_peer_that_is_not_admitted_is_told_why() {
    let limited = Limited::by(|settings| {
        (settings.connections_max, settings.workers) = (4, 1);
        settings.address_connections_max = 3;
        settings.address_handshakes_per_minute_max = 4;
    });
    let answer = |peer: &str, makes_handshake| {
        let opened = limited.0.open_connection(Some(peer.parse().unwrap()), makes_handshake);
        opened.err().map(|NotAdmitted(answer)| answer.unwrap_or_default())
    };
    let starts = |answer: Option<String>, line: &str| {
        let answer = answer.expect("it is not admitted");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(line) && head.contains("retry-after: 60"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["errno"], 201);
    };
    let open = opened(&limited, "192.0.2.1:1");
    assert_eq!(open.len(), 3);
    starts(answer("192.0.2.1:1", false), "HTTP/1.1 429 Too Many Requests\r\n");
    let _last = opened(&limited, "192.0.2.2:1");
    starts(answer("192.0.2.3:1", false), "HTTP/1.1 503 Service Unavailable\r\n");
    drop(open);
    let handshakes: Vec<_> = (0..5).map(|_| answer("192.0.2.4:1", true)).collect();
    assert_eq!(handshakes, [None, None, None, None, Some(String::new())]);
}

#[test]
fn a_full_port_is_counted_until_a_connection_closes_and_admits_an_operator() {
    let limited = Limited::by(|settings| {
        (settings.connections_max, settings.workers) = (3, 2);
        settings.router_connections_max = 3;
    });
    let state = |connections, times_full| PortState { connections, connections_max: 4, times_full };
    let mut open: Vec<_> = (0..3).map(|_| limited.0.open_router_connection()).collect();
    assert_eq!(limited.0.port_state(PortName::Router), state(3, 0));
    open.push(limited.0.open_router_connection());
    assert_eq!(limited.0.port_state(PortName::Router), state(4, 1));
    open.truncate(1);
    assert_eq!(limited.0.port_state(PortName::Router), state(1, 1));

    let mut open = opened(&limited, "192.0.2.1:1");
    assert_eq!(open.len(), 4);
    assert_eq!(limited.0.port_state(PortName::Public), state(4, 7));
    let operators = opened(&limited, "127.0.0.1:1");
    assert_eq!(operators.len(), OPERATOR_CONNECTIONS_MAX);
    for stranger in ["127.0.0.2:1", "192.0.2.2:1", "[2001:db8::1]:1"] {
        assert_eq!(opened(&limited, stranger).len(), 0, "{stranger}");
    }
    drop(operators);
    open.truncate(1);
    assert_eq!(limited.0.port_state(PortName::Public).connections, 1);
    assert_eq!(opened(&limited, "192.0.2.2:1").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_make_room_before_the_port_is_full() {
    let limited = Limited::by(|settings| (settings.connections_max, settings.workers) = (20, 1));
    let few = opened(&limited, "192.0.2.1:1");
    let many = opened(&limited, "192.0.2.2:1");
    let is_closing = |all: &[Admitted<PublicConnection>]| {
        all.iter().filter(|open| open.usage.is_closing()).count()
    };
    let exempt = opened(&limited, "127.0.0.1:1");
    assert_eq!((few.len(), many.len(), exempt.len()), (10, 10, 8));
    // 18 were the first that are near, and 17 is the number to come to.
    assert_eq!((is_closing(&few) + is_closing(&many), is_closing(&exempt)), (1, 0));
    assert_eq!(limited.0.idle_closed(), 1);
    limited.1.set(NOW + Span(200));
    drop(opened(&limited, "192.0.2.3:1"));
    assert_eq!(limited.0.idle_closed(), 28 - 18 + 1);
}

#[test]
fn an_address_has_so_many_new_agents_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.address_new_agents_per_minute_max = 3);
    for address in ["192.0.2.1", "192.0.2.2"] {
        limited.admits_three_a_minute(|_| limited.agent(address).new_agent());
    }
    assert!((0..700).all(|_| limited.0.of_agent(None, None).unwrap().new_agent()));
}

#[test]
fn an_address_registers_so_many_channels_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.address_registers_per_minute_max = 3);
    for address in ["192.0.2.1", "192.0.2.2"] {
        limited.admits_three_a_minute(|_| limited.agent(address).register(A));
    }
}

#[test]
fn an_agent_registers_so_many_channels_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.agent_registers_per_minute_max = 3);
    for uaid in [A, B] {
        limited.admits_three_a_minute(|_| limited.agent("192.0.2.1").register(uaid));
    }
}

#[test]
fn an_agent_connects_so_often_a_minute_and_another_is_unaffected() {
    let limited = Limited::by(|settings| settings.agent_hellos_per_minute_max = 3);
    for uaid in [A, B] {
        limited.admits_three_a_minute(|_| limited.agent("192.0.2.1").hello(Some(uaid)).is_ok());
    }
    let refused = (0..10).find_map(|_| limited.agent("192.0.2.1").hello(Some(A)).err());
    assert_eq!(refused, Some(CloseReason::TooManyHellos));
    assert!((0..100).all(|_| limited.agent("192.0.2.1").hello(None).is_ok()));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_connects_too_often_takes_no_place_of_others() {
    let limited = Limited::by(|settings| {
        settings.agent_hellos_per_minute_max = 1;
        settings.connects_per_second_max = 4;
    });
    let refused = |uaid| limited.agent("192.0.2.1").hello(uaid).err();
    assert_eq!(refused(Some(A)), None);
    assert!((0..10).all(|_| refused(Some(A)) == Some(CloseReason::TooManyHellos)));
    assert_eq!(refused(None), None);
    assert_eq!(refused(None), Some(CloseReason::TooManyConnects));
    assert_eq!(refused(Some(B)), None);
    assert!(limited.0.has_room_for_connect());
}

#[test]
fn a_limit_of_zero_is_off() {
    let limited = Limited::by(|settings| {
        settings.subscription_pushes_per_minute_max = 0;
        settings.vapid_key_pushes_per_minute_max = 0;
        settings.address_pushes_per_minute_max = 0;
        settings.address_connects_per_minute_max = 0;
        settings.address_connections_max = 0;
        settings.address_new_agents_per_minute_max = 0;
        settings.address_registers_per_minute_max = 0;
        settings.agent_registers_per_minute_max = 0;
        settings.agent_hellos_per_minute_max = 0;
        settings.connects_per_second_max = 0;
    });
    let (address, key) = (ip("192.0.2.1"), Some([1; 32]));
    let mut open = Vec::new();
    for _ in 0..5000 {
        assert_eq!(limited.0.push_from(address), Ok(()));
        assert_eq!(limited.0.push_to(A, CHID, key), Ok(()));
        assert_eq!(limited.0.connect_from(address), Ok(()));
        let agent = limited.0.of_agent(None, address).unwrap();
        assert!(agent.new_agent() && agent.register(A) && agent.hello(Some(A)).is_ok());
        open.push(agent);
    }
    assert_eq!(limited.0.refused().map(|(_, refused)| refused).sum::<u64>(), 0);
}

#[test]
fn the_defaults_let_large_honest_senders_through() {
    let limited = Limited::by(|_| {});
    let address = ip("192.0.2.1");
    for push in 0..20_000u32 {
        let chid = Chid(u128::from(push / 1000).to_be_bytes());
        assert_eq!(limited.0.push_from(address), Ok(()));
        assert_eq!(limited.0.push_to(A, chid, Some([1; 32])), Ok(()));
    }
    for agent in 0..500u16 {
        assert_eq!(limited.0.connect_from(address), Ok(()));
        let uaid = Uaid(u128::from(agent).to_be_bytes());
        let agent = limited.0.of_agent(None, address).unwrap();
        assert!(agent.hello(None).is_ok() && agent.register(uaid));
    }
    assert!((0..60).all(|_| limited.agent("192.0.2.1").new_agent()));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_sender_the_quota_and_the_wait() {
    let limited = Limited::by(|settings| settings.subscription_pushes_per_minute_max = 7);
    let refused = (0..9).find_map(|_| limited.0.push_to(A, CHID, None).err()).unwrap();
    assert_eq!((refused.policy, refused.per_minute), ("subscription", 7));
    assert_eq!(refused.retry_after_s(), 9);
    assert_eq!(refused.to_string(), "too many requests of this subscription: try again after 9 s");
    for (policy, who) in [("vapid-key", "VAPID key"), ("user-agent", "user agent")] {
        let refused = OverLimit { policy, ..refused };
        assert!(refused.to_string().starts_with(&format!("too many requests of this {who}: ")));
    }
    let refused: Vec<_> = limited.0.refused().filter(|(_, refused)| *refused > 0).collect();
    assert_eq!(refused, [("subscription_pushes_per_minute_max", 1)]);
}
