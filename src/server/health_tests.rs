//! `/__heartbeat__` of a real node, in process, whose actors are gone.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use actix::{Arbiter, System};
use actix_web::App;
use actix_web::test::{TestRequest, call_and_read_body_json, init_service};
use actix_web::web::Data;
use actors::mailbox::BoundedAddr;
use actors::{Directory, NoPeers, RegistryActor};
use serde_json::{Value, json};
use slog::{Discard, Logger, o};
use state_machine::delivery::NodeAnswer;

use super::hostile_request_tests::node;
use crate::push::app::{AppState, WebSocketRole};
use crate::push::routes;

#[test]
fn a_registry_that_has_ended_or_does_not_answer_makes_the_node_unhealthy() {
    let dir = tempfile::tempdir().unwrap();
    System::new().block_on(async {
        let mut node = node(dir.path()).await.app;
        assert_eq!(heartbeat(&node).await["status"], "OK");

        let thread = Arbiter::new();
        replace_registry(&mut node, registry(&thread));
        assert_eq!(heartbeat(&node).await["status"], "OK");
        let (gate, gated) = channel();
        assert!(thread.spawn_fn(move || wait(&gated)));
        assert_eq!(failed(&heartbeat(&node).await), ["registry"]);

        drop(gate);
        assert!(thread.stop());
        thread.join().unwrap();
        assert_eq!(failed(&heartbeat(&node).await), ["registry"]);
    });
}

#[test]
fn each_actor_of_a_thread_that_has_ended_is_named() {
    let dir = tempfile::tempdir().unwrap();
    System::new().block_on(async {
        let (thread, path) = (Arbiter::new(), dir.path().to_owned());
        let (started, app) = channel();
        let is_sent = thread.spawn_fn(move || {
            actix::spawn(async move { started.send(node(&path).await.app).unwrap() });
        });
        assert!(is_sent);
        let app = app.recv().unwrap();
        assert_eq!(heartbeat(&app).await["status"], "OK");
        assert!(thread.stop());
        thread.join().unwrap();
        assert_eq!(failed(&heartbeat(&app).await), ["broadcasts", "feeds", "registry"]);
    });
}

fn wait(gate: &Receiver<()>) {
    // Ends when the sender is dropped.
    let _ = gate.recv();
}

/// A registry on a thread of its own.
fn registry(thread: &Arbiter) -> BoundedAddr<RegistryActor> {
    let (started, address) = channel();
    let is_sent = thread.spawn_fn(move || {
        let peers = Arc::new(NoPeers(NodeAnswer::NotHere));
        let registry =
            Directory::start(RegistryActor::new(16, peers, Logger::root(Discard, o!())), None);
        started.send(registry.registry().clone()).unwrap();
    });
    assert!(is_sent);
    address.recv().unwrap()
}

fn replace_registry(node: &mut AppState, registry: BoundedAddr<RegistryActor>) {
    let role = node.connections.take().expect("it is a node of all roles").into_inner();
    let mut role: WebSocketRole = Arc::into_inner(role).expect("nothing else holds it");
    let clients = Arc::get_mut(&mut role.clients).expect("no client is connected");
    clients.registry = registry;
    node.connections = Some(Data::new(role));
}

async fn heartbeat(node: &AppState) -> Value {
    let service = init_service(App::new().configure(routes::of(node))).await;
    call_and_read_body_json(&service, TestRequest::with_uri("/__heartbeat__").to_request()).await
}

/// The checks that failed.
fn failed(health: &Value) -> Vec<&str> {
    assert_eq!((&health["status"], &health["code"]), (&json!("unhealthy"), &json!(503)));
    assert_eq!(health["connections"], Value::Null);
    let checks = health["checks"].as_object().unwrap();
    let failed = checks.iter().filter(|(_, passed)| **passed == false);
    let mut failed: Vec<_> = failed.map(|(name, _)| name.as_str()).collect();
    failed.sort_unstable();
    failed
}
