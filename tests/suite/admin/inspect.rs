//! `kalends inspect`: the sentence for each state of an agent, the facts as JSON, and arguments that name nothing.

use serde_json::Value;

use super::AdminFixture;
use crate::harness::{AT_ONCE, Agent, Cluster, Sender, Server, until};

async fn inspect(fixture: &AdminFixture, target: &str) -> Value {
    fixture.json_of(&format!("inspect {target} --json")).await
}

/// Checks how the first reason begins, which is the first line for people too.
async fn reason(fixture: &AdminFixture, target: &str, expected: &str) -> String {
    let facts = inspect(fixture, target).await;
    let first = facts["findings"][0].as_str().expect("there is a finding").to_owned();
    let text = fixture.stdout_of(&format!("inspect {target}")).await;
    let began = first.split(';').next().expect("a split has a first part");
    assert!(text.starts_with(&format!("- {began}")), "{text}");
    assert!(first.starts_with(expected), "{first}");
    first
}

#[actix_web::test]
async fn each_state_of_an_agent_has_its_reason() {
    for mut fixture in AdminFixture::engines(&[]) {
        let mut agent = Agent::new(&fixture.server).await;
        let (channel, other) = (agent.register().await, agent.register().await);
        reason(&fixture, &channel.endpoint, "nothing hinders a push").await;
        agent.unregister(&other).await;
        reason(&fixture, &other.endpoint, "the channel is not registered").await;

        let uaid = agent.leave().await;
        let answer = Sender::new().push(&channel.endpoint, "a secret text").await;
        let message = answer.location();
        let expected = "the user agent is not connected; it connected last";
        let away = reason(&fixture, &channel.endpoint, expected).await;
        assert!(away.contains("; 1 message waits, the oldest for"), "{away}");
        let facts = inspect(&fixture, &message).await;
        assert_eq!((&facts["uaid"], &facts["message"]["is_waiting"]), (&uaid.into(), &true.into()));
        Sender::new().delete(&message).await;
        assert_eq!(inspect(&fixture, &message).await["message"]["is_waiting"], false);

        assert!(fixture.server.terminate().success());
        let expected = match fixture.is_embedded() {
            true => "no server runs on this store",
            false => "the user agent is not connected",
        };
        reason(&fixture, &channel.endpoint, expected).await;
    }
}

#[actix_web::test]
async fn the_facts_have_no_contents_and_no_tokens() {
    let fixture = AdminFixture::embedded(&[]);
    let (uaid, channel) = Agent::offline_with(&fixture.server, "a secret text").await;
    let facts = inspect(&fixture, &channel.endpoint).await;
    assert_eq!(facts["uaid"], *uaid);
    assert_eq!(facts["endpoint"]["channel"], *channel.id);
    assert_eq!(facts["endpoint"]["kind"], "short");
    assert_eq!(facts["endpoint"]["crypto_key"], 1);
    assert_eq!(facts["waiting"]["messages"], 1);
    assert_eq!(facts["waiting"]["bytes"], 13);
    assert_eq!(facts["waiting"]["by_urgency"]["normal"], 1);
    assert_eq!(facts["record"]["router_type"], "webpush");
    assert_eq!(facts["months"][0]["channels"], 1);
    let token = channel.endpoint.rsplit('/').next().expect("a URL has a path");
    for text in
        [facts.to_string(), fixture.stdout_of(&format!("inspect {}", channel.endpoint)).await]
    {
        assert!(!text.contains("a secret text") && !text.contains(token), "{text}");
    }
}

#[actix_web::test]
async fn an_agent_that_does_not_ack_is_named_busy() {
    let fixture = AdminFixture::embedded(&["--unacked-max=1", "--ack-wait-ms=600000"]);
    let (mut agent, channel) = Agent::subscribed(&fixture.server).await;
    let sender = Sender::new();
    let push = sender.push(&channel.endpoint, "x");
    let look = async {
        let sent = agent.notification().await;
        let expected = "the user agent is connected and has not acked 1 message: it is busy";
        let busy = reason(&fixture, agent.uaid(), expected).await;
        assert!(busy.contains("; the oldest was sent "), "{busy}");
        let session = &inspect(&fixture, agent.uaid()).await["connection"];
        assert_eq!((&session["unacked"], &session["overdue"]), (&1.into(), &0.into()));
        assert!(session["unacked_since_ms"].is_u64(), "{session}");
        agent.ack(&sent).await;
    };
    tokio::join!(push, look);
}

#[actix_web::test]
async fn an_argument_that_names_nothing_here_is_refused() {
    let (fixture, other) = (AdminFixture::embedded(&[]), Server::start());
    let (_, foreign) = Agent::offline(&other).await;
    let why = "the endpoint was made with a key that this server does not have";
    fixture.refuses(&format!("inspect {}", foreign.endpoint), why).await;
    let ended = fixture.run("inspect https://example.net/").await;
    ended.failed(2, "expected an endpoint (https://HOST/wpush/...)");
    let (unknown, why) =
        ("0190a4a3b00070008000000000000001", "there is no record of the user agent");
    reason(&fixture, unknown, why).await;

    let (_, channel) = Agent::offline(&fixture.server).await;
    let moved = channel.endpoint.replace(&fixture.server.origin(), "https://old.example.net");
    let other = "the endpoint is of another origin: it begins with https://old.example.net";
    reason(&fixture, &moved, other).await;
}

#[actix_web::test]
async fn a_node_is_asked_whether_the_agent_is_connected_to_it() {
    let mut cluster = Cluster::start(1, 1);
    let (_agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    let looked = look(&cluster, &channel.endpoint).await;
    assert!(looked.contains("which answers\n"), "{looked}");
    assert!(looked.starts_with("- nothing hinders a push"), "{looked}");
    cluster.connection_nodes[0].kill();
    let looked = look(&cluster, &channel.endpoint).await;
    assert!(looked.contains(" and that node does not answer: cannot connect: "), "{looked}");
}

/// On the machine of the endpoint node.
async fn look(cluster: &Cluster, target: &str) -> String {
    cluster.endpoint_nodes[0].run(&["inspect", target, "--store=dynamodb"]).await.succeeded()
}

#[actix_web::test]
async fn a_limit_that_refuses_further_pushes_is_named() {
    let fixture = AdminFixture::embedded(&["--subscription-pushes-per-minute-max=1"]);
    let (uaid, channel) = Agent::offline_with(&fixture.server, "x").await;
    let facts = inspect(&fixture, &channel.endpoint).await;
    assert_eq!(facts["limits_reached"], serde_json::json!(["subscription_pushes_per_minute_max"]));
    let of_agent = inspect(&fixture, &uaid).await;
    assert_eq!(of_agent["limits_reached"], serde_json::json!([]), "{of_agent}");
}

#[actix_web::test]
async fn the_last_pushes_are_shown_with_their_outcomes() {
    let fixture = AdminFixture::embedded(&["--subscription-pushes-per-minute-max=4"]);
    let mut agent = Agent::new(&fixture.server).await;
    let (channel, other) = (agent.register().await, agent.register().await);
    let sender = Sender::new();
    let (answer, ()) = tokio::join!(sender.push(&channel.endpoint, "direct"), async {
        let got = agent.notification().await;
        agent.ack(&got).await;
    });
    let direct = answer.location();
    let uaid = agent.leave().await;
    sender.push(&channel.endpoint, "stored").await;
    let push = async |ttl| sender.post(&channel.endpoint).ttl(ttl).body("x").send().await.status;
    assert_eq!((push(0).await, push(60).await, push(60).await), (201, 201, 429));
    let outcomes = async |target: &str| {
        let facts = inspect(&fixture, target).await;
        let pushes = facts["pushes"].as_array().expect("the server takes pushes").clone();
        pushes.iter().map(|push| push["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ["over_limit", "stored", "dropped", "stored", "delivered"];
    assert_eq!(outcomes(&channel.endpoint).await, all);
    assert_eq!(outcomes(&other.endpoint).await, [""; 0]);
    assert_eq!(outcomes(&direct).await, ["delivered"]);
    let facts = inspect(&fixture, &direct).await;
    let found = facts["findings"].to_string();
    assert!(found.contains(" was delivered ") && found.contains(" ms"), "{found}");
    let text = fixture.stdout_of(&format!("inspect {}", channel.endpoint)).await;
    assert!(text.contains("refused with 429: a limit by sender was reached"), "{text}");
    assert!(text.contains("ago, TTL 60 s, normal: "), "the channel is known: {text}");
    assert!(text.contains("stored: the user agent was not connected; it waits\n"), "{text}");
    let text = fixture.stdout_of(&format!("inspect {}", facts["uaid"].as_str().unwrap())).await;
    assert!(text.contains(&format!("channel {}, TTL 60 s, normal", channel.id)), "{text}");

    let mut agent = Agent::reconnect(&fixture.server, &uaid).await;
    agent.take(2).await;
    until(AT_ONCE, "both are acked and deleted", async || {
        inspect(&fixture, &uaid).await["waiting"]["messages"] == 0
    })
    .await;
    let text = fixture.stdout_of(&format!("inspect {uaid}")).await;
    let since = "stored: the user agent was not connected; since then it was delivered, ";
    assert!(text.contains(since) && !text.contains("it waits"), "{text}");

    let none = AdminFixture::embedded(&["--push-history-max=0"]);
    let (_, channel) = Agent::offline(&none.server).await;
    sender.push(&channel.endpoint, "stored").await;
    assert_eq!(inspect(&none, &channel.endpoint).await["pushes"], Value::Array(Vec::new()));
}
