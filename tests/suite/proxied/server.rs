//! One server behind a proxy, with user agents, application servers and feed readers.

use std::pin::pin;

use futures_util::StreamExt;
use http_body_util::BodyExt;
use hyper::Method;

use super::{Kind, ProxiedServer, ProxyProcess, Sample};
use crate::feeds::FeedClient;
use crate::harness::{AT_ONCE, Agent, HttpClient, Raw, Sender, Signer, Socket, within};

/// Paths that are not for the public.
const INTERNAL_PATHS: [&str; 5] =
    ["/health", "/status", "/__heartbeat__", "/__lbheartbeat__", "/__version__"];

/// In place of the limits of the sample: one request, and none after it.
const REQUESTS_A_MINUTE: &str = "zone=kalends_requests:10m rate=1r/m";
const REQUESTS_BURST: &str = "limit_req zone=kalends_requests";

#[actix_web::test]
async fn pushes_pass_through_nginx_and_caddy() {
    for kind in Kind::ALL {
        println!("{kind:?}");
        let proxied_server = &ProxiedServer::start(kind).await;
        let ProxiedServer { proxy_process, .. } = proxied_server;
        let (sender, signer) = (Sender::new(), Signer::new());
        let mut agent = proxy_process.agent().await;
        let channel = agent.register().await;
        assert!(channel.endpoint.starts_with(&proxy_process.origin()), "{}", channel.endpoint);
        sender.push_to(&mut agent, &channel, "open").await;
        let channel = agent.register_for(&signer.key()).await;
        let push = sender.post(&channel.endpoint).ttl(60).signed(&signer, &proxy_process.origin());
        let (answer, got) = tokio::join!(push.body("signed").send(), agent.take(1));
        assert_eq!((answer.status, got[0].body()), (201, "signed"));
    }
}

#[actix_web::test]
async fn a_stored_message_is_deleted_or_delivered_through_nginx_and_caddy() {
    for kind in Kind::ALL {
        println!("{kind:?}");
        let proxied_server = &ProxiedServer::start(kind).await;
        let ProxiedServer { proxy_process, .. } = proxied_server;
        let sender = Sender::new();
        let mut agent = proxy_process.agent().await;
        let channel = agent.register().await;
        let uaid = agent.leave().await;
        let dropped = sender.push(&channel.endpoint, "dropped").await.location();
        sender.push(&channel.endpoint, "delivered").await;
        assert!(dropped.starts_with(&proxy_process.origin()), "{dropped}");
        assert_eq!(sender.delete(&dropped).await.status, 204);
        let socket =
            Socket::open_untimed(proxy_process.address()).await.expect("the proxy lets it in");
        let mut agent =
            Agent::hello(socket, Some(&uaid)).await.expect("the server answers the hello");
        assert_eq!(agent.uaid(), uaid);
        assert_eq!(agent.take(1).await[0].body(), "delivered");
    }
}

#[actix_web::test]
async fn oversized_requests_are_rejected_by_kalends_itself_behind_nginx_and_caddy() {
    for kind in Kind::ALL {
        println!("{kind:?}");
        let proxied_server = &ProxiedServer::start(kind).await;
        const LARGEST: usize = 4096;
        let mut agent = proxied_server.proxy_process.agent().await;
        let channel = agent.register().await;
        let sender = Sender::new();
        for bytes in [LARGEST + 1, 400_000] {
            let push = sender.post(&channel.endpoint).ttl(60).body("x".repeat(bytes));
            let output = push.send().await.assert_error(413, 104);
            assert!(output.contains(&LARGEST.to_string()), "{output}");
        }
        sender.push_to(&mut agent, &channel, &"x".repeat(LARGEST)).await;
    }
}

#[actix_web::test]
async fn a_feed_update_arrives_through_nginx_and_caddy_on_an_open_stream() {
    for kind in Kind::ALL {
        println!("{kind:?}");
        let proxied_server = &ProxiedServer::start(kind).await;
        let ProxiedServer { proxy_process, server } = proxied_server;
        let client = FeedClient::at(server, "prices");
        client.put("bread", "2.40").await;
        let url = format!("{}/v1/feeds/prices", proxy_process.origin());
        let (http, authorization) = (HttpClient::new(), client.authorization());
        let headers = [("authorization", authorization.as_str())];
        let stream = within(AT_ONCE, "a stream begins", http.events(&url, &headers)).await;
        let stream = stream.expect("the proxy answers");
        assert_eq!(stream.status(), 200);
        let stream = stream.into_body().into_data_stream();
        let (mut stream, mut read) = (pin!(stream), String::new());
        for price in ["2.40", "2.60", "2.80"] {
            // The first update precedes the stream.
            client.put("bread", price).await;
            while !read.contains(price) {
                let more = within(AT_ONCE, "an event arrives", stream.next()).await;
                let more = more.expect("the stream is open").expect("the stream is open");
                read.push_str(&String::from_utf8_lossy(&more));
            }
        }
    }
}

#[actix_web::test]
async fn a_stranger_behind_nginx_is_limited_and_another_address_is_not() {
    strangers_are_limited(Kind::Nginx).await;
    strangers_are_limited(Kind::OneServerNginx).await;
}

#[actix_web::test]
async fn a_stranger_behind_caddy_is_limited_and_another_address_is_not() {
    strangers_are_limited(Kind::Caddy).await;
    strangers_are_limited(Kind::OneServerCaddy).await;
}

async fn strangers_are_limited(kind: Kind) {
    let limits = ["--trusted-proxies=127.0.0.1", "--address-pushes-per-minute-max=3"];
    let proxied_server = ProxiedServer::start_with(kind, &limits, |sample| sample).await;
    strangers_are_limited_by(&proxied_server.proxy_process).await;
}

/// Pushes of an address are refused behind this proxy, whose server accepts three, and those of another are not.
pub(super) async fn strangers_are_limited_by(proxy_process: &ProxyProcess) {
    let (origin, proxy) = (proxy_process.origin(), proxy_process.address());
    let channel = proxy_process.agent().await.register().await;
    let path = channel.endpoint.strip_prefix(&origin).expect("endpoints begin with the proxy");
    let push = async |from: [u8; 4], forged: String| {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: {proxy}\r\nX-Forwarded-For: {forged}\r\n");
        let mut raw = Raw::open_from(from.into(), proxy).await;
        raw.write(format!("{head}TTL: 60\r\nContent-Length: 0\r\n\r\n")).await;
        raw.answer().await.status
    };
    let mut statuses = Vec::new();
    for nth in 0..10 {
        statuses.push(push([127, 0, 0, 2], format!("192.0.2.{nth}")).await);
    }
    assert_eq!(statuses[..3], [201; 3]);
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(push([127, 0, 0, 3], "127.0.0.2".to_owned()).await, 201);
}

#[actix_web::test]
async fn nginx_itself_answers_over_its_limits_as_kalends_does() {
    let change = |sample: Sample| {
        let sample = sample.replace("zone=kalends_requests:10m rate=2000r/s", REQUESTS_A_MINUTE);
        sample.replace("limit_req zone=kalends_requests burst=60000 nodelay", REQUESTS_BURST)
    };
    let ProxiedServer { proxy_process, .. } =
        &ProxiedServer::start_with(Kind::Nginx, &[], change).await;
    let sender = Sender::new();
    let push = async || {
        let push = sender.post(&format!("{}/wpush/nowhere", proxy_process.origin()));
        push.ttl(60).body("x").send().await
    };
    assert_eq!(push().await.status, 404);
    let refused = push().await;
    let text = refused.assert_error(429, 201);
    assert!(text.contains("too many requests of this address"), "{refused}");
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(refused.header("content-type"), Some("application/json"));
}

#[actix_web::test]
async fn nginx_counts_ipv6_addresses_by_their_first_56_bits() {
    // Each request names the address that nginx takes for its peer's.
    let change = |sample: Sample| {
        let site = "location = /site { return 200 $kalends_site; }\n\
                    set_real_ip_from 127.0.0.1;\nreal_ip_header X-Address;\n    # User agents.";
        sample.replace("# User agents.", site)
    };
    let ProxiedServer { proxy_process, .. } =
        &ProxiedServer::start_with(Kind::Nginx, &[], change).await;
    let (sender, url) = (Sender::new(), format!("{}/site", proxy_process.origin()));
    let site = async |address: &str| {
        let request = sender.request(Method::GET, &url).header("x-address", address);
        request.send().await.body.to_vec()
    };
    for (address, same, other) in [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("2001:db8:1:2ff::1", "2001:db8:1:200:ffff::", "2001:db8:1:300::1"),
        ("2001:db8:1:1234:5:6:7:8", "2001:db8:1:12ff::", "2001:db8:1:1134::"),
        ("2001:db8:1::1", "2001:db8:1:ff::1", "2001:db8:1:100::1"),
        ("2001:db8::1", "2001:db8::2", "2001:db8:0:100::1"),
    ] {
        let counted = site(address).await;
        assert_eq!(site(same).await, counted, "{address} {same}");
        assert_ne!(site(other).await, counted, "{address} {other}");
    }
}

#[actix_web::test]
async fn internal_paths_are_not_served_through_nginx_and_caddy() {
    for kind in Kind::ALL {
        println!("{kind:?}");
        let proxied_server = &ProxiedServer::start(kind).await;
        let ProxiedServer { proxy_process, server } = proxied_server;
        let sender = Sender::new();
        for path in INTERNAL_PATHS {
            let inside = sender.get(&format!("{}{path}", server.origin())).await;
            assert_eq!(inside.status, 200, "{inside}");
            let outside = sender.get(&format!("{}{path}", proxy_process.origin())).await;
            let body = String::from_utf8_lossy(&outside.body).into_owned();
            // Kalends' own 404 has a JSON body, and would mean that the proxy forwarded the request.
            assert!(outside.status == 404 && !body.contains("errno"), "{path}: {outside}");
        }
    }
}
