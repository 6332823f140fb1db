//! A running server: its health, its month, and agents that reconnect.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{AT_ONCE, Agent, Bystander, Notification, Sender, Server, Signer, until};

#[actix_web::test]
async fn a_healthy_server_reports_ok() {
    let (server, agent) = Server::with_agent(&[]).await;
    let sender = Sender::new();
    for path in ["/health", "/__heartbeat__", "/__lbheartbeat__", "/__version__", "/status"] {
        let answer = sender.get(&format!("{}{path}", server.origin())).await;
        let json = answer.json();
        assert_eq!((answer.status, &json["status"]), (200, &Value::from("OK")), "{path}");
        if ["/health", "/__heartbeat__"].contains(&path) {
            assert_eq!(json["connections"], 1);
        }
    }
    drop(agent);
}

#[actix_web::test]
async fn a_server_that_cannot_write_is_unhealthy_and_rejects_pushes() {
    let (server, _, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    // SQLite cannot write to a database file that was truncated while it is open.
    for entry in fs::read_dir(server.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "db") {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(0).unwrap();
        }
    }
    until(AT_ONCE, "the health is bad", async || server.health().await.status == 503).await;
    let health = server.health().await;
    health.assert_error(503, 201);
    assert!(health.header("retry-after").is_some());
    let refused = sender.post(&channel.endpoint).ttl(60).body("lost?").send().await;
    let message = refused.assert_error(503, 201);
    assert!(!message.contains("sql") && !message.contains("db"), "{message}");
    assert_eq!(sender.get(&format!("{}/__lbheartbeat__", server.origin())).await.status, 200);
}

#[actix_web::test]
async fn a_new_connection_replaces_the_older_one_of_an_agent() {
    let (server, mut older, channel) = Server::with_subscribed(&[]).await;
    let mut newer = Agent::reconnect(&server, older.uaid()).await;
    assert_eq!(older.socket().closed().await.0, Some(4409));
    older.ended().await;
    Sender::new().push_to(&mut newer, &channel, "to the newer one").await;
}

#[actix_web::test]
async fn an_agent_that_reconnects_repeatedly_misses_nothing() {
    const PUSHES: usize = 100;
    let (server, uaid, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    let pushes = async {
        for number in 0..PUSHES {
            sender.push(&channel.endpoint, &number.to_string()).await;
        }
    };
    let comes_and_goes = async {
        let mut seen = Vec::new();
        for _ in 0..40 {
            let mut agent = Agent::reconnect(&server, &uaid).await;
            let came = agent.pending_notifications().await;
            agent.ack_all(&came).await;
            seen.extend(came);
        }
        seen
    };
    let ((), mut seen) = tokio::join!(pushes, comes_and_goes);
    let agent = Agent::reconnect(&server, &uaid).await.ack_in_background();
    let bodies = |seen: &[Notification], rest: &[Notification]| {
        let all = seen.iter().chain(rest);
        all.map(|notification| notification.body().to_owned()).collect::<BTreeSet<_>>().len()
    };
    let rest = agent.until("the rest arrives", |rest| bodies(&seen, rest) == PUSHES).await;
    seen.extend(rest);
    let versions: BTreeSet<_> = seen.iter().map(|seen| (&seen.version, seen.body())).collect();
    assert_eq!(versions.len(), PUSHES, "a push came with two versions");
}

#[actix_web::test]
async fn the_log_contains_no_uaid_token_or_payload() {
    let (mut server, agent, channel) = Server::with_subscribed(&["--ack-wait-ms", "100"]).await;
    let (sender, signer) = (Sender::new(), Signer::new());
    let authorization = signer.authorization(&server.origin());
    let push = || sender.post(&channel.endpoint).ttl(60).body("a secret");
    push().send().await;
    push().header("authorization", &authorization).send().await;
    push().header("authorization", &authorization.replace(", k=", "x, k=")).send().await;
    push().ttl(5).send().await;
    let uaid = agent.leave().await;
    Agent::reconnect(&server, &uaid).await.take(2).await;
    server.terminate();

    let log = server.log();
    assert!(log.contains("listening") && log.contains("stopped"), "{log}");
    let token = channel.endpoint.rsplit_once('/').unwrap().1;
    for secret in [&uaid, token, "a secret", "YSBzZWNyZXQ", &authorization[8..40]] {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
}

#[actix_web::test]
async fn concurrent_commands_are_all_answered() {
    const COMMANDS: usize = 400;
    let (_server, mut agent) = Server::with_agent(&[]).await;
    let ids: BTreeSet<_> = (0..COMMANDS).map(|_| Uuid::new_v4().to_string()).collect();
    for id in &ids {
        agent.socket().send_json(&json!({"messageType": "register", "channelID": id})).await;
    }
    let mut answered = BTreeSet::new();
    while answered.len() < COMMANDS {
        let answer = agent.socket().receive().await.unwrap();
        // A command above the limit is rejected at once, and is not left without an answer.
        assert!(answer["status"] == 200 || answer["status"] == 503, "{answer}");
        answered.insert(answer["channelID"].as_str().unwrap().to_owned());
    }
    assert_eq!(answered, ids);
}

#[actix_web::test]
async fn public_url_sets_endpoints_and_the_vapid_audience() {
    let (server, mut agent, channel) =
        Server::with_subscribed(&["--public-url", "https://push.example.net"]).await;
    let path = channel.endpoint.strip_prefix("https://push.example.net").unwrap();
    let (sender, signer) = (Sender::new(), Signer::new());
    let post = || sender.post(&format!("{}{path}", server.origin())).ttl(60).body("hello");

    let push = post().signed(&signer, "https://push.example.net").send();
    let (answer, _) = tokio::join!(push, agent.take(1));
    assert!(answer.location().starts_with("https://push.example.net/m/"), "{answer}");
    let inside = post().signed(&signer, &server.origin()).send().await;
    inside.assert_refused("inside", (401, 109), "it must be https://push.example.net");
}

#[actix_web::test]
async fn a_server_without_rotation_uses_one_table() {
    let mut server = Server::start_with(&["--rotation=false"]);
    let months = |server: &Server| {
        let entries = fs::read_dir(server.data_dir()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("messages_") && name.ends_with(".db")).count()
    };
    assert_eq!(months(&server), 1);
    let (uaid, _channel) = Agent::offline_with(&server, "stored").await;
    assert!(server.terminate().success());
    server.restart();
    assert_eq!(months(&server), 1);
    let _agent = Agent::returned_to(&server, &uaid, "stored").await;
    Bystander::connect(&server).await.is_unaffected().await;
}
