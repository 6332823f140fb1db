//! `kalends nodes`, and what servers on the same tables tell each other.

use std::collections::BTreeSet;

use kalends::settings::keys::{Keys, generate};
use serde_json::{Value, json};

use super::operator_page::values_with;
use crate::harness::{
    AT_ONCE, Agent, Cluster, ClusterPlan, Launch, Role, Sender, Server, WireServer, dynamo,
    introduce, until,
};

const DYNAMO: &str = "--store=dynamodb";

/// What the command prints with `--json`, run beside this server. It fails if a node does not answer.
async fn nodes_of(server: &Server, more: &[&str], code: i32) -> Value {
    let ended = server.run(&[&["nodes", "--json"], more].concat()).await;
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str::<Value>(&ended.stdout).expect("it prints JSON")["nodes"].clone()
}

fn list(rows: &Value) -> &[Value] {
    rows.as_array().expect("the nodes are a list")
}

/// The row of the node with this name.
fn row<'a>(rows: &'a Value, node: &str) -> &'a Value {
    let found = list(rows).iter().find(|row| row["node"] == node);
    found.unwrap_or_else(|| panic!("{node} is not among {rows}"))
}

/// The port in the name of each node, with its role.
fn roles(rows: &Value) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let port = |row: &Value| text(&row["node"]).rsplit(':').next().unwrap_or_default().to_owned();
    list(rows).iter().map(|row| (port(row), text(&row["role"]))).collect()
}

/// What [`roles`] has of all nodes.
fn roles_of(cluster: &Cluster) -> BTreeSet<(String, String)> {
    let connections = cluster.connection_nodes.iter().map(|node| {
        let url = node.router_url();
        (url.rsplit(':').next().expect("it has a port").to_owned(), "connection".to_owned())
    });
    let endpoints = cluster.endpoint_nodes.iter();
    let endpoints =
        endpoints.map(|node| (node.address().port().to_string(), "endpoint".to_owned()));
    connections.chain(endpoints).collect()
}

#[actix_web::test]
async fn each_node_is_listed_with_its_agents_and_whether_it_answers() {
    let mut cluster = Cluster::start(2, 1);
    let mut agents = Vec::new();
    for node in [0, 0, 1] {
        agents.push(Agent::new(&cluster.connection_nodes[node]).await);
    }
    let channel = agents[2].register().await;
    for agent in &mut agents[..2] {
        agent.register().await;
    }
    let [first, second] = [0, 1].map(|node| cluster.connection_nodes[node].router_url());
    let listed = nodes_of(&cluster.connection_nodes[0], &[DYNAMO], 0).await;
    assert_eq!((&listed[0]["node"], &listed[0]["agents"]), (&json!(first), &json!(2)));
    assert_eq!(listed[0]["state"], "this_server", "{listed}");
    assert!(listed[0]["version"].is_string(), "{listed}");
    assert_eq!(listed[1]["version"], listed[0]["version"], "it says so itself");
    assert_eq!((&listed[1]["node"], &listed[1]["state"]), (&json!(second), &json!("answers")));
    assert_eq!(
        [&listed[0]["clock_ahead_s"], &listed[1]["clock_ahead_s"]],
        [&Value::Null, &json!(0)]
    );

    cluster.connection_nodes[1].kill();
    assert_eq!(Sender::new().post(&channel.endpoint).ttl(60).body("x").send().await.status, 201);
    let listed = nodes_of(&cluster.endpoint_nodes[0], &[DYNAMO], 1).await;
    let down = &listed[0];
    assert_eq!((&down["node"], &down["agents"]), (&json!(second), &json!(1)), "{listed}");
    let why = down["state"]["unreachable"].as_str().expect("it is down");
    assert!(why.starts_with("cannot connect: "), "{why}");
    assert_eq!(listed[1]["state"], "this_server", "{listed}");
    assert_eq!(row(&listed, &first)["agents"], 2, "{listed}");
}

/// Endpoint nodes have no router port: the others know them because they call.
#[actix_web::test]
async fn each_node_lists_the_whole_cluster_in_the_command_and_on_its_page() {
    let plan = ClusterPlan::of(2, 2)
        .with(&["--metrics-listen=127.0.0.1:0", "--admin-page-interval-ms=50"]);
    let cluster = Cluster::launch(plan);
    let [one, other] = &cluster.connection_nodes[..] else { panic!("there are two") };
    let (stays, channel) = Agent::subscribed(one).await;
    let _acker = stays.ack_in_background();
    // Each connection node notifies the other one of an agent that has moved.
    let (mut moves, moving) = Agent::subscribed(other).await;
    for node in [one, other] {
        let moved = Agent::reconnect(node, moves.uaid()).await;
        assert_eq!(moves.socket().closed().await.0, Some(4409));
        moves = moved;
    }
    let _mover = moves.ack_in_background();
    for channel in [&channel, &moving] {
        for endpoint in [0, 1] {
            Sender::new().push(&cluster.endpoint(endpoint, channel), "direct").await;
        }
    }

    let expected = roles_of(&cluster);
    assert_eq!(expected.len(), 4);
    for node in cluster.connection_nodes.iter().chain(&cluster.endpoint_nodes) {
        let mut listed = Value::Null;
        until(AT_ONCE, "the command lists all nodes", async || {
            listed = nodes_of(node, &[DYNAMO], 0).await;
            roles(&listed) == expected
        })
        .await;
        let is_this = |row: &&Value| row["state"] == "this_server";
        assert_eq!(list(&listed).iter().filter(is_this).count(), 1, "{listed}");
        for row in list(&listed) {
            assert_eq!(row["version"], listed[0]["version"], "{listed}");
            // An endpoint node is known by its calls, unless it is asked itself.
            let calls = row["role"] == "endpoint" && !is_this(&row);
            assert_eq!(row["state"] == "calls", calls, "{listed}");
            let is_recent = |ago: &Value| ago.as_u64().is_some_and(|seconds| seconds < 300);
            assert_eq!(is_recent(&row["called_s_ago"]), calls, "{listed}");
            assert_eq!(row["clock_ahead_s"] == 0, !is_this(&row), "{listed}");
        }
        let page = values_with(node, |page| roles(&page["nodes"]) == expected).await;
        let agents = list(&page["nodes"]).iter().filter_map(|row| row["agents"].as_u64());
        assert_eq!(agents.sum::<u64>(), 2, "{}", page["nodes"]);
    }
}

#[actix_web::test]
async fn a_node_that_is_away_and_one_with_a_wrong_clock_are_both_found_and_listed() {
    let plan = ClusterPlan::of(2, 1).with(&[
        "--metrics-listen=127.0.0.1:0",
        "--admin-page-interval-ms=50",
        "--ack-wait-ms=600000",
    ]);
    let mut cluster = Cluster::launch(plan);
    let ahead = ["--dev", "--clock-offset-s=1200"];
    let launch = cluster.launch_of(Role::Connection).with(&ahead);
    cluster.connection_nodes.push(Server::launch(launch));
    let mut agents = Vec::new();
    for node in &cluster.connection_nodes {
        let (mut agent, channel) = Agent::subscribed(node).await;
        Sender::new().push_to(&mut agent, &channel, "direct").await;
        agents.push(agent);
    }
    let [away, _, wrong] = [0, 1, 2].map(|at| cluster.connection_nodes[at].router_url());
    // No push is sent to it: the page asks it.
    cluster.connection_nodes[0].kill();
    let endpoint = &cluster.endpoint_nodes[0];
    let checks = |page: &Value| -> Vec<String> {
        let found = list(&page["findings"]).iter();
        found.filter_map(|it| it["check"].as_str().map(str::to_owned)).collect()
    };
    let page = values_with(endpoint, |page| checks(page) == ["nodes", "clock"]).await;
    let found = list(&page["findings"]);
    assert_eq!(found[0]["found"], format!("1 node does not answer: {away}"));
    assert!(found[1]["found"].as_str().is_some_and(|it| it.contains(&wrong)), "{page}");
    let is_listed = |page: &Value| {
        let rows = list(&page["nodes"]);
        let of = |node: &str| rows.iter().find(|row| row["node"] == node);
        of(&away).is_some_and(|row| row["state"]["unreachable"].is_string())
            && of(&wrong).is_some_and(|row| row["clock_ahead_s"].as_i64() > Some(1000))
    };
    values_with(endpoint, is_listed).await;
    // It is on one screen too, which names the node that shows it.
    let printed = endpoint.run(&["status"]).await.succeeded();
    for part in [" (endpoint node)\n", &format!("1 node does not answer: {away}"), &wrong] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let status: Value = serde_json::from_str(&endpoint.run(&["status", "--json"]).await.stdout)
        .expect("a status is JSON");
    assert_eq!(status["role"], "endpoint", "{status}");
    assert!(status["node"].as_str().is_some_and(|node| node.contains(':')), "{status}");
}

#[actix_web::test]
async fn a_stranger_who_introduces_itself_is_refused_and_not_listed() {
    let cluster = Cluster::start(1, 1);
    let node = &cluster.connection_nodes[0];
    let strange = Keys::from_texts(&[generate().as_str()]).expect("it is a key");
    let strange = strange.with_cluster_texts(&[generate().as_str()]).expect("it is a key");
    let own = Keys::load(&node.data_dir()).expect("the node has keys");
    assert_eq!(introduce(node, &strange, "stranger:1", "1").await, 401);
    assert_eq!(introduce(node, &own, "endpoint:1", "1").await, 404, "no agent has this uaid");
    let listed = nodes_of(node, &[DYNAMO], 0).await;
    assert!(list(&listed).iter().all(|row| row["node"] != "stranger:1"), "{listed}");
    assert_eq!(row(&listed, "endpoint:1")["state"], "calls");
}

#[actix_web::test]
async fn a_new_node_lists_itself_and_which_nodes_are_listed_later() {
    let cluster = Cluster::start(1, 1);
    let later = "another connection node is listed once a user agent has connected to it";
    let (connection, endpoint) = (&cluster.connection_nodes[0], &cluster.endpoint_nodes[0]);
    for (node, role) in [(connection, "connection"), (endpoint, "endpoint")] {
        let printed = node.run(&["nodes", DYNAMO]).await.succeeded();
        let own = printed.lines().nth(1).unwrap_or_default();
        assert!(
            own.contains(&format!("  {role}  ")) && own.ends_with("  this server"),
            "{printed}"
        );
        assert!(printed.contains(later), "{printed}");
    }
    let printed = Server::start().run(&["nodes"]).await.succeeded();
    assert!(printed.ends_with("\nNo user agent is connected.\n"), "{printed}");
}

#[actix_web::test]
async fn a_single_server_lists_itself_and_a_stopped_one_its_agents() {
    let (mut server, mut agent) = Server::with_agent(&[]).await;
    agent.register().await;
    let listed = nodes_of(&server, &[], 0).await;
    assert_eq!((&listed[0]["node"], &listed[0]["agents"]), (&json!("local"), &json!(1)));
    assert_eq!(listed[0]["state"], "this_server");
    server.kill();
    let listed = nodes_of(&server, &[], 1).await;
    assert_eq!(listed[0]["state"], json!({"unreachable": "no server runs on the data directory"}));
}

#[actix_web::test]
async fn servers_on_the_same_tables_report_other_settings_and_each_other() {
    const SETTING: &str = "a setting differs from that of the server that started before";
    const SERVER: &str = "another server has used these tables";
    let wire = WireServer::start();
    let url = "--public-url=https://push.example.net";
    let mut first = Server::launch(dynamo::launch(&wire.url).with(&[url]));
    assert!(first.terminate().success());
    first.restart();
    let log = first.log();
    assert!(!log.contains(SETTING) && !log.contains(SERVER), "{log}");

    let keys = std::fs::read_to_string(first.data_dir().join("keys.toml")).unwrap();
    let other = "--public-url=https://push.example.org";
    let launch = dynamo::launch(&wire.url).with(&[other, "--simplepush=true"]);
    let second = Server::launch(Launch { keys: Some(keys), ..launch });
    for told in [
        SERVER,
        r#""other":"https://push.example.net","value":"https://push.example.org","setting":"public_url""#,
        r#""other":"false","value":"true","setting":"simplepush""#,
    ] {
        second.logged(told).await;
    }
}
