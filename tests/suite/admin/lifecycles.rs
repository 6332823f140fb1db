//! Several months of an installation, on both storage engines.

use tokio::io::{AsyncBufReadExt, BufReader};

use super::fixture::long_ago;
use super::{AdminFixture, months_ago};
use crate::harness::{AT_ONCE, Agent, Channel, ExitOutput, Sender, signal, within};

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
        fixture.begins("users drop-inactive --months 2 --dry-run", "found 2 users").await;
        // Four months are not twelve.
        let since = format!("users drop-inactive --since {}", months_ago(12));
        fixture.begins(&since, "found 0 users").await;
        let expected = format!("- 2 agents are still on {}: they move", long_ago());
        fixture.prints("tables status", &expected).await;
        let kept = fixture.stdout_of("tables drop-old").await;
        assert!(kept.starts_with("kept ") || kept.contains("\nkept "), "{kept}");

        let mut agent = Agent::returned_to(&fixture.server, &back, "waits for you").await;
        // The move to this month ends after the last ack; only then a subscription is answered.
        agent.register().await;
        let dropped = fixture.stdout_of(&drop_those_of_long_ago(1000)).await;
        assert!(dropped.starts_with("found 1 user last"), "{dropped}");
        assert!(dropped.contains("\ndropped 1 user; 0 connected meanwhile"), "{dropped}");
        let old = format!("dropped {}, which no agent is on\n", long_ago());
        fixture.prints("tables drop-old", &old).await;
        assert!(!fixture.stdout_of("tables list").await.contains(&long_ago().to_string()));

        push_to(&mut agent, &channel).await;
        let gone = Sender::new().post(&lost.endpoint).ttl(60).body("x").send().await;
        assert_eq!(gone.status, 410, "{gone}");
        assert_ne!(Agent::uaid_for(&fixture.server, &away).await, away);
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
        fixture.prints("tables drop-old --force", &format!("{from} stays in use")).await;
        assert!(fixture.server.terminate().success());

        let confirmed =
            if fixture.is_embedded() { copy } else { format!("{copy} --server-stopped") };
        let moved = format!("moved from {from} to {to}: 1 record");
        fixture.prints(&confirmed, &moved).await;
        let next = format!("next is `kalends tables drop {from} --yes`");
        fixture.refuses(&confirmed, &next).await;
        let dropped = fixture.stdout_of(&format!("tables drop {from} --yes")).await;
        assert_eq!(dropped, format!("dropped {from}, which no agent is on\n"));
        fixture.server.restart();

        let mut agent = Agent::returned_to(&fixture.server, &uaid, "from long ago").await;
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
        let slowly = drop_those_of_long_ago(1);
        let mut slow = fixture.command(&slowly.split(' ').collect::<Vec<_>>()).spawn().unwrap();
        let mut first = String::new();
        let mut stdout = BufReader::new(slow.stdout.as_mut().unwrap());
        stdout.read_line(&mut first).await.unwrap();
        assert!(first.starts_with("found 30 users"), "{first}");
        signal(slow.id().expect("the process was not waited for"), "INT");
        let ended = within(AT_ONCE, "it ends", slow.wait_with_output()).await.unwrap();
        let reason = "stopped between two steps; run it again to continue";
        ExitOutput::from(ended).failed(1, reason);
        fixture.prints(&drop_those_of_long_ago(10_000), "dropped 30 users").await;
    }
}

/// Searches few months only: on DynamoDB each hour is a query.
fn drop_those_of_long_ago(rate: u32) -> String {
    format!("users drop-inactive --months 3 --since {} --rate {rate}", long_ago())
}
