//! A server whose disk fills, and gets space again.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use rustix::fs::statvfs;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{AT_ONCE, Agent, Bystander, Channel, Launch, Sender, Server, until};
use crate::metrics::scrape;

const MIB: u64 = 1 << 20;

/// What the server keeps free of 64 MiB.
const KEPT: &str = "--disk-free-min=16777216";

#[actix_web::test]
async fn a_full_disk_refuses_messages_and_nothing_else_and_recovers_without_a_restart() {
    let launch = Launch { disk_mib: Some(64), ..Launch::default() };
    let server = Server::launch(launch.with(&[KEPT]));
    let (uaid, channel) = Agent::offline(&server).await;
    let mut accepted = vec!["first".to_owned()];
    Sender::new().push(&channel.endpoint, "first").await;
    let mut bystander = Bystander::connect(&server).await;

    let filler = fill(&server, 15 * MIB);
    accepted.extend(until_refused(&channel).await);
    server.logged("messages are refused").await;
    let health = server.health().await;
    health.assert_error(503, 201);
    let health = health.json();
    assert_eq!(health["disk"]["free_bytes_min"], 16 * MIB);
    assert!(health["disk"]["messages_refused"].as_u64() > Some(0), "{health}");
    assert_eq!(
        (&health["checks"]["space"], &health["checks"]["store"]),
        (&json!(false), &json!(true))
    );
    bystander.is_unaffected().await;
    let (mut newcomer, channel_of_newcomer) = Agent::subscribed(&server).await;

    // Strangers cannot use up the second half of the reserve.
    let half = fill(&server, 7 * MIB);
    let mut stranger = Agent::new(&server).await;
    until(AT_ONCE, "new records and channels are refused", async || {
        try_register(&mut stranger).await && try_register(&mut newcomer).await
    })
    .await;
    let disk = server.health().await.json()["disk"].take();
    let [messages, subscriptions] = ["messages_refused", "subscriptions_refused"]
        .map(|of| disk[of].as_f64().expect("it is a number"));
    assert!(messages > 0.0 && subscriptions > 0.0, "{disk}");
    let refused = scrape(&server).await[r#"kalends_limit_refusals_total{limit="disk_free_min"}"#];
    assert_eq!(refused, messages + subscriptions);
    newcomer.unregister(&channel_of_newcomer).await;
    bystander.is_unaffected().await;
    let known = newcomer.leave().await;
    let mut newcomer = Agent::reconnect(&server, &known).await;

    // The reserve is used up too.
    let more = fill(&server, 0);
    until(AT_ONCE, "no record can be written", async || {
        let refused = try_register(&mut Agent::new(&server).await).await;
        server.health().await;
        refused && server.log().contains("\"store_error\":\"nothing can be written to it now\"")
    })
    .await;
    let health = server.health().await.json();
    let found: Vec<_> = health["findings"].as_array().into_iter().flatten().collect();
    assert!(found.len() == 1 && found[0]["check"] == "space", "{health}");
    until(AT_ONCE, "no channel can be written", async || try_register(&mut newcomer).await).await;
    bystander.is_unaffected().await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.take(accepted.len()).await;
    assert!(got.iter().map(|got| got.body()).eq(accepted.iter()));

    for file in [filler, half, more] {
        fs::remove_file(file).unwrap();
    }
    until(AT_ONCE, "it is healthy", async || server.health().await.status == 200).await;
    newcomer.register().await;
    let second = agent.register().await;
    agent.leave().await;
    for channel in [&channel, &second] {
        Sender::new().push(&channel.endpoint, "later").await;
    }
    // The deletes of acked messages may not have been retried before the agent left.
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let mut awaited = 2;
    while awaited > 0 {
        let got = agent.take(1).await.remove(0);
        awaited -= usize::from(got.body() == "later");
        assert!(got.body() == "later" || accepted.iter().any(|body| body == got.body()), "{got:?}");
    }
    agent.leave().await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.pending_notifications().await, []);
}

#[actix_web::test]
async fn a_server_on_a_low_disk_starts_with_a_warning_and_refuses_messages() {
    let launch = Launch { disk_mib: Some(16), ..Launch::default() };
    let server = Server::launch(launch.with(&[KEPT]));
    server.logged("the disk has less free space than disk_free_min").await;
    let (_, channel) = Agent::offline(&server).await;
    let refused = Sender::new().post(&channel.endpoint).ttl(60).body("lost?").send().await;
    refused.assert_error(503, 201);
    assert_eq!(refused.header("retry-after"), Some("5"));
}

/// Fills the server's disk with another file until only so much is free. Returns the file.
fn fill(server: &Server, free_bytes: u64) -> PathBuf {
    let disk = server.disk();
    let space = statvfs(&disk).expect("the disk is mounted");
    let file = disk.join(format!("filler.{}", Uuid::new_v4()));
    let taken = (space.f_bavail * space.f_frsize).saturating_sub(free_bytes);
    let taken = usize::try_from(taken).expect("the disk is small");
    // The server may have written meanwhile.
    let filled = fs::write(&file, vec![1; taken]).map_err(|error| error.kind());
    assert!(matches!(filled, Ok(()) | Err(ErrorKind::StorageFull)), "{filled:?}");
    file
}

/// Stores messages until one is refused. Returns those before.
async fn until_refused(channel: &Channel) -> Vec<String> {
    for number in 0.. {
        let body = format!("before {number}");
        let answer = Sender::new().post(&channel.endpoint).ttl(60).body(body).send().await;
        if answer.status != 201 {
            answer.assert_error(503, 201);
            assert_eq!(answer.header("retry-after"), Some("5"));
            return (0..number).map(|number| format!("before {number}")).collect();
        }
    }
    unreachable!("the disk is not endless")
}

/// Registers a channel. Returns whether it was refused for want of space.
async fn try_register(agent: &mut Agent) -> bool {
    let register = json!({"messageType": "register", "channelID": Uuid::new_v4().to_string()});
    let answer: Value = agent.request(&register).await.expect("the server is there");
    match answer["status"].as_u64() {
        Some(503) => true,
        Some(200) => false,
        _ => panic!("{answer}"),
    }
}
