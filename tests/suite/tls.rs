//! TLS on the public port: real clients, slow and hostile peers, and certificates that change.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use actix_web::rt::time::timeout;
use futures_util::future::{join, join_all};
use futures_util::{SinkExt, StreamExt};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::{AT_ONCE, Authority, Program, Server, child, kalends, run, until};
use crate::metrics::scrape;

/// Resident memory of an idle agent over TLS, in KiB, half as much again as when this was written.
const KIB_OF_AGENT_MAX: f64 = 8.0;

const DAY_S: u64 = 24 * 60 * 60;

#[actix_web::test]
async fn commands_subscribe_and_push_over_tls() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let mut agent = authority.agent(&server).await;
    let endpoint = agent.register().await;
    assert!(endpoint.starts_with(&format!("https://{}/wpush/", server.address())), "{endpoint}");
    let push = ["--http1.1", "--request", "POST", &endpoint];
    let status = authority.push(&push);
    let (status, push) = tokio::join!(status, async {
        let push = agent.receive().await;
        let ack = json!({"messageType": "ack", "updates": [{"channelID": push["channelID"], "version": push["version"]}]});
        agent.send(&ack).await;
        push
    });
    assert_eq!((status.as_str(), &push["messageType"]), ("201 1.1", &json!("notification")));
    // On this machine the certificate is not verified: it names the public domain.
    let url = format!("https://{}/", server.address());
    let health = run(&["health", "--url", &url]).await.succeeded();
    assert_eq!(health.trim(), "healthy, user agents: 1");
    let mut subscribe =
        kalends(&["subscribe", &format!("wss://{}/", server.address()), "--count", "1"]);
    subscribe.env("SSL_CERT_FILE", authority.path("ca.pem"));
    let subscribed = Program::start(subscribe);
    until(AT_ONCE, "the command is connected", async || {
        let health = authority.curl(&[&format!("https://{}/health", server.address())]).await;
        serde_json::from_str::<Value>(&health).unwrap()["connections"] == 2
    })
    .await;
    subscribed.kill().await;
}

#[actix_web::test]
async fn a_sender_pushes_over_http2_and_many_at_once_on_one_connection() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let endpoint = authority.agent(&server).await.register().await;
    let file = authority.path("body");
    let body = format!("@{}", file.display());
    let encoding = "Content-Encoding: aes128gcm";
    let push = ["--http2", "--header", encoding, "--data-binary", &body, &endpoint];
    // The sender of a refused body learns the status, even if it is still sending when the server refuses it.
    for (bytes, printed) in
        [(4096, "201 2"), (4097, "413 2"), (60_000, "413 2"), (900_000, "413 2")]
    {
        fs::write(&file, "x".repeat(bytes)).unwrap();
        assert_eq!(authority.push(&push).await, printed);
    }
    let version = format!("https://{}/__version__?[1-300]", server.address());
    let arguments =
        ["--http2", "--parallel", "--write-out", "\n%{http_code} %{num_connects}\n", &version];
    let answers = authority.curl(&arguments).await;
    assert_eq!(answers.lines().filter(|line| line.starts_with("200 ")).count(), 300, "{answers}");
    let connects = answers.lines().filter(|line| *line == "200 1").count();
    assert!(connects < 10, "{connects} connections");
    let health =
        authority.curl(&["--http2", &format!("https://{}/health", server.address())]).await;
    assert!(health.contains("\"connections\""), "{health}");
}

#[actix_web::test]
async fn a_hundred_pushes_at_once_on_one_connection_are_accepted() {
    const PUSHES: usize = 100;
    let authority = Authority::new();
    let server = authority.server(&[]);
    let mut agent = authority.agent(&server).await;
    let endpoint = agent.register().await;
    let stream = authority.connect_as(&server, &["h2"]).await;
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = actix_web::rt::spawn(connection);
    let push = async || {
        let push = hyper::Request::post(&endpoint).header("ttl", "60").body(()).unwrap();
        let mut send = send.clone().ready().await.unwrap();
        let (answer, _) = send.send_request(push, true).unwrap();
        answer.await.unwrap().status().as_u16()
    };
    // Before its first answer a client of h2 assumes that it may have as many streams.
    let pushes = join_all((0..PUSHES).map(async |_| push().await));
    let receiving = async {
        for _ in 0..PUSHES {
            let push = agent.receive().await;
            let update = json!({"channelID": push["channelID"], "version": push["version"]});
            agent.send(&json!({"messageType": "ack", "updates": [update]})).await;
        }
    };
    let (answers, ()) = timeout(AT_ONCE, join(pushes, receiving)).await.unwrap();
    assert_eq!(answers, [201; PUSHES]);
    connection.abort();
}

#[actix_web::test]
async fn errors_and_preflights_over_http2_are_those_of_http_1() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let endpoint = authority.agent(&server).await.register().await;
    let of = |path: &str| format!("https://{}{path}", server.address());
    let (health, nothing) = (of("/health"), of("/nothing"));
    let options = ["allow: GET, HEAD, POST, OPTIONS", "access-control-max-age: 86400"];
    for (arguments, url, status, headers, errno) in [
        (&[][..], &nothing, 404, &[][..], Some(117)),
        (&["--data", "x"], &health, 405, &["allow: GET, HEAD, OPTIONS"], Some(999)),
        (&["--data", "x"], &endpoint, 400, &["access-control-allow-origin: *"], Some(111)),
        (&["--head"], &health, 200, &["content-type: application/json"], None),
        (&["--head"], &nothing, 404, &["content-type: application/json"], None),
        (&["--request", "OPTIONS"], &endpoint, 204, &options, None),
    ] {
        let id = "x-request-id: of.a_proxy-7";
        let printed = ["--http2", "--include", "--header", id];
        let answer = authority.curl(&[&printed, arguments, &[url]].concat()).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head ends");
        assert!(head.starts_with(&format!("HTTP/2 {status} ")), "{answer}");
        for header in headers.iter().chain([&id]) {
            assert!(head.contains(&format!("\r\n{header}")), "{header}: {answer}");
        }
        let json = serde_json::from_str::<Value>(body).ok();
        let found = json.map(|json| (json["code"].as_u64(), json["errno"].as_u64()));
        assert_eq!(found, errno.map(|errno| (Some(status), Some(errno))), "{answer}");
    }
}

#[actix_web::test]
async fn frames_larger_than_a_tls_record_arrive_and_more_than_the_limit_close_the_connection() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let mut agent = authority.agent(&server).await;
    let chid = "deadbeef-0000-4000-8000-000000000000";
    let large =
        json!({"messageType": "register", "channelID": chid, "padding": "x".repeat(60_000)});
    assert_eq!(agent.ask(&large).await["status"], 200);
    agent.send(&json!({"messageType": "x".repeat(70_000)})).await;
    let closed = timeout(AT_ONCE, agent.0.next()).await.unwrap();
    assert!(matches!(closed, Some(Ok(Message::Close(_)) | Err(_)) | None), "{closed:?}");
}

#[actix_web::test]
async fn peers_that_send_nothing_or_garbage_instead_of_a_handshake_are_disconnected() {
    let authority = Authority::new();
    let server = authority.server(&["--tls-handshake-timeout-ms", "300"]);
    for sent in ["", "\x16\x03\x01", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(AT_ONCE, stream.read_to_end(&mut rest)).await.unwrap();
        assert!(!rest.starts_with(b"HTTP"), "{sent}");
    }
    server.logged("TLS handshakes failed").await;
    authority.agent(&server).await.register().await;
}

#[actix_web::test]
async fn an_agent_that_does_not_read_is_not_read_either_and_others_are_served() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let mut slow = authority.agent(&server).await;
    let mut other = authority.agent(&server).await;
    let before = server.memory_kib();
    // Each is answered, so the answers fill every buffer between the two, and then the server stops reading.
    let question =
        json!({"messageType": "unregister", "channelID": "deadbeef-0000-4000-8000-000000000000"});
    let mut sent = 0;
    while sent < 500_000 {
        let send = slow.0.send(Message::text(question.to_string()));
        if timeout(Duration::from_millis(1500), send).await.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < 500_000, "the server reads on");
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB for one peer");
    other.register().await;
}

#[actix_web::test]
async fn a_stopping_server_ends_its_connections_with_a_close_frame_and_the_end_of_tls() {
    let authority = Authority::new();
    let mut server = authority.server(&[]);
    let mut agent = authority.agent(&server).await;
    server.signal("TERM");
    let close = timeout(AT_ONCE, agent.0.next()).await.unwrap();
    assert!(matches!(close, Some(Ok(Message::Close(_)))), "{close:?}");
    // Without the alert of the end rustls returns an error here.
    let mut rest = Vec::new();
    timeout(AT_ONCE, agent.0.get_mut().read_to_end(&mut rest)).await.unwrap().unwrap();
    drop(agent);
    assert!(server.ended_within(AT_ONCE).await.success());
}

#[actix_web::test]
async fn a_new_certificate_is_used_at_once_after_a_signal_and_a_bad_one_never() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let presented = async || {
        let stream = authority.connect(&server).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let mut agent = authority.agent(&server).await;
    let first = presented().await;
    let second = authority.issue();
    server.signal("HUP");
    until(AT_ONCE, "the new certificate is presented", async || presented().await == second).await;
    assert_ne!(first, second);
    fs::write(authority.path("pair.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    server.signal("HUP");
    server.logged("the new certificate cannot be used, the one before stays in use").await;
    assert_eq!(presented().await, second);
    agent.register().await;
}

#[actix_web::test]
async fn a_server_is_unhealthy_once_its_certificate_has_ended() {
    let authority = Authority::new();
    authority.issue_for(Duration::from_secs(8));
    let server = authority.server(&[]);
    let health = async || run(&["health", &format!("--url=https://{}", server.address())]).await;
    assert!(health().await.succeeded().starts_with("healthy"));
    until(Duration::from_secs(30), "the certificate ends", async || health().await.code != Some(0))
        .await;
    health().await.failed(1, "answers 503: certificate");
}

#[actix_web::test]
async fn a_server_does_not_start_with_a_pair_that_cannot_be_used() {
    let authority = Authority::new();
    fs::write(authority.path("pair.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let refused = Server::try_launch(authority.launch()).err().unwrap().to_string();
    assert!(refused.contains("does not fit the key"), "{refused}");
    let certificate = authority.path("pair.pem").display().to_string();
    let alone = run(&["serve", "--tls-certificate", &certificate]).await;
    alone.failed(2, "tls_certificate is set, and tls_key is not");
}

#[actix_web::test]
async fn http2_bounds_the_streams_headers_and_resets_of_a_connection() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let url = format!("https://{}/__version__", server.address());
    let request = |padding: usize| {
        let request = hyper::Request::get(&url).header("padding", "x".repeat(padding));
        request.body(()).unwrap()
    };
    let stream = authority.connect_as(&server, &["h2"]).await;
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = actix_web::rt::spawn(connection);
    let mut send = send.ready().await.unwrap();
    let (answer, _) = send.send_request(request(8000), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    assert_eq!(send.current_max_send_streams(), 100);
    let (answer, _) = send.send_request(request(20_000), true).unwrap();
    assert!(answer.await.is_ok_and(|answer| answer.status() == 431), "large headers are refused");
    let before = server.memory_kib();
    for _ in 0..20_000 {
        // The server may end the connection.
        let Ok(ready) = send.clone().ready().await else { break };
        send = ready;
        let Ok((_, mut body)) = send.send_request(request(10), false) else { break };
        body.send_reset(h2::Reason::CANCEL);
    }
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB for one peer");
    authority.agent(&server).await.register().await;
    drop(send);
    connection.abort();
}

#[actix_web::test]
async fn an_idle_agent_over_tls_takes_little_memory() {
    let authority = Authority::new();
    let mut launch = authority.launch().with(&["--workers", "1"]);
    // Huge pages would count memory that no agent uses.
    launch.variables.push(("MIMALLOC_ALLOW_THP", "0".to_owned()));
    let server = Server::launch(launch);
    let mut agents = Vec::new();
    let mut connect = async |connected: usize| {
        while agents.len() < connected {
            agents.push(authority.agent(&server).await);
        }
        server.memory_kib() as f64
    };
    let few = connect(400).await;
    connect(1600).await;
    // The last handshakes give their memory back a moment later.
    until(AT_ONCE, "an idle agent takes little memory", async || {
        let each = (server.memory_kib() as f64 - few) / 1200.0;
        println!("{each:.1} KiB resident for each agent");
        each < KIB_OF_AGENT_MAX
    })
    .await;
}

#[actix_web::test]
async fn an_address_makes_so_many_handshakes_and_further_connections_are_closed() {
    let authority = Authority::new();
    let limits = ["--loopback-limited=true", "--address-handshakes-per-minute-max=3"];
    let server = authority.server(&limits);
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(authority.connect(&server).await);
    }
    let mut fourth = TcpStream::connect(server.address()).await.unwrap();
    let end = timeout(AT_ONCE, fourth.read(&mut [0; 1])).await;
    assert!(matches!(end, Ok(Ok(0) | Err(_))), "the fourth connection is closed: {end:?}");
    open[0].write_all(b"GET /__version__ HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(open[0].read(&mut [0; 1]).await.unwrap() == 1, "the first one is served");
}

#[actix_web::test]
async fn the_doctor_and_the_metrics_tell_the_end_of_the_certificate() {
    let authority = Authority::new();
    for (days, level) in [(100, "ok"), (10, "warn")] {
        // An hour more, for the time that the test takes.
        let ends = Duration::from_secs(days * DAY_S + 3600);
        authority.issue_for(ends);
        let server = authority.server(&["--metrics-listen=127.0.0.1:0"]);
        let metrics = scrape(&server).await;
        let expires = metrics["kalends_certificate_expires_timestamp_seconds"] as u64;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert!((days * DAY_S..=days * DAY_S + 3600).contains(&(expires - now)), "{expires}");

        let url = format!("--public-url=https://{}", server.address());
        let mut doctor = server.command(&["doctor", "--json", "--idle-s=0", &url]);
        doctor.env("SSL_CERT_FILE", authority.path("ca.pem"));
        let printed = Program::run(doctor).await.succeeded();
        let found = format!(
            r#"{{"level":"{level}","check":"certificate","found":"it ends in {days} days""#
        );
        assert!(printed.contains(&found), "{printed}");
    }
}

#[actix_web::test]
async fn the_doctor_says_in_words_why_a_certificate_is_refused() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let server = authority.server(&[]);
    let refused = "the certificate of the server is refused: ";
    for (host, trusted, found, remedy) in [
        ("localhost", &authority, "it is for 127.0.0.1 and not for localhost", "with that name"),
        ("127.0.0.1", &other, "no authority that this machine trusts", "SSL_CERT_FILE"),
    ] {
        let url = format!("--public-url=https://{host}:{}", server.address().port());
        let mut doctor = server.command(&["doctor", "--json", "--idle-s=0", &url]);
        doctor.env("SSL_CERT_FILE", trusted.path("ca.pem"));
        let ended = Program::run(doctor).await;
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        let findings =
            ended.stdout.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
        let failed = |finding: &Value| finding["check"] == "user agent";
        let finding: Value = findings.into_iter().find(failed).expect("the check fails");
        assert!(finding.to_string().contains(&format!("{refused}{found}")), "{finding}");
        assert!(finding["remedy"].as_str().expect("there is one").contains(remedy), "{finding}");
    }
}

#[actix_web::test]
async fn health_and_the_doctor_ask_the_server_of_the_data_directory_for_its_address() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let healthy = server.run(&["health"]).await.succeeded();
    assert!(healthy.starts_with("healthy"), "{healthy}");
    let mut doctor = server.command(&["doctor", "--json", "--idle-s=0"]);
    doctor.env("SSL_CERT_FILE", authority.path("ca.pem"));
    let printed = Program::run(doctor).await.succeeded();
    let reached = format!("it connects to wss://{}/", server.address());
    let seen = r#"{"level":"ok","check":"limits by address""#;
    assert!(printed.contains(&reached) && printed.contains(seen), "{printed}");
}

/// Arguments of `openssl s_client`, what is typed between two requests, what it prints about that, and whether the second
/// request is answered. A line with such a letter is a command: `K` changes the keys of both ends, `k` those of its own,
/// `R` negotiates again.
const OPENSSL: [(&[&str], &str, &str, bool); 4] = [
    (&["-tls1_3"], "K\n", "KEYUPDATE", true),
    (&["-tls1_3", "-max_send_frag", "512"], "k\n", "KEYUPDATE", true),
    (&["-tls1_2", "-max_send_frag", "512"], "", "", true),
    (&["-tls1_2"], "R\n", "RENEGOTIATING", false),
];

#[actix_web::test]
async fn openssl_changes_keys_and_cuts_records_and_does_not_negotiate_again() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    for (arguments, typed, told, is_answered) in OPENSSL {
        let mut openssl = Command::from(child("openssl"));
        let address = server.address().to_string();
        openssl.args(["s_client", "-connect", &address, "-verify_return_error", "-CAfile"]);
        openssl.arg(authority.path("ca.pem")).args(arguments).kill_on_drop(true);
        openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut openssl = openssl.spawn().expect("openssl is installed");
        let mut input = openssl.stdin.take().unwrap();
        let (mut output, mut faults) =
            (openssl.stdout.take().unwrap(), openssl.stderr.take().unwrap());
        let (mut printed, mut reported) = (String::new(), String::new());
        let padding = "x".repeat(3000);
        let request = |connection: &str| {
            format!(
                "GET /__version__ HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\nPadding: {padding}\r\n\r\n"
            )
        };
        input.write_all(request("keep-alive").as_bytes()).await.unwrap();
        read_until(&mut output, &mut printed, "\"version\"").await;
        input.write_all(typed.as_bytes()).await.unwrap();
        read_until(&mut faults, &mut reported, told).await;
        // After the refusal openssl may have ended.
        let _ = input.write_all(request("close").as_bytes()).await;
        let rest = async {
            tokio::join!(output.read_to_string(&mut printed), faults.read_to_string(&mut reported))
        };
        let (read, read_faults) = timeout(AT_ONCE, rest).await.expect("the connection ends");
        read.and(read_faults).expect("both are texts");
        let answers = printed.matches("HTTP/1.1 200 OK").count();
        assert_eq!(answers, 1 + usize::from(is_answered), "{arguments:?}: {printed}\n{reported}");
        assert_eq!(!reported.contains(":error:"), is_answered, "{arguments:?}: {reported}");
    }
    authority.agent(&server).await.register().await;
}

async fn read_until(from: &mut (impl AsyncRead + Unpin), read: &mut String, text: &str) {
    while !read.contains(text) {
        let mut bytes = [0; 4096];
        let count = timeout(AT_ONCE, from.read(&mut bytes)).await;
        let count = count.expect("it prints in time").expect("it prints");
        assert!(count > 0, "it ends after {read}");
        read.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}
