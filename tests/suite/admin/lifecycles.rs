//! Several months of an installation, on both storage engines.

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::fixture::long_ago;
use super::{AdminFixture, months_ago};
use crate::harness::{AT_ONCE, Agent, Channel, Sender, Socket, child, within};

/// The TTL of the messages here, in seconds.
const HALF_A_YEAR: u32 = 180 * 24 * 60 * 60;

/// An offline agent with a channel and a stored message.
async fn offline_agent_with_message(fixture: &AdminFixture, body: &str) -> (String, Channel) {
    let (uaid, channel) = Agent::offline(&fixture.server).await;
    push(&channel, body).await;
    (uaid, channel)
}

async fn push(channel: &Channel, body: &str) {
    let sender = Sender::new();
    let answer = sender.post(&channel.endpoint).ttl(HALF_A_YEAR).body(body).send().await;
    assert_eq!(answer.status, 201, "{answer}");
}

#[actix_web::test]
async fn active_agents_are_kept_and_inactive_ones_are_dropped_with_the_old_table() {
    for mut fixture in AdminFixture::long_ago(&[]) {
        let (back, channel) = offline_agent_with_message(&fixture, "waits for you").await;
        let (away, lost) = offline_agent_with_message(&fixture, "is not delivered").await;
        assert!(fixture.server.terminate().success());
        fixture.restart_now();
        let inactive = fixture.stdout_of("users drop-inactive --months 2 --dry-run").await;
        assert!(inactive.starts_with("found 2 users"), "{inactive}");
        let kept =
            fixture.stdout_of(&format!("users drop-inactive --since {}", months_ago(12))).await;
        assert!(kept.starts_with("found 0 users"), "four months are not twelve: {kept}");
        let status = fixture.stdout_of("tables status").await;
        let expected = format!("- 2 agents are still on {}: they move", long_ago());
        assert!(status.contains(&expected), "{status}");
        let kept = fixture.stdout_of("tables drop-old").await;
        assert!(kept.starts_with("kept ") || kept.contains("\nkept "), "{kept}");

        let mut agent = Agent::reconnect(&fixture.server, &back).await;
        assert_eq!(agent.take(1).await[0].body(), "waits for you");
        // The move to this month ends after the last ack; only then a subscription is answered.
        agent.register().await;
        let dropped = fixture.stdout_of(&drop_those_of_long_ago(1000)).await;
        assert!(dropped.starts_with("found 1 users"), "{dropped}");
        assert!(dropped.contains("\ndropped 1 users; 0 connected meanwhile"), "{dropped}");
        let old = format!("dropped {}, which no agent is on\n", long_ago());
        let dropped = fixture.stdout_of("tables drop-old").await;
        assert!(dropped.contains(&old), "{dropped}");
        assert!(!fixture.stdout_of("tables list").await.contains(&long_ago().to_string()));

        push_to(&mut agent, &channel).await;
        let gone = Sender::new().post(&lost.endpoint).ttl(60).body("x").send().await;
        assert_eq!(gone.status, 410, "{gone}");
        let stranger =
            Agent::hello(Socket::open(&fixture.server).await, Some(&away)).await.unwrap();
        assert_ne!(stranger.uaid(), away);
    }
}

async fn push_to(agent: &mut Agent, channel: &Channel) {
    Sender::new().push_to(agent, channel, "and one more").await;
}

#[actix_web::test]
async fn a_frozen_table_is_renamed_without_effect_on_its_agents() {
    for mut fixture in AdminFixture::long_ago(&["--rotation=false"]) {
        let (uaid, channel) = offline_agent_with_message(&fixture, "from long ago").await;
        assert!(fixture.server.terminate().success());
        fixture.restart_now();
        let (from, to) = (long_ago(), months_ago(0));
        let copy = format!("tables copy {from} {to}");
        let why = fixture.stderr_of(&copy).await;
        assert!(why.contains("stop it first") || why.contains("--server-stopped"), "{why}");
        let kept = fixture.stdout_of("tables drop-old --force").await;
        assert!(kept.contains(&format!("{from} stays in use")), "{kept}");
        assert!(fixture.server.terminate().success());

        let confirmed =
            if fixture.is_embedded() { copy } else { format!("{copy} --server-stopped") };
        let copied = fixture.stdout_of(&confirmed).await;
        assert!(copied.contains(&format!("1 records name {to} instead of {from} now")), "{copied}");
        let why = fixture.stderr_of(&confirmed).await;
        assert!(why.contains(&format!("next is `kalends tables drop {from} --yes`")), "{why}");
        let dropped = fixture.stdout_of(&format!("tables drop {from} --yes")).await;
        assert_eq!(dropped, format!("dropped {from}, which no agent is on\n"));
        fixture.server.restart();

        let mut agent = Agent::reconnect(&fixture.server, &uaid).await;
        assert_eq!(agent.take(1).await[0].body(), "from long ago");
        push_to(&mut agent, &channel).await;
        let tables = fixture.stdout_of("tables list").await;
        assert!(tables.contains(&to.to_string()) && !tables.contains(&from.to_string()));
    }
}

#[actix_web::test]
async fn an_interrupted_command_reports_it_and_can_be_repeated() {
    for mut fixture in AdminFixture::long_ago(&[]) {
        for _ in 0..30 {
            Agent::offline(&fixture.server).await;
        }
        assert!(fixture.server.terminate().success());
        fixture.restart_now();
        let mut slow = fixture
            .command(&drop_those_of_long_ago(1).split(' ').collect::<Vec<_>>())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut stdout = BufReader::new(slow.stdout.as_mut().unwrap());
        stdout.read_line(&mut first).await.unwrap();
        assert!(first.starts_with("found 30 users"), "{first}");
        interrupt(&slow);
        let ended = within(AT_ONCE, "it ends", slow.wait_with_output()).await.unwrap();
        let why = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{why}");
        assert!(why.contains("stopped between two steps; run it again to continue"), "{why}");
        let dropped = fixture.stdout_of(&drop_those_of_long_ago(10_000)).await;
        assert!(dropped.contains("dropped 30 users"), "{dropped}");
    }
}

/// Searches few months only: on DynamoDB each hour is a query.
fn drop_those_of_long_ago(rate: u32) -> String {
    format!("users drop-inactive --months 3 --since {} --rate {rate}", long_ago())
}

fn interrupt(process: &Child) {
    let pid = process.id().expect("the process was not waited for").to_string();
    let status = child("kill").args(["-s", "INT", &pid]).status();
    assert!(status.expect("kill can be run").success());
}
