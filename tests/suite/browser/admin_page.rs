//! The operator's page in a real Firefox.

use std::sync::PoisonError;

use actix_web::rt::System;
use serde_json::json;

use super::TURN;
use super::firefox::Firefox;
use super::page_check::{ENTER, TAB, assert_no_errors, assert_page};
use super::profile::Profile;
use crate::harness::{Agent, Cluster, ClusterPlan, Role, Sender, Server, free_port};
use crate::metrics::metrics_url;

/// Live updates that must not make the page grow.
const UPDATES: u32 = 1000;

/// A server with its page on a port that it has again after a restart.
fn server(arguments: &[&str]) -> (Server, String) {
    let address = free_port();
    let port = format!("--metrics-listen={address}");
    let server = Server::start_with(&[arguments, &[&port]].concat());
    (server, address.to_string())
}

/// Opens the link of the command and signs in by the keyboard.
fn sign_in(firefox: &mut Firefox, server: &Server, address: &str) {
    let link = System::new().block_on(server.run(&["access", "operator"])).succeeded();
    assert!(link.starts_with(&format!("http://{address}/")), "{link}");
    firefox.open(link.trim());
    press_on(firefox, "document.activeElement.textContent === 'Sign in'");
    wait(
        firefox,
        "location.pathname === '/admin' && ['up', 'warned'].includes(document.getElementById('state')?.className)",
    );
}

/// Moves the focus until the condition holds, and presses Enter.
fn press_on(firefox: &mut Firefox, condition: &str) {
    focus(firefox, condition);
    firefox.press(ENTER);
}

fn focus(firefox: &mut Firefox, condition: &str) {
    // The tabulator leaves the page after its last control, so it begins before the first one.
    firefox.run(
        "document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex');",
        &json!([]),
    );
    let tabs = (0..80).take_while(|_| {
        firefox.press(TAB);
        firefox.run(&format!("return {condition};"), &json!([])) != true
    });
    assert!(tabs.count() < 80, "{condition} is reached by the keyboard");
}

/// Waits until the condition holds, in the page that is open then.
fn wait(firefox: &mut Firefox, condition: &str) {
    let script = format!(
        "return (async () => {{ for (let turn = 0; turn < 100; turn++) {{ if ({condition}) return true; \
         await new Promise(done => setTimeout(done, 50)); }} return false; }})();"
    );
    // A page that is replaced meanwhile ends the script.
    let holds = (0..10).any(|_| firefox.try_run(&script, &json!([])) == Some(true.into()));
    assert!(holds, "{condition}: {}", firefox.run("return document.body.innerText;", &json!([])));
}

/// Delivers a push, and stores a few for an agent that is away.
fn pushes(server: &Server) -> String {
    System::new().block_on(async {
        let sender = Sender::new();
        let (mut agent, channel) = Agent::subscribed(server).await;
        sender.push_to(&mut agent, &channel, "direct").await;
        let uaid = agent.leave().await;
        for _ in 0..3 {
            sender
                .post(&channel.endpoint)
                .body("without a TTL")
                .send()
                .await
                .assert_error(400, 111);
        }
        for text in ["one", "two", "three"] {
            sender.push(&channel.endpoint, text).await;
        }
        uaid
    })
}

#[test]
fn the_live_page_follows_pushes_and_comes_back_after_a_restart_of_the_server() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut server, address) = server(&["--admin-page-interval-ms=100"]);
    let profile = Profile::new(&server.socket_url());
    let mut firefox = Firefox::start(profile.path());
    sign_in(&mut firefox, &server, &address);
    let delivered = "document.querySelector('[data-value=delivered]').textContent";
    wait(&mut firefox, &format!("{delivered}.startsWith('0')"));
    let uaid = pushes(&server);
    wait(&mut firefox, &format!("{delivered}.startsWith('1')"));
    let stored = "document.querySelector('[data-value=stored]').textContent";
    wait(&mut firefox, &format!("{stored}.startsWith('3')"));
    let refused = "document.querySelector('#refusals tbody').textContent";
    wait(&mut firefox, &format!("{refused}.includes('3400, errno 111the TTL header is missing')"));
    assert_page(&mut firefox, "admin-live");

    server.terminate();
    wait(&mut firefox, "document.getElementById('state').textContent.includes('does not answer')");
    server.restart();
    wait(&mut firefox, "document.getElementById('state').className === 'up'");
    // The console has the requests that failed.
    firefox.take_errors();
    wait(&mut firefox, &format!("{delivered}.startsWith('0')"));

    focus(&mut firefox, "document.activeElement.id === 'target'");
    for letter in uaid.chars() {
        firefox.press(&letter.to_string());
    }
    firefox.press(ENTER);
    wait(&mut firefox, &format!("document.querySelector('pre')?.textContent.includes('{uaid}')"));
    assert_page(&mut firefox, "admin-inspect");
    press_on(&mut firefox, "document.activeElement.textContent === 'Sign out'");
    wait(&mut firefox, "location.pathname === '/admin/login'");
}

#[test]
fn the_page_of_a_cluster_names_the_node_whose_clock_is_wrong() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = ClusterPlan::of(1, 1).with_endpoint_arguments(&["--metrics-listen=127.0.0.1:0"]);
    let mut cluster = Cluster::launch(plan);
    let ahead = ["--dev", "--clock-offset-s=1200"];
    let launch = cluster.launch_of(Role::Connection).with(&ahead);
    cluster.connection_nodes.push(Server::launch(launch));
    let endpoint = &cluster.endpoint_nodes[0];
    let url = System::new().block_on(async {
        for node in &cluster.connection_nodes {
            let (mut agent, channel) = Agent::subscribed(node).await;
            Sender::new().push_to(&mut agent, &channel, "direct").await;
        }
        metrics_url(endpoint).await
    });
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    let profile = Profile::new(&endpoint.socket_url());
    let mut firefox = Firefox::start(profile.path());
    sign_in(&mut firefox, endpoint, address);
    let [right, wrong] = [0, 1].map(|node| cluster.connection_nodes[node].router_url());
    let told = "document.getElementById('findings')";
    wait(&mut firefox, &format!("!{told}.hidden && {told}.textContent.includes('{wrong}')"));
    let names_right =
        firefox.run(&format!("return {told}.textContent.includes('{right}');"), &json!([]));
    assert_eq!(names_right, false);
    assert_page(&mut firefox, "admin-clocks");
}

#[test]
fn a_thousand_updates_leave_the_page_as_large_as_it_was() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (server, address) = server(&["--admin-page-interval-ms=10"]);
    let profile = Profile::new(&server.socket_url());
    let mut firefox = Firefox::start(profile.path());
    examine_tokens(&mut firefox, &server, &address);
    firefox.open(&format!("http://{address}/admin"));
    pushes(&server);
    let size = "[document.querySelectorAll('*').length, document.documentElement.outerHTML.length]";
    let script = format!(
        "const seen = (count) => new Promise(done => {{
            let updates = 0;
            const source = new EventSource('/admin/events');
            source.addEventListener('now', () => {{ if (++updates >= count) {{ source.close(); done(); }} }});
        }});
        return (async () => {{
            await seen(arguments[0]);
            return {size};
        }})();"
    );
    let measure = |firefox: &mut Firefox, updates: u32| {
        let size = firefox.run(&script, &json!([updates]));
        let number = |place: usize| size[place].as_u64().expect("it is a number");
        (number(0), number(1))
    };
    let (elements, characters) = measure(&mut firefox, 20);
    let mut after = (0, 0);
    for _ in 0..UPDATES / 100 {
        after = measure(&mut firefox, 100);
    }
    assert_eq!(after.0, elements, "no element is added");
    // Numbers and plots have a few more digits.
    assert!(after.1 < characters + 4096, "{characters} grew to {}", after.1);
    assert_no_errors(&mut firefox);
}

/// Looks at the access tokens and at the question before one is revoked.
fn examine_tokens(firefox: &mut Firefox, server: &Server, address: &str) {
    for name in ["alice", "bob.phone"] {
        System::new().block_on(server.run(&["access", "add", name])).succeeded();
    }
    firefox.open(&format!("http://{address}/admin"));
    assert_page(firefox, "admin-login");
    sign_in(firefox, server, address);
    press_on(firefox, "document.activeElement.textContent === 'Access tokens'");
    wait(firefox, "location.pathname === '/admin/people' && document.querySelector('table')");
    assert_page(firefox, "admin-people");
    press_on(firefox, "document.activeElement.getAttribute('aria-label') === 'Revoke alice'");
    wait(firefox, "document.body.innerText.includes('Revoke alice?')");
    assert_page(firefox, "admin-confirm");
    press_on(firefox, "document.activeElement.textContent === 'Revoke alice'");
    wait(firefox, "document.body.innerText.includes('revoked alice')");
}
