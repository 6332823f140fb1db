//! SimplePush: an agent whose hello has no `use_webpush`, and PUT of application servers.

use std::path::PathBuf;

use hyper::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use crate::harness::{
    Agent, Answer, Cluster, ClusterPlan, Program, Sender, Server, Socket, kalends, unix_now_s,
};

/// A SimplePush agent whose hello was answered.
pub(super) struct SimpleAgent {
    socket: Socket,
    uaid: String,
}

impl SimpleAgent {
    pub(super) async fn connect(server: &Server, uaid: Option<&str>) -> Self {
        let mut socket = Socket::open(server).await;
        socket.send_json(&json!({"messageType": "hello", "uaid": uaid, "channelIDs": []})).await;
        let answer = socket.receive().await.expect("the server is there");
        let uaid = answer["uaid"].as_str().expect("it is a text").to_owned();
        assert_eq!(answer, json!({"messageType": "hello", "uaid": uaid, "status": 200}));
        Self { socket, uaid }
    }

    pub(super) fn uaid(&self) -> &str {
        &self.uaid
    }

    pub(super) async fn reconnect(self, server: &Server) -> Self {
        let agent = Self::connect(server, Some(&self.uaid)).await;
        assert_eq!(agent.uaid, self.uaid, "the server forgot the agent");
        agent
    }

    /// Afterwards the agent is away for the server.
    pub(super) async fn leave(&mut self) {
        self.socket.send(Message::Close(None)).await.expect("the server is there");
        self.socket.closed().await;
    }

    /// Registers a channel. Returns its id and its endpoint.
    pub(super) async fn register(&mut self) -> (String, String) {
        let id = Uuid::new_v4().to_string();
        let endpoint = self.register_as(&id).await;
        (id, endpoint)
    }

    async fn register_as(&mut self, id: &str) -> String {
        self.socket.send_json(&json!({"messageType": "register", "channelID": id})).await;
        self.is_registered(id).await
    }

    async fn is_registered(&mut self, id: &str) -> String {
        let answer = self.socket.receive().await.expect("the server is there");
        assert_eq!((&answer["status"], &answer["channelID"]), (&json!(200), &json!(id)));
        answer["pushEndpoint"].as_str().expect("it is a text").to_owned()
    }

    pub(super) async fn gets(&mut self, update: Value) {
        let expected = json!({"messageType": "notification", "updates": [update]});
        assert_eq!(self.socket.receive().await.expect("the server is there"), expected);
    }

    pub(super) async fn ack(&mut self, update: Value) {
        self.socket.send_json(&json!({"messageType": "ack", "updates": [update]})).await;
    }

    /// A frame of an unknown type is answered after all frames before it.
    pub(super) async fn has_nothing_more(&mut self) {
        self.socket.send_json(&json!({"messageType": "a mark"})).await;
        assert_eq!(
            self.socket.receive().await.expect("the server is there")["messageType"],
            "a mark"
        );
    }
}

async fn put(endpoint: &str, form: &str) -> Answer {
    Sender::new().request(Method::PUT, endpoint).raw_body(form).send().await
}

/// The endpoint answers 202 once the version is stored.
pub(super) async fn store(endpoint: &str, form: &str) {
    let answer = put(endpoint, form).await;
    assert_eq!((answer.status, &answer.body[..]), (202, &b"Notification Stored"[..]), "{answer}");
}

#[actix_web::test]
async fn a_version_is_delivered_and_acked_and_stored_for_an_agent_that_is_away() {
    let mut server = Server::start_with(&["--simplepush=true"]);
    let mut agent = SimpleAgent::connect(&server, None).await;
    let (id, endpoint) = agent.register().await;
    let (answer, ()) = tokio::join!(put(&endpoint, "version=5&data=a+b%C3%A4"), async {
        agent.gets(json!({"channelID": id, "version": 5, "data": "a bä"})).await;
        agent.ack(json!({"channelID": id, "version": 5})).await;
    });
    assert_eq!((answer.status, &answer.body[..]), (200, &b"Delivered"[..]), "{answer}");
    agent.leave().await;

    for form in ["version=6", "version=8&data=eight", "version=7&data=seven"] {
        store(&endpoint, form).await;
    }
    server.crash();
    let mut agent = agent.reconnect(&server).await;
    agent.gets(json!({"channelID": id, "version": 8, "data": "eight"})).await;
    // Its ack is lost.
    let mut agent = agent.reconnect(&server).await;
    agent.gets(json!({"channelID": id, "version": 8, "data": "eight"})).await;
    agent.ack(json!({"channelID": id, "version": 8})).await;
    agent.has_nothing_more().await;
    let mut agent = agent.reconnect(&server).await;
    agent.has_nothing_more().await;

    let before = unix_now_s();
    let (answer, version) = tokio::join!(put(&endpoint, ""), async {
        let message = agent.socket.receive().await.unwrap();
        let update = message["updates"][0].clone();
        agent.ack(update.clone()).await;
        update["version"].as_u64().unwrap()
    });
    assert_eq!(answer.status, 200, "{answer}");
    assert!((before..=unix_now_s()).contains(&version), "{version} is not the time");
}

#[actix_web::test]
async fn a_restored_channel_has_the_version_of_the_backup_and_takes_a_later_one() {
    let mut server = Server::start_with(&["--simplepush=true"]);
    let mut agent = SimpleAgent::connect(&server, None).await;
    let (id, endpoint) = agent.register().await;
    agent.leave().await;
    store(&endpoint, "version=5").await;
    let home = tempfile::tempdir().unwrap();
    let run = async |name: &str, data_dir: PathBuf| {
        let mut command = kalends(&[name, "--data-dir"]);
        command.arg(data_dir).arg(home.path().join("a.tar"));
        Program::run(command).await.succeeded();
    };
    run("backup", server.data_dir()).await;
    store(&endpoint, "version=6").await;
    let mut agent = agent.reconnect(&server).await;
    agent.gets(json!({"channelID": id, "version": 6})).await;
    agent.ack(json!({"channelID": id, "version": 6})).await;
    agent.has_nothing_more().await;
    agent.leave().await;

    server.terminate();
    std::fs::remove_dir_all(server.data_dir()).unwrap();
    run("restore", server.data_dir()).await;
    server.restart();
    let mut agent = agent.reconnect(&server).await;
    agent.gets(json!({"channelID": id, "version": 5})).await;
    agent.ack(json!({"channelID": id, "version": 5})).await;
    agent.has_nothing_more().await;
    let (answer, ()) = tokio::join!(put(&endpoint, "version=7"), async {
        agent.gets(json!({"channelID": id, "version": 7})).await;
        agent.ack(json!({"channelID": id, "version": 7})).await;
    });
    assert_eq!(answer.status, 200, "{answer}");
}

/// The version is behind the first page that the agent has not acked yet.
#[actix_web::test]
async fn a_channel_registered_again_gets_a_version_lower_than_the_one_that_waited_before() {
    let server = Server::start_with(&["--simplepush=true", "--first-fetch-rows-max=1"]);
    let mut agent = SimpleAgent::connect(&server, None).await;
    let [low, high] =
        ["0", "f"].map(|digit| Uuid::new_v4().to_string().replacen(|_| true, digit, 1));
    let endpoints = [agent.register_as(&low).await, agent.register_as(&high).await];
    agent.leave().await;
    for endpoint in &endpoints {
        store(endpoint, "version=10").await;
    }
    let mut agent = agent.reconnect(&server).await;
    for command in ["unregister", "register"] {
        agent.socket.send_json(&json!({"messageType": command, "channelID": high})).await;
    }
    agent.gets(json!({"channelID": low, "version": 10})).await;
    let unregistered = json!({"messageType": "unregister", "channelID": high, "status": 200});
    assert_eq!(agent.socket.receive().await.expect("the server is there"), unregistered);
    let endpoint = agent.is_registered(&high).await;
    agent.leave().await;
    store(&endpoint, "version=1").await;
    let mut agent = agent.reconnect(&server).await;
    agent.gets(json!({"channelID": low, "version": 10})).await;
    agent.ack(json!({"channelID": low, "version": 10})).await;
    agent.gets(json!({"channelID": high, "version": 1})).await;
}

#[actix_web::test]
async fn a_push_of_the_other_protocol_is_refused() {
    let server = Server::start_with(&["--simplepush=true"]);
    let mut simple = SimpleAgent::connect(&server, None).await;
    let (id, endpoint) = simple.register().await;
    let (web, channel) = Agent::subscribed(&server).await;
    Sender::new().post(&endpoint).ttl(60).send().await.assert_error(400, 108);
    put(&channel.endpoint, "version=5").await.assert_error(400, 108);
    put(&endpoint, "version=five").await.assert_error(400, 999);
    let sender = Sender::new();
    let json = sender.request(Method::PUT, &endpoint);
    let json = json.header("content-type", "application/json").raw_body(r#"{"version":5}"#);
    json.send().await.assert_error(400, 999);
    // A pushkey of Matrix can be no such endpoint.
    let device = json!({"app_id": "a", "pushkey": endpoint});
    let body = json!({"notification": {"event_id": "$a", "devices": [device]}}).to_string();
    let notify = format!("{}/_matrix/push/v1/notify", server.origin());
    let answer = Sender::new().post(&notify).raw_body(body).send().await;
    let rejected = json!({"rejected": [endpoint]}).to_string();
    assert_eq!((answer.status, &answer.body[..]), (200, rejected.as_bytes()), "{answer}");
    put(&endpoint, &format!("data={}", "x".repeat(4097))).await.assert_error(413, 104);
    put(&format!("{endpoint}x"), "version=5").await.assert_error(404, 102);
    simple.socket.send_json(&json!({"messageType": "unregister", "channelID": id})).await;
    assert_eq!(simple.socket.receive().await.unwrap()["status"], 200);
    put(&endpoint, "version=5").await.assert_error(410, 106);

    // Each has a uaid of its own protocol.
    assert_ne!(Agent::uaid_for(&server, &simple.uaid).await, simple.uaid);
    let as_simple = SimpleAgent::connect(&server, Some(web.uaid())).await;
    assert_ne!(as_simple.uaid, web.uaid());
}

#[actix_web::test]
async fn without_the_setting_a_hello_is_of_web_push_and_put_is_not_allowed() {
    let server = Server::start();
    let mut socket = Socket::open(&server).await;
    socket.send_json(&json!({"messageType": "hello"})).await;
    assert_eq!(socket.receive().await.unwrap()["use_webpush"], true);
    let (_agent, channel) = Agent::subscribed(&server).await;
    put(&channel.endpoint, "version=5").await.assert_error(405, 999);
}

#[actix_web::test]
async fn a_version_reaches_an_agent_on_another_node() {
    let plan = ClusterPlan::of(2, 1).with(&["--simplepush=true"]);
    let cluster = Cluster::launch(plan);
    let mut agent = SimpleAgent::connect(&cluster.connection_nodes[0], None).await;
    let (id, endpoint) = agent.register().await;
    let (answer, ()) = tokio::join!(put(&endpoint, "version=5&data=text"), async {
        agent.gets(json!({"channelID": id, "version": 5, "data": "text"})).await;
        agent.ack(json!({"channelID": id, "version": 5})).await;
    });
    assert_eq!(answer.status, 200, "{answer}");
    agent.leave().await;
    store(&endpoint, "version=6&data=six").await;
    let mut agent = agent.reconnect(&cluster.connection_nodes[1]).await;
    agent.gets(json!({"channelID": id, "version": 6, "data": "six"})).await;
}
