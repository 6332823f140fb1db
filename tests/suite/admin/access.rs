//! Closed servers: who may connect, and what the end of an access token ends.

use serde_json::{Value, json};
use storage::copied_rows::CopiedRow;
use storage::maintenance::Table;
use storage::{FeedTables, Store, StoreAdmin};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tokio_tungstenite::tungstenite::Error;

use super::AdminFixture;
use crate::harness::{
    AT_ONCE, Agent, Channel, Closed, Cluster, ClusterPlan, Launch, Program, Role, Sender, Server,
    Signer, Socket, kalends, until,
};

const CLOSED: &str = "--access=token";

/// What no token is, in the order of the tests.
const NO_TOKENS: [&str; 6] = ["/", "/u/kal_x", "/u/kal_x/", "/u/a%20b", "/u/kal_x?a=b", "/u/%00/"];

impl AdminFixture {
    /// Adds a token and returns its path.
    pub(super) async fn add(&self, words: &str) -> String {
        self.path_of(&format!("add {words}")).await
    }

    /// Replaces a token and returns the path of the new one.
    async fn rotate(&self, words: &str) -> String {
        self.path_of(&format!("rotate {words}")).await
    }

    async fn path_of(&self, words: &str) -> String {
        let json = self.json_of(&format!("access {words} --json")).await;
        format!("/u/{}", json["token"].as_str().expect("a text"))
    }

    async fn tokens(&self) -> Vec<Value> {
        let listed = self.stdout_of("access list --json").await;
        listed.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }
}

/// Connects an agent at a path, once the node has followed the feed of tokens.
pub(crate) async fn hello(server: &Server, path: &str, uaid: Option<&str>) -> Agent {
    let mut socket = None;
    until(AT_ONCE, "the token is known", async || {
        socket = Socket::open_at(server, path).await.ok();
        socket.is_some()
    })
    .await;
    Agent::hello(socket.expect("waited for"), uaid).await.expect("hello is answered")
}

/// A command writes its row first and numbers it second: a kill between both leaves the row without a number.
#[actix_web::test]
async fn a_token_that_an_interrupted_command_left_is_found_by_the_next_one() {
    let mut server = Server::start_with(&[CLOSED]);
    server.run(&["access", "add", "alice"]).await.succeeded();
    assert!(server.terminate().success());
    let dir = server.data_dir();
    let store = Embedded::open(&dir, &EmbeddedOptions::new(8)).expect("the server has closed it");
    for row in store.read_rows(Table::Feeds, None).await.expect("the store works").rows {
        if let CopiedRow::Key { feed, key, .. } = row {
            store.republish_key(feed, key).await.expect("the store works");
        }
    }
    store.close().await.expect("the store closes");
    let add = server.run(&["access", "add", "alice"]).await;
    add.failed(1, "there is an access token with the name alice");
}

/// The status, the headers that a client acts on, and the body of a refused handshake.
async fn refused(server: &Server, path: &str) -> (u16, Vec<String>, Value) {
    let Err(Error::Http(answer)) = Socket::open_at(server, path).await.map(|_| ()) else {
        panic!("{path} was not refused")
    };
    let mut headers: Vec<String> = answer.headers().keys().map(ToString::to_string).collect();
    headers.sort();
    let body = answer.body().as_ref().expect("there is a body");
    (answer.status().as_u16(), headers, serde_json::from_slice(body).expect("it is JSON"))
}

async fn is_gone(channel: &Channel) {
    let sender = Sender::new();
    let push = async || sender.post(&channel.endpoint).ttl(60).body("x").send().await;
    until(AT_ONCE, "the endpoint is gone", async || push().await.status == 410).await;
    push().await.assert_error(410, 103);
}

#[actix_web::test]
async fn an_agent_needs_a_token_on_a_closed_server_only_and_each_refusal_is_alike() {
    let open = Server::start();
    let closed = AdminFixture::embedded(&[CLOSED]);
    let path = closed.add("alice").await;
    let ended = closed.add("bob").await;
    closed.stdout_of("access revoke bob").await;
    let expired = closed.add("carol --expires 1s").await;
    until(AT_ONCE, "the token expires", async || {
        closed.tokens().await.iter().any(|token| token["state"] == "expired")
    })
    .await;

    let expected = refused(&closed.server, "/").await;
    assert_eq!((expected.0, &expected.2["errno"]), (401, &json!(109)), "{expected:?}");
    for path in NO_TOKENS.into_iter().chain([&*ended, &*expired]) {
        assert_eq!(refused(&closed.server, path).await, expected, "{path}");
    }
    for path in [path.clone(), format!("{path}/"), format!("{path}?push=1")] {
        hello(&closed.server, &path, None).await;
    }
    Agent::new(&open).await;
    assert_eq!(refused(&open, "/u/kal_x").await.0, 401);
    closed.server.logged("user agents without a valid access token are refused").await;
    let log = closed.server.log();
    for token in [path, ended, expired].map(|path| path.replace("/u/", "")) {
        assert!(!log.contains(&token), "{log}");
    }
}

#[actix_web::test]
async fn a_uaid_belongs_to_the_token_that_it_was_made_with() {
    let fixture = AdminFixture::embedded(&[]);
    let (alice, bob) = (fixture.add("alice").await, fixture.add("bob").await);
    let mut agent = hello(&fixture.server, &alice, None).await;
    let channel = agent.register().await;
    let uaid = agent.leave().await;
    Sender::new().push(&channel.endpoint, "waits").await;
    // The other person, and an agent of an open server.
    for path in [&*bob, "/"] {
        assert_ne!(hello(&fixture.server, path, Some(&uaid)).await.uaid(), uaid, "{path}");
    }
    let open = Agent::new(&fixture.server).await.uaid().to_owned();
    assert_ne!(hello(&fixture.server, &alice, Some(&open)).await.uaid(), open);
    let mut agent = hello(&fixture.server, &alice, Some(&uaid)).await;
    assert_eq!(agent.uaid(), uaid);
    assert_eq!(agent.take(1).await[0].body(), "waits");
}

#[actix_web::test]
async fn a_revoked_token_closes_its_agents_and_its_endpoints_are_gone_after_a_restart_too() {
    for mut fixture in AdminFixture::engines(&[CLOSED]) {
        let (alice, bob) = (fixture.add("alice").await, fixture.add("bob").await);
        let mut agent = hello(&fixture.server, &alice, None).await;
        let channel = agent.register().await;
        let mut other = hello(&fixture.server, &bob, None).await;
        let other_channel = other.register().await;
        // It has not said hello when the token ends.
        let mut early = Socket::open_at(&fixture.server, &alice).await.expect("it is valid");

        fixture.stdout_of("access revoke alice").await;
        assert_eq!(agent.socket().closed().await, Closed(Some(4401)));
        early.send_json(&json!({"messageType": "hello", "use_webpush": true})).await;
        assert_eq!(early.receive().await, Err(Closed(Some(4401))));
        is_gone(&channel).await;
        assert_eq!(refused(&fixture.server, &alice).await.0, 401);
        let reason = "- the access token alice was revoked or has expired: pushes are answered 410";
        fixture.begins(&format!("inspect {}", channel.endpoint), reason).await;
        let why = fixture.stderr_of("access revoke alice").await;
        assert!(why.ends_with("the access token alice is revoked already"), "{why}");
        Sender::new().push_to(&mut other, &other_channel, "still here").await;

        assert!(fixture.server.terminate().success());
        // Without a server.
        fixture.stdout_of("access revoke bob").await;
        let carol = fixture.add("carol").await;
        fixture.server.restart();
        is_gone(&channel).await;
        is_gone(&other_channel).await;
        hello(&fixture.server, &carol, None).await;
        assert_eq!(refused(&fixture.server, &bob).await.0, 401);
    }
}

#[actix_web::test]
async fn a_rotated_token_ends_and_the_new_one_keeps_endpoints_and_messages() {
    for mut fixture in AdminFixture::engines(&[CLOSED]) {
        let (former, bob) = (fixture.add("alice --agents-max 2").await, fixture.add("bob").await);
        let mut agent = hello(&fixture.server, &former, None).await;
        let (uaid, channel) = (agent.uaid().to_owned(), agent.register().await);
        let mut other = hello(&fixture.server, &bob, None).await;
        let other_channel = other.register().await;
        let mut early = Socket::open_at(&fixture.server, &former).await.expect("it is valid");

        let path = fixture.rotate("alice").await;
        assert_eq!(agent.socket().closed().await, Closed(Some(4401)));
        early.send_json(&json!({"messageType": "hello", "use_webpush": true})).await;
        assert_eq!(early.receive().await, Err(Closed(Some(4401))));
        assert_eq!(refused(&fixture.server, &former).await.0, 401);
        let sender = Sender::new();
        sender.push(&channel.endpoint, "meanwhile").await;
        sender.push_to(&mut other, &other_channel, "not closed").await;
        let mut agent = hello(&fixture.server, &path, Some(&uaid)).await;
        assert_eq!(agent.uaid(), uaid);
        assert_eq!(agent.take(1).await[0].body(), "meanwhile");

        fixture.server.kill();
        // Without a server, and with another end.
        let latest = fixture.rotate("alice --expires 1h").await;
        fixture.server.restart();
        for path in [former, path] {
            assert_eq!(refused(&fixture.server, &path).await.0, 401);
        }
        assert_eq!(hello(&fixture.server, &latest, Some(&uaid)).await.uaid(), uaid);
        let tokens = fixture.tokens().await;
        let of_alice = &tokens[0];
        assert_eq!(
            (tokens.len(), &of_alice["name"], &of_alice["state"]),
            (2, &json!("alice"), &json!("valid"))
        );
        assert_eq!((&of_alice["agents_max"], of_alice["expires_s"].is_u64()), (&json!(2), true));
    }
}

#[actix_web::test]
async fn a_token_that_is_none_or_has_ended_cannot_be_rotated() {
    let fixture = AdminFixture::embedded(&[]);
    fixture.add("alice").await;
    fixture.stdout_of("access revoke alice").await;
    for name in ["alice", "bob"] {
        let why = format!("there is no valid access token with the name {name}");
        fixture.refuses(&format!("access rotate {name}"), &why).await;
    }
    assert_eq!(fixture.tokens().await.len(), 1);
    fixture.rejects(&["access rotate a/b"]).await;
}

#[actix_web::test]
async fn an_expired_token_ends_like_a_revoked_one() {
    let (before, after) = ("--clock-offset-s=0", "--clock-offset-s=3601");
    let mut fixture = AdminFixture::embedded(&[CLOSED, "--dev", before]);
    let path = fixture.add("alice --expires 1h").await;
    let channel = hello(&fixture.server, &path, None).await.register().await;
    assert!(fixture.server.terminate().success());
    fixture.restart_with(before, after);
    is_gone(&channel).await;
    assert_eq!(refused(&fixture.server, &path).await.0, 401);
    assert_eq!(fixture.tokens().await[0]["state"], "expired");
    // The name is free again.
    hello(&fixture.server, &fixture.add("alice").await, None).await;
}

#[actix_web::test]
async fn a_token_has_a_limit_of_agents_and_its_use_is_counted() {
    let fixture = AdminFixture::embedded(&[CLOSED]);
    let path = fixture.add("alice --agents-max 2").await;
    fixture.add("bob").await;
    let mut agent = hello(&fixture.server, &path, None).await;
    let second = hello(&fixture.server, &path, None).await;
    assert_eq!(refused(&fixture.server, &path).await.0, 429);
    second.leave().await;
    let _third = hello(&fixture.server, &path, None).await;
    let channel = agent.register().await;
    Sender::new().push_to(&mut agent, &channel, "12345").await;
    let tokens = fixture.tokens().await;
    let counts = |of: &Value| [of["connected"].clone(), of["pushes"].clone(), of["bytes"].clone()];
    assert_eq!(tokens.iter().map(|of| &of["name"]).collect::<Vec<_>>(), ["alice", "bob"]);
    assert_eq!(counts(&tokens[0]), [json!(2), json!(1), json!(5)]);
    assert_eq!(counts(&tokens[1]), [json!(0), json!(0), json!(0)]);
    let listed = fixture.stdout_of("access list").await;
    assert!(!listed.contains("kal_") && !format!("{tokens:?}").contains("sha256"), "{listed}");
}

#[actix_web::test]
async fn the_tokens_are_no_feed_of_the_feed_commands_and_a_wrong_name_is_wrong_usage() {
    let fixture = AdminFixture::embedded(&[]);
    fixture.add("alice").await;
    assert!(!fixture.stdout_of("feed list").await.contains("access"));
    let wrong =
        ["feed tail .access --once", "feed delete .access x", "access add a/b", "access add"];
    fixture.rejects(&wrong).await;
    fixture.refuses("access add alice", "there is an access token with the name alice").await;
    fixture.refuses("access revoke bob", "there is no access token with the name bob").await;
}

/// The command works on the tables, and each node follows them.
#[actix_web::test]
async fn a_token_is_known_and_ends_on_every_node_of_a_cluster() {
    let cluster = Cluster::launch(ClusterPlan::of(2, 2).with(&[CLOSED, "--feed-poll-ms=50"]));
    let run = async |words: &[&str]| {
        let launch = cluster.launch_of(Role::Endpoint);
        let mut command = kalends(words);
        let is_store =
            |word: &&String| word.starts_with("--store") || word.starts_with("--dynamodb");
        command.args(launch.arguments.iter().filter(is_store)).envs(launch.variables);
        Program::run(command).await.succeeded()
    };
    let added = run(&["access", "add", "alice", "--json"]).await;
    let added: Value = serde_json::from_str(&added).expect("it is JSON");
    let path = format!("/u/{}", added["token"].as_str().expect("a text"));
    let mut agents = Vec::new();
    for node in &cluster.connection_nodes {
        agents.push(hello(node, &path, None).await);
    }
    let channel = agents[0].register().await;
    Sender::new().push_to(&mut agents[0], &channel, "x").await;
    run(&["access", "revoke", "alice"]).await;
    for agent in &mut agents {
        assert_eq!(agent.socket().closed().await, Closed(Some(4401)));
    }
    for node in [0, 1] {
        let endpoint = cluster.endpoint(node, &channel);
        is_gone(&Channel { endpoint, ..channel.clone() }).await;
    }
}

#[actix_web::test]
async fn only_listed_vapid_keys_push_and_get_channels_if_there_is_a_list() {
    let (listed, other) = (Signer::new(), Signer::new());
    let (mut server, before, channel) = Server::with_subscribed(&[]).await;
    before.leave().await;
    let list = format!("--vapid-keys-allowed={}", listed.key());
    server.kill();
    server.restart_as(Launch::default().with(&[&list]));
    let sender = Sender::new();
    let post = || sender.post(&channel.endpoint).ttl(60).body("x");
    let of = |signer: &Signer| post().signed(signer, &server.origin());
    assert_eq!(of(&listed).send().await.status, 201);
    for (post, why) in [
        (of(&other), "does not list the VAPID public key"),
        (post(), "takes only pushes that are signed"),
    ] {
        post.send().await.assert_refused(why, (401, 109), why);
    }

    let mut agent = Agent::new(&server).await;
    let id = "deadbeef-0000-4000-8000-decafbad0000";
    for (key, reason) in [
        (None, "this server needs the VAPID key of the application server"),
        (Some(other.key()), "this server does not list this VAPID key"),
    ] {
        let register = json!({"messageType": "register", "channelID": id, "key": key});
        let refused = agent.request(&register).await.expect("the session continues");
        let expected = json!({"messageType": "register", "channelID": id, "status": 403, "pushEndpoint": "",
            "reason": reason});
        assert_eq!(refused, expected);
    }
    let channel = agent.register_for(&listed.key()).await;
    let signed = sender.post(&channel.endpoint).ttl(60).body("x").signed(&listed, &server.origin());
    assert_eq!(signed.send().await.status, 201);
}
