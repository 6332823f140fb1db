//! The limit of open files: raised at start, kept by the ports, and reported when it is reached.

use std::fs;

use futures_util::future::join_all;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::harness::{AT_ONCE, Agent, Bystander, Launch, Raw, Server, until};

#[actix_web::test]
async fn the_soft_limit_is_raised_and_strangers_cannot_use_up_the_files() {
    let launch = Launch { open_files: Some((100, 400)), ..Launch::default() };
    let server = Server::launch(launch.with(&["--workers", "2"]));
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["400", "400"]);
    let lowered = "\"setting\":\"connections_max\",\"value\":100000,\"lowered_to\":128";
    until(AT_ONCE, "the lower limit is logged", async || {
        let log = server.log();
        lowered.split(',').all(|field| log.contains(field))
    })
    .await;

    let before = open_files(&server);
    let strangers = join_all((0..400).map(|_| TcpStream::connect(server.address()))).await;
    assert!(strangers.iter().all(Result::is_ok));
    until(AT_ONCE, "the port is full", async || open_files(&server) >= before + 128).await;
    assert!(open_files(&server) < 300, "the files that are reserved stay free");
    // A worker counts a connection after it was accepted: the strangers stay until all are counted.
    server.logged("the public port is full").await;
    drop(strangers);
    // Their closes arrive one after the other.
    until(AT_ONCE, "an agent is admitted", async || Agent::try_new(&server).await.is_ok()).await;
    Bystander::connect(&server).await.is_unaffected().await;
    let mut port = Value::Null;
    until(AT_ONCE, "the port is no longer full", async || {
        let health = server.health().await;
        let health = health.json();
        port.clone_from(&health["port"]);
        port["connections"].as_u64().is_some_and(|connections| (1..10).contains(&connections))
    })
    .await;
    assert_eq!(port["connections_max"], 128);
    assert!(port["times_full"].as_u64() > Some(0), "{port}");
    assert!(!server.log().contains("cannot accept connections"));
}

#[actix_web::test]
async fn too_low_a_limit_of_open_files_is_rejected() {
    let launch = Launch { open_files: Some((100, 200)), ..Launch::default() };
    let error = Server::try_launch(launch).err().expect("it does not start").to_string();
    assert!(error.contains("the limit of open files is 200"), "{error}");
}

#[actix_web::test]
async fn connections_that_cannot_be_accepted_are_logged_and_the_server_is_unhealthy() {
    let server = Server::start();
    let mut monitor = Raw::open(&server).await;
    let health = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    monitor.write(health).await;
    assert_eq!(monitor.answer().await.status, 200);

    let pid = Pid::from_raw(server.pid().cast_signed());
    let before = getrlimit(Resource::Nofile);
    let files = |current| Rlimit { current, ..before };
    prlimit(pid, Resource::Nofile, files(Some(3))).expect("a soft limit can be lowered");
    let _waiting = TcpStream::connect(server.address()).await.unwrap();
    server.logged("cannot accept connections").await;
    monitor.write(health).await;
    monitor.answer().await.assert_error(503, 201);
    until(AT_ONCE, "the reason is logged", async || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("the server is unhealthy"));
        line.is_some_and(|line| line.contains("\"checks\":\"accepts\""))
    })
    .await;

    prlimit(pid, Resource::Nofile, files(before.maximum)).expect("a soft limit can be raised");
    Agent::new(&server).await;
}

fn open_files(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server runs").count()
}
