//! `kalends nodes`, and what servers on the same tables tell each other.

use serde_json::{Value, json};

use crate::harness::{Agent, Cluster, Launch, Sender, Server, WireServer, dynamo};

/// What the command prints with `--json`, run beside this server. It fails if a node does not answer.
async fn nodes_of(server: &Server, more: &[&str], code: i32) -> Value {
    let ended = server.run(&[&["nodes", "--json"], more].concat()).await;
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str::<Value>(&ended.stdout).expect("it prints JSON")["nodes"].clone()
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
    let dynamo = ["--store=dynamodb"];
    let listed = nodes_of(&cluster.connection_nodes[0], &dynamo, 0).await;
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
    let listed = nodes_of(&cluster.endpoint_nodes[0], &dynamo, 1).await;
    assert_eq!(listed[0]["agents"], 2, "{listed}");
    let down = &listed[1];
    assert_eq!((&down["node"], &down["agents"]), (&json!(second), &json!(1)));
    let why = down["state"]["unreachable"].as_str().expect("it is down");
    assert!(why.starts_with("cannot connect: "), "{why}");
}

#[actix_web::test]
async fn a_single_server_lists_itself_and_a_stopped_one_its_agents() {
    let mut server = Server::start();
    let mut agent = Agent::new(&server).await;
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
