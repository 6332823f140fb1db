//! A server on a disk whose operations fail, that loses power, or that cannot sync.

use std::time::Duration;

use power::{Disk, Errno, Fault, Loss, Mount, Op};
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{AT_ONCE, Agent, Answer, Channel, Launch, Sender, Server, Socket, until};

/// How long an agent waits for the answer to a hello while the disk fails.
const HELLO_WAIT: Duration = Duration::from_secs(1);

/// What a `hello` got while the disk failed.
#[derive(Debug, PartialEq, Eq)]
enum Hello {
    /// With the uaid of the agent.
    Answered,
    Closed(Option<u16>),
    NoAnswer,
}

#[actix_web::test]
async fn a_disk_with_failing_writes_reads_or_fsyncs_is_unhealthy_and_loses_nothing() {
    for (what, ops, is_well_at_once) in [
        ("writes that fail", &[Op::Write][..], true),
        ("reads and writes that fail", &[Op::Read, Op::Write], false),
        ("fsyncs that fail", &[Op::Fsync], true),
    ] {
        println!("{what}");
        serves_through_a_fault(what, ops, is_well_at_once).await;
    }
}

/// `is_well_at_once` is false where the health check remembers a failure for a minute.
async fn serves_through_a_fault(what: &str, ops: &[Op], is_well_at_once: bool) {
    let Some(mount) = Mount::or_not_run(what) else { return };
    let server = server_on(&mount);
    let (uaid, channel) = Agent::offline(&server).await;
    let mut accepted = vec!["before".to_owned()];
    Sender::new().push(&channel.endpoint, "before").await;
    health_is(&server, 200).await;

    mount.disk().fail(Fault::always(Errno::EIO).of(ops));
    until(AT_ONCE, "a push is refused", async || {
        mount.forget_cache();
        let body = format!("during {}", accepted.len());
        let answer = push(&channel, &body).await;
        if answer.status == 201 {
            accepted.push(body);
        }
        answer.status != 201
    })
    .await;
    until(AT_ONCE, "it is unhealthy", async || {
        mount.forget_cache();
        health(&server).await == [503, 503]
    })
    .await;
    for number in 0..10 {
        let answer = push(&channel, &format!("refused {number}")).await;
        answer.assert_error(503, 201);
        assert!(answer.header("retry-after").is_some(), "{answer}");
        assert_eq!(health(&server).await, [503, 503]);
    }
    let hellos = [hello(&server, &uaid).await, hello(&server, &uaid).await];
    println!("{what}: a hello got {hellos:?}");

    assert!(mount.disk().heal());
    until(AT_ONCE, "pushes are accepted again", async || {
        let answer = push(&channel, "after").await;
        answer.status == 201
    })
    .await;
    if is_well_at_once {
        health_is(&server, 200).await;
    }
    accepted.push("after".to_owned());
    receives(&server, &uaid, &accepted).await;
}

#[actix_web::test]
async fn what_was_answered_survives_a_power_loss() {
    let Some(mut mount) = Mount::or_not_run("power losses of a server") else { return };
    for seed in 0..4 {
        mount.put(Disk::default());
        let mut server = server_on(&mount);
        let (uaid, channel) = Agent::offline(&server).await;
        let bodies: Vec<_> = (0..5).map(|number| format!("message {number}")).collect();
        for body in &bodies {
            Sender::new().push(&channel.endpoint, body).await;
        }
        mount.disk().sync_root();
        let loss = if seed == 0 { Loss::All } else { Loss::Part(fastrand::Rng::with_seed(seed)) };
        mount.lose(loss);
        server.crash();
        receives(&server, &uaid, &bodies).await;
    }
}

/// Connects with the uaid of an agent, which must never get another one.
async fn hello(server: &Server, uaid: &str) -> Hello {
    let mut socket = Socket::open(server).await;
    socket.send_json(&json!({"messageType": "hello", "uaid": uaid, "use_webpush": true})).await;
    match timeout(HELLO_WAIT, socket.receive_untimed()).await {
        Ok(Ok(answer)) => {
            assert_eq!((&answer["status"], &answer["uaid"]), (&json!(200), &json!(uaid)));
            Hello::Answered
        }
        Ok(Err(closed)) => Hello::Closed(closed.0),
        Err(_) => Hello::NoAnswer,
    }
}

/// Takes messages until all of these have arrived. Refused ones may arrive too.
async fn receives(server: &Server, uaid: &str, bodies: &[String]) {
    let mut agent = Agent::reconnect(server, uaid).await;
    let mut missing = bodies.to_vec();
    while !missing.is_empty() {
        let got = agent.take(1).await.remove(0);
        missing.retain(|body| body != got.body());
    }
}

async fn push(channel: &Channel, body: &str) -> Answer {
    let answer = Sender::new().post(&channel.endpoint).ttl(3600).body(body).send().await;
    assert!([201, 503].contains(&answer.status), "{answer}");
    answer
}

async fn health_is(server: &Server, status: u16) {
    until(AT_ONCE, "the health changes", async || health(server).await == [status; 2]).await;
}

async fn health(server: &Server) -> [u16; 2] {
    let get = async |path| Sender::new().get(&format!("{}{path}", server.origin())).await.status;
    [get("/health").await, get("/__heartbeat__").await]
}

fn server_on(mount: &Mount) -> Server {
    Server::launch(Launch { data_dir: Some(mount.at("data")), ..Launch::default() })
}
