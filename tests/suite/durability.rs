//! kill -9: everything that was answered 201 or registered survives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use futures_util::future::join_all;

use crate::harness::{
    AT_ONCE, Agent, Channel, Disconnected, KillCountdown, Launch, Notification, Program, Sender,
    Server, kalends, unix_now_s, until,
};

/// Shortens the wait for an ack, so that tests of agents that do not ack are short.
const SHORT_ACK_WAIT: &[&str] = &["--ack-wait-ms", "300"];

#[actix_web::test]
async fn a_push_answered_201_that_a_connected_agent_did_not_ack_survives_kill_9() {
    let (mut server, mut agent, channel) = Server::with_subscribed(SHORT_ACK_WAIT).await;
    Sender::new().push(&channel.endpoint, "not acked").await;
    let first = agent.notification().await;

    server.crash();

    let mut agent = Agent::reconnect(&server, agent.uaid()).await;
    assert_eq!(agent.notification().await, first);
}

#[actix_web::test]
async fn a_push_in_progress_at_kill_9_gets_no_201_or_is_not_lost() {
    let (mut server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let sender = Sender::new();
    let post = sender.post(&channel.endpoint).ttl(3600).body("under way").try_send();
    let killed = async {
        let sent = agent.notification().await;
        server.kill();
        sent
    };
    let (answer, sent) = tokio::join!(post, killed);
    assert!(answer.is_err(), "neither acked nor stored: {answer:?}");

    server.restart();
    let mut agent = Agent::reconnect(&server, agent.uaid()).await;
    Sender::new().push(&channel.endpoint, "sent again").await;
    let again = agent.notification().await;
    assert_eq!(again.body(), "sent again");
    assert_ne!(again.version, sent.version);
}

#[actix_web::test]
async fn stored_messages_survive_kill_9_in_order_and_keep_their_versions() {
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    let bodies: Vec<_> = (0..30).map(|number| format!("message {number}")).collect();
    for body in &bodies {
        sender.push(&channel.endpoint, body).await;
    }
    let mut lives = Vec::new();
    for _ in 0..2 {
        server.crash();
        let mut agent = Agent::reconnect(&server, &uaid).await;
        let mut notifications = Vec::new();
        while notifications.len() < bodies.len() {
            notifications.push(agent.notification().await);
        }
        lives.push(notifications);
    }
    assert_eq!(lives[0], lives[1]);
    assert_eq!(lives[0].iter().map(Notification::body).collect::<Vec<_>>(), bodies);
}

/// A machine without a battery clock is an hour behind after it lost its power.
#[actix_web::test]
async fn messages_of_a_server_whose_clock_came_back_behind_follow_those_before() {
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    for body in ["first", "second"] {
        let sender = Sender::new();
        sender.push(&channel.endpoint, body).await;
        sender.push_topic(&channel.endpoint, "topic", &format!("{body} of the topic")).await;
        server.kill();
        server.restart_as(Launch::default().with(&["--dev", "--clock-offset-s=-3600"]));
    }
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.take(3).await;
    let bodies: Vec<_> = got.iter().map(Notification::body).collect();
    assert_eq!(bodies, ["first", "second", "second of the topic"]);
    assert!(got.is_sorted_by_key(|notification| &notification.version));
}

#[actix_web::test]
async fn the_floor_of_ids_of_an_earlier_version_is_taken_over() {
    const HOUR_MS: u64 = 3_600_000;
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    server.kill();
    let file = server.data_dir().join("clock");
    let floor = unix_now_s() * 1000 + HOUR_MS;
    fs::write(&file, format!("{floor}\n")).unwrap();
    server.restart();
    assert!(!file.exists());
    for _again in 0..2 {
        Sender::new().push(&channel.endpoint, "later").await;
        let mut agent = Agent::reconnect(&server, &uaid).await;
        let got = agent.take(1).await;
        assert!(got[0].version >= format!("{floor:012x}"), "{}", got[0].version);
        agent.ack_all(&got).await;
        server.crash();
    }
}

#[actix_web::test]
async fn every_201_of_a_write_storm_survives_kill_9() {
    let mut server = Server::start();
    let agents = join_all((0..8).map(|_| Agent::offline(&server))).await;
    let endpoints: Vec<_> = agents.iter().map(|(_, channel)| channel.endpoint.as_str()).collect();
    let mut promised = BTreeSet::new();
    for (storm, answers_before_kill) in [40, 333, 150, 80, 290, 210].into_iter().enumerate() {
        promised
            .extend(storm_until_killed(&mut server, &endpoints, storm, answers_before_kill).await);
        server.restart();
    }
    let mut versions = BTreeMap::new();
    for (uaid, channel) in &agents {
        let there = promised.iter().filter(|(endpoint, _)| *endpoint == channel.endpoint);
        let mut missing: BTreeSet<_> = there.map(|(_, body)| body.as_str()).collect();
        let mut agent = Agent::reconnect(&server, uaid).await;
        while !missing.is_empty() {
            let notification = agent.notification().await;
            agent.ack(&notification).await;
            missing.remove(notification.body());
            let twice = versions.insert(notification.version.clone(), notification.clone());
            assert!(twice.is_none_or(|first| first == notification), "one version for two pushes");
        }
    }
    assert!(versions.len() >= promised.len());
}

/// Twelve senders push to all endpoints until the server is killed after `count` answers. Returns
/// endpoint and body of each push that was answered 201.
async fn storm_until_killed(
    server: &mut Server,
    endpoints: &[&str],
    storm: usize,
    answers_before_kill: usize,
) -> Vec<(String, String)> {
    let countdown = KillCountdown::of(server, answers_before_kill);
    let senders = (0..12).map(|sender| push_until_killed(endpoints, storm, sender, &countdown));
    let promised = join_all(senders).await;
    server.kill();
    promised.into_iter().flatten().collect()
}

async fn push_until_killed(
    endpoints: &[&str],
    storm: usize,
    sender: usize,
    countdown: &KillCountdown,
) -> Vec<(String, String)> {
    let mut promised = Vec::new();
    let client = Sender::new();
    for (number, endpoint) in endpoints.iter().cycle().skip(sender).enumerate() {
        let body = format!("storm {storm}, sender {sender}, number {number}");
        match client.post(endpoint).ttl(3600).body(body.as_str()).try_send().await {
            Ok(answer) => assert_eq!(answer.status, 201, "{answer}"),
            Err(_) => break,
        }
        promised.push(((*endpoint).to_owned(), body));
        countdown.step();
    }
    promised
}

#[actix_web::test]
async fn messages_settled_before_kill_9_are_not_redelivered() {
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    for number in 0..40 {
        sender.push(&channel.endpoint, &number.to_string()).await;
    }
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let acked = agent.take(25).await;
    agent.sync().await;
    // An ack is settled when its row is deleted durably: another connection does not receive the
    // message.
    let mut rest = Vec::new();
    until(AT_ONCE, "the acks are settled", async || {
        let mut agent = Agent::reconnect(&server, &uaid).await;
        rest = vec![agent.notification().await];
        !acked.contains(&rest[0])
    })
    .await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    rest.clear();
    while rest.len() < 15 {
        rest.push(agent.notification().await);
    }
    assert!(!rest.iter().any(|notification| acked.contains(notification)));

    server.crash();

    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.take(15).await, rest);
    Sender::new().push(&channel.endpoint, "the last").await;
    assert_eq!(agent.take(1).await[0].body(), "the last");
}

#[actix_web::test]
async fn a_message_deleted_before_kill_9_stays_deleted() {
    let (mut server, uaid, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    let dropped = sender.push(&channel.endpoint, "dropped").await.location();
    sender.push(&channel.endpoint, "kept").await;
    assert_eq!(sender.delete(&dropped).await.status, 204);

    server.crash();

    Sender::new().delete(&dropped).await.assert_error(404, 102);
    let _agent = Agent::returned_to(&server, &uaid, "kept").await;
}

/// A floor that is more than a day ahead is not used, so the ids begin below those that wait.
#[actix_web::test]
async fn the_later_push_of_a_topic_wins_after_a_clock_that_was_days_ahead() {
    let shifted =
        |seconds: u32| Launch::default().with(&["--dev", &format!("--clock-offset-s={seconds}")]);
    let mut server = Server::launch(shifted(200_000));
    let (uaid, channel) = Agent::offline(&server).await;
    Sender::new().push_topic(&channel.endpoint, "news", "old").await;
    for new in ["new", "newer"] {
        server.kill();
        server.restart_as(shifted(0));
        let sender = Sender::new();
        let location = sender.push_topic(&channel.endpoint, "news", new).await.location();
        let mut agent = Agent::reconnect(&server, &uaid).await;
        assert_eq!(agent.notification().await.body(), new);
        assert_eq!(agent.pending_notifications().await, []);
        agent.leave().await;
        assert_eq!(sender.delete(&location).await.status, 204, "{new}");
        server.kill();
        server.restart_as(shifted(200_000));
        Sender::new().push_topic(&channel.endpoint, "news", "old").await;
    }
}

#[actix_web::test]
async fn agents_acking_during_kill_9_receive_every_message_with_one_version() {
    const MESSAGES: usize = 60;
    let mut server = Server::start();
    let agents = join_all((0..4).map(|_| Agent::offline(&server))).await;
    for (_, channel) in &agents {
        let (sender, bodies) = (Sender::new(), 0..MESSAGES);
        join_all(bodies.map(async |body| sender.push(&channel.endpoint, &body.to_string()).await))
            .await;
    }
    let countdown = KillCountdown::of(&server, 100);
    // All agents reconnect before the first ack, because an agent that connects after the kill
    // finds no server.
    let back = join_all(agents.iter().map(|(uaid, _)| Agent::reconnect(&server, uaid))).await;
    let before = join_all(back.into_iter().map(|agent| ack_until_killed(agent, &countdown))).await;
    server.crash();

    for ((uaid, _), before) in agents.iter().zip(before) {
        let mut versions = before.versions;
        let mut agent = Agent::reconnect(&server, uaid).await;
        let is_whole = |versions: &BTreeMap<_, _>| versions.len() == MESSAGES;
        let mut unacked = before.unacked;
        while !is_whole(&versions) || !unacked.is_empty() {
            let notification = agent.notification().await;
            agent.ack(&notification).await;
            let Notification { body, version, .. } = notification;
            unacked.remove(&version);
            let known = versions.entry(body).or_insert_with(|| version.clone());
            assert_eq!(*known, version, "a message came again with another version");
        }
        let distinct: BTreeSet<_> = versions.values().collect();
        assert_eq!(distinct.len(), MESSAGES);
    }
}

/// The messages that an agent received before the server was killed.
#[derive(Default)]
struct Before {
    /// Version of each message, by its body.
    versions: BTreeMap<Option<String>, String>,
    /// Versions that the agent did not ack, and that it must therefore receive again.
    unacked: BTreeSet<String>,
}

/// Receives messages and acks all but every fifth, until the server is killed.
async fn ack_until_killed(mut agent: Agent, countdown: &KillCountdown) -> Before {
    let mut before = Before::default();
    while let Ok(notification) = agent.try_notification().await {
        if before.versions.len() % 5 == 4 {
            before.unacked.insert(notification.version.clone());
        } else {
            agent.ack(&notification).await;
            countdown.step();
        }
        before.versions.insert(notification.body, notification.version);
    }
    before
}

#[actix_web::test]
async fn every_channel_of_a_registration_storm_survives_kill_9() {
    let mut server = Server::start();
    let countdown = KillCountdown::of(&server, 100);
    let agents = join_all((0..24).map(|_| register_until_killed(&server, &countdown))).await;
    server.crash();

    let sender = Sender::new();
    let agents =
        agents.into_iter().filter_map(Result::ok).filter(|(_, channels)| !channels.is_empty());
    for (uaid, channels) in agents {
        let agent = Agent::reconnect(&server, &uaid).await.ack_in_background();
        for channel in &channels {
            sender.push(&channel.endpoint, &channel.id).await;
        }
        let got = agent.until("all pushes arrived", |got| got.len() >= channels.len()).await;
        for Channel { id, .. } in &channels {
            assert!(got.iter().any(|got| got.channel == *id && got.body() == id));
        }
    }
}

/// A new agent registers channels until the server is killed. Returns its uaid and the registered
/// channels.
async fn register_until_killed(
    server: &Server,
    countdown: &KillCountdown,
) -> Result<(String, Vec<Channel>), Disconnected> {
    let mut agent = Agent::try_new(server).await?;
    let mut channels = Vec::new();
    while let Ok(channel) = agent.try_register(None).await {
        channels.push(channel);
        countdown.step();
    }
    Ok((agent.uaid().to_owned(), channels))
}

#[actix_web::test]
async fn a_first_start_that_was_killed_at_any_step_can_be_repeated() {
    let mut server = Server::start();
    for step in ["lock", "router.db.new", "router.db", "messages_", "keys.toml"] {
        server.kill();
        fs::remove_dir_all(server.data_dir()).unwrap();
        let data_dir = server.data_dir().to_str().unwrap().to_owned();
        let serve = ["serve", "--data-dir", &data_dir, "--listen", "127.0.0.1:0"];
        let first = Program::start(kalends(&serve));
        until(AT_ONCE, step, async || {
            has_file(&data_dir, step) || has_file(&data_dir, "keys.toml")
        })
        .await;
        first.kill().await;
        server.restart();
        let (mut agent, channel) = Agent::subscribed(&server).await;
        Sender::new().push_to(&mut agent, &channel, step).await;
    }
}

/// Whether the directory exists and contains a file whose name starts with `start`.
fn has_file(dir: &str, start: &str) -> bool {
    fs::read_dir(dir).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(start))
    })
}
