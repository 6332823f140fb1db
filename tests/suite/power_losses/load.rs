//! A server under load whose disk loses its power, or fails first and loses it then, again and again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::join_all;
use power::{Errno, Fault, Loss, Mount, Op};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;
use uuid::Uuid;

use super::{keep, repeat, seed, server_on, used_disk};
use crate::harness::{AT_ONCE, Agent, Channel, Disconnected, Sender, Server, number_from_env};

const TEST: &str =
    "power_losses::load::what_was_answered_under_load_is_there_after_each_power_loss";

/// Power losses of a run without a duration.
const LOSSES: u32 = 8;

/// Answers before the disk fails or loses its power, at most.
const ANSWERS_MAX: usize = 200;

/// Agents that are pushed to, and senders.
const AGENTS: usize = 6;

/// Agents that register channels meanwhile.
const REGISTERING: usize = 2;

/// What the server has answered since it started.
#[derive(Default)]
struct Ledger {
    /// The bodies of the pushes that were answered 201, by endpoint.
    stored: BTreeMap<String, BTreeSet<String>>,
    /// The uaid and the channel.
    registered: Vec<(String, Channel)>,
}

/// What agents and senders share.
#[derive(Default)]
struct Load {
    /// The bodies of all pushes, also of earlier rounds.
    sent: RefCell<BTreeSet<String>>,
    ledger: RefCell<Ledger>,
    /// Answers until the power goes.
    left: Cell<usize>,
    is_over: Notify,
}

impl Load {
    fn step(&self) {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        if left == 1 {
            self.is_over.notify_one();
        }
    }
}

#[actix_web::test]
async fn what_was_answered_under_load_is_there_after_each_power_loss() {
    let Some(mut mount) = Mount::or_not_run("a server under load that loses power") else { return };
    let (seed, began) = (seed(), Instant::now());
    let lasts = Duration::from_secs(number_from_env("POWER_SECONDS").unwrap_or(0));
    println!("{}", repeat(seed, TEST));
    let mut random = Rng::with_seed(seed);
    used_disk(&mut mount);
    let mut server = Server::launch(server_on(&mount, &[]));
    let agents = join_all((0..AGENTS).map(|_| Agent::offline(&server))).await;
    let load = Load::default();
    for round in 0.. {
        if round >= LOSSES && began.elapsed() >= lasts {
            break;
        }
        let loss = if random.bool() { Loss::All } else { Loss::Part(random.fork()) };
        let fault = random.bool().then(|| Fault::nth(random.u64(1..200), Errno::EIO));
        let what = format!("round {round}: {loss:?} after {fault:?}");
        if let Some(fault) = fault {
            mount.disk().fail(fault.of(&Op::CHANGES));
        }
        load.left.set(random.usize(1..ANSWERS_MAX));
        let senders = agents.iter().enumerate().map(async |(sender, (_, channel))| {
            let prefix = format!("{round}.{sender}");
            push_on(&channel.endpoint, &prefix, &load).await;
        });
        let registering = (0..REGISTERING).map(|_| register_on(&server, &load));
        tokio::select! {
            _ = join_all(senders) => unreachable!("they push on"),
            _ = join_all(registering) => unreachable!("they register on"),
            () = load.is_over.notified() => {}
        }
        // What is answered from here on is in no ledger.
        mount.disk().heal();
        mount.lose(loss);
        let left = mount.disk().clone();
        server.crash();
        if let Err(lost) = look_for_all(&server, &agents, &load).await {
            keep(seed, "under load", &left, &format!("{what}\n{lost}"));
            panic!("{}\n{what}: {lost}", repeat(seed, TEST));
        }
    }
}

/// Pushes to an endpoint. A push that is refused because the disk fails is not sent again.
async fn push_on(endpoint: &str, prefix: &str, load: &Load) {
    let client = Sender::new();
    for number in 0.. {
        let body = format!("{prefix}.{number}");
        load.sent.borrow_mut().insert(body.clone());
        let post = client.post(endpoint).ttl(3600).body(body.as_str());
        let answer = post.try_send().await.expect("the server runs");
        match answer.status {
            201 => {
                let mut ledger = load.ledger.borrow_mut();
                ledger.stored.entry(endpoint.to_owned()).or_default().insert(body);
            }
            503 => {}
            _ => panic!("{answer}"),
        }
        load.step();
    }
}

/// Registers channels of new agents. One that the server disconnects because its disk fails is left.
async fn register_on(server: &Server, load: &Load) {
    loop {
        let id = Uuid::new_v4().to_string();
        let register = json!({"messageType": "register", "channelID": id});
        let registered = async {
            let mut agent = Agent::try_new(server).await?;
            Ok::<_, Disconnected>((agent.request(&register).await?, agent))
        };
        if let Ok((answer, agent)) = registered.await
            && let (Some(200), Some(endpoint)) =
                (answer["status"].as_u64(), answer["pushEndpoint"].as_str())
        {
            let channel = Channel { id, endpoint: endpoint.to_owned() };
            load.ledger.borrow_mut().registered.push((agent.uaid().to_owned(), channel));
        }
        load.step();
    }
}

/// Takes what waits for each agent, and uses what was registered. Returns what is missing or was never sent.
async fn look_for_all(
    server: &Server,
    agents: &[(String, Channel)],
    load: &Load,
) -> Result<(), String> {
    let mut ledger = load.ledger.take();
    for (uaid, channel) in agents {
        let mut agent = Agent::reconnect(server, uaid).await;
        let mut missing = ledger.stored.remove(&channel.endpoint).unwrap_or_default();
        while !missing.is_empty() {
            let Ok(next) = timeout(AT_ONCE, agent.try_notification()).await else { break };
            let notification = next.map_err(|Disconnected| format!("{uaid} is disconnected"))?;
            agent.ack(&notification).await;
            missing.remove(notification.body());
            if !load.sent.borrow().contains(notification.body()) {
                return Err(format!("{} was never sent", notification.body()));
            }
        }
        agent.leave().await;
        if !missing.is_empty() {
            return Err(format!("{uaid} has lost {missing:?}"));
        }
    }
    let sender = Sender::new();
    for (uaid, channel) in ledger.registered.drain(..) {
        let mut agent = Agent::reconnect(server, &uaid).await;
        sender.push_to(&mut agent, &channel, "to a registered channel").await;
    }
    Ok(())
}
