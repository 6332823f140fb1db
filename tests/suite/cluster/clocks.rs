//! Nodes whose clocks differ by more than the signature of a request allows.

use serde_json::{Value, json};

use crate::admin::operator_page::values_of;
use crate::harness::{AT_ONCE, Agent, Channel, Cluster, ClusterPlan, Role, Sender, Server, until};
use crate::judgement::findings;
use crate::metrics::scrape;

const METRICS: &str = "--metrics-listen=127.0.0.1:0";

/// An endpoint node, and connection nodes whose clocks are this far ahead.
fn cluster(connection_nodes: &[i64]) -> Cluster {
    cluster_of(ClusterPlan::of(0, 1).with_endpoint_arguments(&[METRICS]), connection_nodes)
}

fn cluster_of(plan: ClusterPlan, connection_nodes: &[i64]) -> Cluster {
    // However slow this machine is, an ack is in time.
    let mut cluster = Cluster::launch(plan.with(&["--ack-wait-ms=600000"]));
    for seconds in connection_nodes {
        let launch = cluster.launch_of(Role::Connection).with(&ahead(*seconds));
        cluster.connection_nodes.push(Server::launch(launch));
    }
    cluster
}

fn ahead(seconds: i64) -> [String; 2] {
    ["--dev".to_owned(), format!("--clock-offset-s={seconds}")]
}

/// A new agent of each connection node, which has received a push.
async fn pushed_to_each(cluster: &Cluster) -> Vec<(Agent, Channel)> {
    let mut agents = Vec::new();
    for node in &cluster.connection_nodes {
        let (mut agent, channel) = Agent::subscribed(node).await;
        Sender::new().push_to(&mut agent, &channel, "direct").await;
        agents.push((agent, channel));
    }
    agents
}

async fn delivered(cluster: &Cluster) -> f64 {
    scrape(&cluster.endpoint_nodes[0]).await[r#"kalends_pushes_total{outcome="delivered"}"#]
}

async fn clocks_of(server: &Server) -> Value {
    let health = server.health().await;
    assert_eq!(health.status, 200, "{health}");
    health.json()["clocks"].clone()
}

fn list(json: &Value) -> &Vec<Value> {
    json.as_array().expect("it is a list")
}

/// Whether a number of seconds is the expected one, but for the time that a request takes.
fn is_near(seconds: &Value, expected: i64) -> bool {
    seconds.as_i64().is_some_and(|seconds| (seconds - expected).abs() <= 10)
}

async fn works_with_a_node_ahead_by(seconds: i64) {
    let cluster = cluster(&[0, seconds]);
    let [right, wrong] = &cluster.connection_nodes[..] else { panic!("there are two") };
    let mut agents = pushed_to_each(&cluster).await;
    let (mut agent, channel) = agents.pop().expect("each node has one");
    let sender = Sender::new();
    sender.push_to(&mut agent, &channel, "again").await;
    assert_eq!(delivered(&cluster).await, 3.0);

    // Each node notifies the other one of an agent that has moved.
    let mut moved = Agent::reconnect(right, agent.uaid()).await;
    assert_eq!(agent.socket().closed().await.0, Some(4409));
    sender.push_to(&mut moved, &channel, "to the right clock").await;
    let mut back = Agent::reconnect(wrong, moved.uaid()).await;
    assert_eq!(moved.socket().closed().await.0, Some(4409));
    sender.push_to(&mut back, &channel, "to the wrong clock").await;
    assert_eq!(delivered(&cluster).await, 5.0);

    // A message with a receipt is stored, and its node notified.
    let push = sender.post(&channel.endpoint).ttl(3600).header("prefer", "respond-async");
    let (answer, got) = tokio::join!(push.body("stored").send(), back.take(1));
    assert_eq!((answer.status, got[0].body()), (202, "stored"), "{answer}");
    is_named(&cluster, wrong, seconds).await;
}

/// The log, `/health`, the metrics, the operator's page and `kalends nodes` name the node.
async fn is_named(cluster: &Cluster, wrong: &Server, seconds: i64) {
    let (endpoint, node) = (&cluster.endpoint_nodes[0], wrong.router_url());
    let clocks = clocks_of(endpoint).await;
    assert_eq!((&clocks["compared"], &clocks["majority"]), (&json!(3), &json!(true)));
    let [named] = &list(&clocks["differing"])[..] else { panic!("{clocks}") };
    assert!(named["node"] == node && is_near(&named["ahead_s"], seconds), "{clocks}");
    let line = endpoint.logged("the clock of a node is wrong, set it").await;
    let line: Value = serde_json::from_str(&line).expect("the log is JSON");
    assert!(line["node"] == node && is_near(&line["difference_s"], seconds), "{line}");

    let metrics = scrape(endpoint).await;
    let difference = |node: &str, direction: &str| {
        let labels = format!(r#"{{node="{node}",direction="{direction}"}}"#);
        metrics[&format!("kalends_node_clock_difference_seconds{labels}")]
    };
    let [shown, other] = if seconds < 0 { ["behind", "ahead"] } else { ["ahead", "behind"] };
    assert!((difference(&node, shown) - seconds.abs() as f64).abs() <= 10.0, "{metrics:?}");
    assert_eq!((difference(&node, other), difference("this server", shown)), (0.0, 0.0));

    let direction = if seconds < 0 { " behind the others" } else { " ahead of the others" };
    let is_told =
        |text: &str| text.contains(&format!("he clock of {node} is ")) && text.contains(direction);
    let told = values_of(endpoint).await["findings"].clone();
    let [told] = &list(&told)[..] else { panic!("{told}") };
    assert_eq!(told["check"], "clock");
    assert!(told["found"].as_str().is_some_and(is_told), "{told}");
    let printed = endpoint.run(&["nodes", "--store=dynamodb"]).await.stdout;
    assert!(is_told(&printed), "{printed}");
}

#[actix_web::test]
async fn a_node_minutes_ahead_or_behind_has_direct_pushes_notifications_and_moves_and_is_named() {
    for seconds in [120, -120, 1200, -1200] {
        println!("{seconds} s ahead");
        works_with_a_node_ahead_by(seconds).await;
    }
}

#[actix_web::test]
async fn an_endpoint_node_whose_clock_is_wrong_names_itself() {
    for seconds in [1200, -1200] {
        let [dev, offset] = ahead(seconds);
        let plan = ClusterPlan::of(0, 1).with_endpoint_arguments(&[METRICS, &dev, &offset]);
        let cluster = cluster_of(plan, &[0, 0]);
        pushed_to_each(&cluster).await;
        assert_eq!(delivered(&cluster).await, 2.0);
        let clocks = clocks_of(&cluster.endpoint_nodes[0]).await;
        let [named] = &list(&clocks["differing"])[..] else { panic!("{clocks}") };
        assert!(named["node"] == "this server" && is_near(&named["ahead_s"], seconds), "{clocks}");
        // It only calls: those that it introduced itself to find it too.
        let (called, direction) =
            (&cluster.connection_nodes[0], if seconds < 0 { "behind" } else { "ahead of" });
        until(AT_ONCE, "the called node finds its clock", async || {
            let found = findings(called).await;
            found.iter().any(|it| it["found"].as_str().is_some_and(|it| it.contains(direction)))
        })
        .await;
    }
}

#[actix_web::test]
async fn of_two_nodes_both_are_named_until_the_clock_is_set() {
    let mut cluster = cluster(&[-1200]);
    let (mut agent, channel) = pushed_to_each(&cluster).await.pop().expect("the node has one");
    let clocks = clocks_of(&cluster.endpoint_nodes[0]).await;
    assert_eq!(clocks["majority"], false);
    let [here, there] = &list(&clocks["differing"])[..] else { panic!("{clocks}") };
    assert!(here["node"] == "this server" && is_near(&here["ahead_s"], 1200), "{clocks}");
    let node = cluster.connection_nodes[0].router_url();
    assert!(there["node"] == node && is_near(&there["ahead_s"], -1200), "{clocks}");

    let launch = cluster.launch_of(Role::Connection);
    cluster.connection_nodes[0].kill();
    cluster.connection_nodes[0].restart_as(launch);
    agent = Agent::reconnect(&cluster.connection_nodes[0], agent.uaid()).await;
    // The breaker may be open after the restart.
    let acker = agent.ack_in_background();
    until(AT_ONCE, "the clocks agree", async || {
        Sender::new().push(&channel.endpoint, "after").await;
        let clocks = clocks_of(&cluster.endpoint_nodes[0]).await;
        clocks == json!({"compared": 2, "majority": true, "differing": []})
    })
    .await;
    drop(acker);
}

#[actix_web::test]
async fn a_node_more_than_a_day_away_gets_its_messages_from_the_store() {
    let cluster = cluster(&[2 * 24 * 60 * 60]);
    let (agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    let (ttl, sender) = (30 * 24 * 60 * 60, Sender::new());
    assert_eq!(sender.post(&channel.endpoint).ttl(ttl).body("stored").send().await.status, 201);
    assert_eq!(delivered(&cluster).await, 0.0);
    cluster.endpoint_nodes[0].logged("a node rejects a signature, or is not of this cluster").await;
    assert_eq!(clocks_of(&cluster.endpoint_nodes[0]).await, Value::Null);
    // No node knows the other one: the one that refuses says from where it was called.
    let found = findings(&cluster.connection_nodes[0]).await;
    let refused = "Calls from 127.0.0.1 are refused, as their clock is 48 h behind this one";
    let is_refused = |finding: &Value| {
        finding["check"] == "clock"
            && finding["found"].as_str().is_some_and(|it| it.starts_with(refused))
    };
    assert!(found.iter().any(is_refused), "{found:?}");
    let uaid = agent.leave().await;
    let got = Agent::reconnect(&cluster.connection_nodes[0], &uaid).await.take(1).await;
    assert_eq!(got[0].body(), "stored");
}
