//! Messages that an agent does not ack, and what they delay.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::harness::{Agent, Channel, Sender, Server};

/// More than the window, which is 128, and than the share of a channel.
const UNACKED: usize = 200;

/// An agent with a channel whose messages it never acks, and another.
async fn with_two_channels(server: &Server) -> (Agent, [Channel; 2]) {
    let mut agent = Agent::new(server).await;
    let channels = [agent.register().await, agent.register().await];
    (agent, channels)
}

/// Pushes without a body, as an app sends them that Sunup does not ack.
async fn push_empty(channel: &Channel, count: usize) {
    const MONTH_S: u32 = 30 * 24 * 60 * 60;
    let sender = Sender::new();
    let pushes = (0..count).map(|_| sender.post(&channel.endpoint).ttl(MONTH_S).send());
    let answers = join_all(pushes).await;
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
}

/// Receives until a message of this channel arrives, and acks only that. Returns how many of others came before.
async fn receive_of(agent: &mut Agent, channel: &Channel) -> usize {
    for others in 0.. {
        let got = agent.notification().await;
        if got.channel == channel.id {
            agent.ack(&got).await;
            return others;
        }
    }
    unreachable!("the loop has no end")
}

async fn receive_unacked(agent: &mut Agent, count: usize) {
    for _ in 0..count {
        agent.notification().await;
    }
}

#[actix_web::test]
async fn messages_that_are_never_acked_do_not_silence_another_channel() {
    let server = Server::start();
    let (mut agent, [unacked, other]) = with_two_channels(&server).await;
    let sender = Sender::new();
    push_empty(&unacked, UNACKED).await;
    let began = Instant::now();
    tokio::join!(sender.push(&other.endpoint, "online"), receive_of(&mut agent, &other));
    println!("online: {:?}", began.elapsed());
    for connection in 1..=3 {
        let uaid = agent.leave().await;
        sender.push(&other.endpoint, "offline").await;
        agent = Agent::reconnect(&server, &uaid).await;
        let began = Instant::now();
        let before = receive_of(&mut agent, &other).await;
        println!("connection {connection}: {:?}", began.elapsed());
        assert!(before <= 128, "{before} messages came before on connection {connection}");
        // Until these are overdue, the agent counts as busy.
        tokio::join!(sender.push(&other.endpoint, "online"), receive_of(&mut agent, &other));
    }
}

#[actix_web::test]
async fn messages_that_two_connections_did_not_ack_come_after_all_others() {
    let server = Server::start_with(&["--ack-wait-ms", "100"]);
    let (agent, [unacked, other]) = with_two_channels(&server).await;
    let mut uaid = agent.leave().await;
    push_empty(&unacked, 20).await;
    for _connection in 0..2 {
        let mut agent = Agent::reconnect(&server, &uaid).await;
        receive_unacked(&mut agent, 20).await;
        // It is delivered once the others are overdue.
        Sender::new().push_to(&mut agent, &other, "direct").await;
        uaid = agent.leave().await;
    }
    Sender::new().push(&other.endpoint, "stored").await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(receive_of(&mut agent, &other).await, 0);
    receive_unacked(&mut agent, 20).await;
}

#[actix_web::test]
async fn an_agent_that_acks_too_late_does_not_slow_its_senders() {
    const ACK_WAIT: Duration = Duration::from_secs(4);
    let server = Server::start_with(&["--ack-wait-ms", "4000"]);
    let (mut agent, [channel, _]) = with_two_channels(&server).await;
    let sender = Sender::new();
    let mut late = Vec::new();
    for body in ["first", "second"] {
        let (answer, got) =
            tokio::join!(sender.push(&channel.endpoint, body), agent.notification());
        assert_eq!(answer.status, 201);
        late.push(got);
    }
    let began = Instant::now();
    let (answer, got) = tokio::join!(sender.push(&channel.endpoint, "third"), agent.notification());
    assert_eq!(answer.status, 201);
    assert!(began.elapsed() < ACK_WAIT, "the third push waited for an ack");
    late.push(got);
    agent.ack_all(&late).await;
    sender.push_to(&mut agent, &channel, "fourth").await;

    let uaid = agent.leave().await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.pending_notifications().await, [], "every ack counts");
}
