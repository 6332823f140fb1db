//! The operator's page in a real Firefox.

use std::collections::BTreeSet;
use std::fs;

use actix_web::rt::System;
use kalends::settings::keys::Keys;
use rustix::fs::statvfs;
use serde_json::json;

use super::firefox::Firefox;
use super::page_check::{ENTER, TAB, assert_no_errors, assert_page, picture};
use super::profile::Profile;
use super::turn::Turn;
use crate::harness::{
    Agent, Cluster, ClusterPlan, Launch, Role, Sender, Server, free_port, introduce,
};
use crate::metrics::metrics_url;

/// The keys of the remote control.
const LEFT: &str = "\u{E012}";
const RIGHT: &str = "\u{E014}";

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
pub(super) fn sign_in(firefox: &mut Firefox, server: &Server, address: &str) {
    let link = System::new().block_on(server.run(&["access", "operator"])).succeeded();
    assert!(link.starts_with(&format!("http://{address}/")), "{link}");
    firefox.open(link.trim());
    press_on(firefox, "document.activeElement.textContent === 'Sign in'");
    wait(
        firefox,
        "location.pathname === '/admin' && document.getElementById('state')?.className === 'up'",
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

/// Waits until the condition holds, in the page that is open then. It is loaded with its style sheet: a script of a test
/// that asks for places of elements before that is an error in the console.
pub(super) fn wait(firefox: &mut Firefox, condition: &str) {
    let script = format!(
        "return (async () => {{ for (let turn = 0; turn < 100; turn++) {{ \
         if (document.readyState === 'complete' && ({condition})) return true; await new Promise(done => setTimeout(done, 50)); }} return false; }})();"
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
    let _turn = Turn::wait();
    let (mut server, address) = server(&["--admin-page-interval-ms=100"]);
    let profile = Profile::new(&server.socket_url());
    let mut firefox = Firefox::start(profile.path());
    sign_in(&mut firefox, &server, &address);
    let verdict = "document.getElementById('verdict').textContent";
    let uaid = pushes(&server);
    wait(&mut firefox, &format!("{verdict}.includes(' connected, last push ')"));
    let outcomes = "document.querySelector('[data-rows=outcomes]').textContent";
    wait(&mut firefox, &format!("{outcomes}.includes('delivered1stored3')"));
    let refused = "document.querySelector('#refusals tbody').textContent";
    wait(&mut firefox, &format!("{refused}.includes('3400, errno 111the TTL header is missing')"));
    assert_page(&mut firefox, "admin-live");

    server.terminate();
    wait(&mut firefox, &format!("{verdict}.includes('does not answer')"));
    server.restart();
    wait(&mut firefox, "document.getElementById('state').className === 'up'");
    // The console has the requests that failed.
    firefox.take_errors();
    wait(&mut firefox, &format!("{outcomes} === 'OutcomeSince the start'"));
    // The history is that of both servers, with a mark at the second start.
    wait(
        &mut firefox,
        "[...document.querySelectorAll('.plot text')].some(text => text.textContent === 'start')",
    );

    focus(&mut firefox, "document.activeElement.id === 'target'");
    for letter in uaid.chars() {
        firefox.press(&letter.to_string());
    }
    firefox.press(ENTER);
    wait(
        &mut firefox,
        &format!("document.querySelector('.facts')?.textContent.includes('{uaid}')"),
    );
    assert_page(&mut firefox, "admin-inspect");
    press_on(&mut firefox, "document.activeElement.textContent === 'Drop this user agent'");
    wait(&mut firefox, "document.querySelector('.danger')?.textContent.startsWith('Drop ')");
    assert_page(&mut firefox, "admin-drop");
    press_on(&mut firefox, "document.activeElement.textContent === 'Sign out'");
    wait(&mut firefox, "location.pathname === '/admin/login'");
}

#[test]
fn the_page_of_a_new_server_leads_to_the_first_user_agent() {
    let _turn = Turn::wait();
    let ((server, address), elsewhere) =
        (server(&["--admin-page-interval-ms=100"]), Server::start());
    // Firefox is a user agent of the other server.
    let profile = Profile::new(&elsewhere.socket_url());
    let mut firefox = Firefox::start(profile.path());
    sign_in(&mut firefox, &server, &address);
    let verdict = "document.getElementById('verdict').textContent";
    wait(&mut firefox, &format!("{verdict}.includes('No user agent has connected yet')"));
    let public = firefox.run("return document.getElementById('public').href;", &json!([]));
    assert_eq!(public, format!("{}/", server.origin()));
    let title = firefox.run("return document.title;", &json!([]));
    assert_eq!(title, format!("{} · Kalends", server.address()));
    assert_page(&mut firefox, "admin-empty");
    press_on(&mut firefox, "document.activeElement.textContent === 'Run the doctor'");
    wait(&mut firefox, "document.querySelector('h2').textContent === 'Run the doctor?'");
    press_on(&mut firefox, "document.activeElement.className === 'danger'");
    wait(&mut firefox, "document.body.innerText.includes('Everything that was tried works.')");
    assert_page(&mut firefox, "admin-doctor");
    firefox.open(&format!("http://{address}/admin"));
    pushes(&server);
    wait(&mut firefox, &format!("{verdict}.includes('0 user agents connected, last push ')"));
}

/// A history of 31 days, in which the server did not run for some: `now` is in milliseconds since 1970.
fn write_history(server: &Server, now: u64) {
    const RINGS: [(u64, u64); 4] = [(15, 240), (300, 288), (1800, 336), (7200, 372)];
    let ring = |(every_s, count): (u64, u64)| {
        let every_ms = every_s * 1000;
        let end = now / every_ms * every_ms;
        let at = (0..count).map(|place| end - (count - place) * every_ms);
        let at: Vec<_> = at.filter(|at| !(3..5).contains(&((now - at) / 86_400_000))).collect();
        let wave = |size: f64, shift: f64| -> Vec<_> {
            let value = |at: &u64| (*at as f64 / 14_000_000.0 + shift).sin().abs() * size;
            at.iter().map(value).map(f64::round).collect()
        };
        let columns =
            [(40.0, 0.0), (900.0, 0.5), (120.0, 1.0), (9.0, 2.0), (20.0, 0.2), (250.0, 0.4)];
        let columns = columns.map(|(size, shift)| wave(size, shift));
        json!({ "every_ms": every_ms, "ended": at.len(), "at": at, "columns": columns })
    };
    let names = ["agents", "delivered", "stored", "refused", "direct_p50", "direct_p99"];
    let starts = [now - 20 * 86_400_000, now - 3 * 86_400_000];
    let history = json!({ "starts": starts, "names": names, "rings": RINGS.map(ring) });
    fs::write(server.data_dir().join("history.json"), history.to_string())
        .expect("it can be written");
}

#[test]
fn figures_are_read_by_the_pointer_and_the_keyboard_for_four_times() {
    let _turn = Turn::wait();
    let (mut server, address) = server(&["--admin-page-interval-ms=100"]);
    server.terminate();
    write_history(&server, server.now_s() * 1000);
    server.restart();
    let profile = Profile::new(&server.socket_url());
    let mut firefox = Firefox::start(profile.path());
    sign_in(&mut firefox, &server, &address);
    let value = |firefox: &mut Firefox, property: &str| {
        let script = format!("return document.querySelectorAll('.plot')[1].{property};");
        firefox.run(&script, &json!([])).as_str().unwrap_or_default().to_owned()
    };
    wait(
        &mut firefox,
        "document.querySelectorAll('.plot')[1].ariaValueText?.includes('delivered')",
    );
    let mut seen = BTreeSet::new();
    for (range, name) in ["hour", "day", "week", "month"].into_iter().enumerate() {
        let choose = format!(
            "const range = document.getElementById('range'); range.value = '{range}'; \
             range.dispatchEvent(new Event('change'));"
        );
        firefox.run(&choose, &json!([]));
        focus(&mut firefox, "document.activeElement === document.querySelectorAll('.plot')[1]");
        let last = value(&mut firefox, "ariaValueNow");
        for _ in 0..20 {
            firefox.press(LEFT);
        }
        let moved = value(&mut firefox, "ariaValueNow");
        let number = |text: &str| text.parse::<i64>().expect("it is a place");
        assert!((15..=20).contains(&(number(&last) - number(&moved))), "{last} {moved}");
        let text = value(&mut firefox, "ariaValueText");
        let shown = value(&mut firefox, "querySelector('figcaption').textContent");
        let (time, values) = text.split_once(": ").expect("a time and values");
        assert!(shown.contains(time) && shown.contains("Pushes in a minute"), "{shown}");
        assert!(values.split(", ").all(|value| shown.contains(value)), "{shown}: {values}");
        seen.insert(text);
        firefox.press(RIGHT);
        assert_eq!(number(&value(&mut firefox, "ariaValueNow")), number(&moved) + 1);
        let lines = "return document.querySelectorAll('.plot')[0].querySelector('path.s0')\
                     .getAttribute('d').split('M').length - 1;";
        let lines = firefox.run(lines, &json!([])).as_u64().expect("it is a number");
        // The server did not run for two days, and began again now.
        assert!(if range < 2 { lines >= 1 } else { lines >= 2 }, "{name}: {lines}");
        let pointed = firefox.run(
            "const picture = document.querySelectorAll('.plot svg')[2];
             const box = picture.getBoundingClientRect();
             picture.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width / 2, clientY: box.top + 20 }));
             return picture.querySelector('.cursor').getAttribute('d');",
            &json!([]),
        );
        assert!(pointed.as_str().is_some_and(|path| path.starts_with('M')), "{pointed}");
        picture(&mut firefox, &format!("admin-{name}"));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert_stacked(&mut firefox);
    assert_page(&mut firefox, "admin-month");
}

/// Refused pushes are above the stored ones and those above the delivered ones, and nothing else is red.
fn assert_stacked(firefox: &mut Firefox) {
    let stack = firefox.run(
        "const bars = [...document.querySelectorAll('.plot')[1].querySelectorAll('path:is(.s0, .s1, .s2)')];
         const colors = (path) => [getComputedStyle(path).fill, getComputedStyle(path).stroke];
         const red = colors(bars[2])[0];
         const isRed = [...document.querySelectorAll('.plot path')].map(path => colors(path).includes(red));
         return { tops: bars.map(path => path.getBBox().y), reds: isRed.filter(is => is).length };",
        &json!([]),
    );
    let top = |place: usize| stack["tops"][place].as_f64().expect("it is a place");
    assert!(top(2) < top(1) && top(1) < top(0), "refused is above stored and delivered: {stack}");
    assert_eq!(stack["reds"], 1, "only refused pushes are red");
}

#[test]
fn a_full_disk_is_the_verdict_and_a_fold_with_a_fault_is_open() {
    let _turn = Turn::wait();
    let source = format!("--broadcast-source-url=http://{}", free_port());
    let (mut server, address) = server(&[]);
    let disk = statvfs(server.data_dir()).expect("the disk has a size");
    let min = format!("--disk-free-min={}", disk.f_bavail * disk.f_frsize * 2);
    let port = format!("--metrics-listen={address}");
    server.terminate();
    server.restart_as(Launch::default().with(&[&min, &source, &port]));
    let profile = Profile::new(&server.socket_url());
    let mut firefox = Firefox::start(profile.path());
    sign_in(&mut firefox, &server, &address);
    wait(&mut firefox, "document.getElementById('verdict').className === 'bad'");
    let verdict = "document.getElementById('verdict').textContent";
    wait(
        &mut firefox,
        &format!("{verdict}.includes('Messages that wait for their user agent are refused')"),
    );
    let findings = "document.getElementById('findings').textContent";
    wait(
        &mut firefox,
        &format!(
            "{findings}.includes('lower disk_free_min') && {findings}.includes('broadcast_source_url gives')"
        ),
    );
    wait(&mut firefox, "document.querySelector('[data-used=feeds]').open");
    let disk = "document.querySelector('#resources [role=meter]')";
    wait(
        &mut firefox,
        &format!(
            "{disk}.ariaValueNow === '100' && {disk}.className === 'outage' && \
             {disk}.closest('tr').textContent.includes('disk_free_min') && \
             {disk}.closest('tr').textContent.includes(' free of ')"
        ),
    );
    assert_page(&mut firefox, "admin-bad");
}

#[test]
fn the_page_of_a_cluster_names_the_node_whose_clock_is_wrong() {
    let _turn = Turn::wait();
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
    let nodes = "document.querySelector('[data-rows=nodes]').textContent";
    wait(
        &mut firefox,
        &format!("{nodes}.includes('{wrong}serves') && {nodes}.includes('20 min ahead')"),
    );
    let title = firefox.run("return document.title;", &json!([]));
    assert!(title.as_str().is_some_and(|title| title.starts_with("endpoint node ")), "{title}");
    // What another role has is not there.
    let plots = "return [...document.querySelectorAll('.plot')].map(plot => plot.hidden);";
    assert_eq!(firefox.run(plots, &json!([])), json!([true, false, false]));
    assert_page(&mut firefox, "admin-clocks");
}

#[test]
fn the_page_of_a_cluster_counts_its_nodes_and_the_user_agents_of_one_that_is_down() {
    let _turn = Turn::wait();
    let plan = ClusterPlan::of(2, 1).with_endpoint_arguments(&["--metrics-listen=127.0.0.1:0"]);
    let mut cluster = Cluster::launch(plan);
    let endpoint = &cluster.endpoint_nodes[0];
    let (url, _agents) = System::new().block_on(async {
        let mut agents = Vec::new();
        for node in &cluster.connection_nodes {
            let (mut agent, channel) = Agent::subscribed(node).await;
            Sender::new().push_to(&mut agent, &channel, "direct").await;
            agents.push(agent);
        }
        let node = &cluster.connection_nodes[0];
        let keys = Keys::load(&node.data_dir()).expect("the node has keys");
        assert_eq!(introduce(node, &keys, "<i>strange</i>:1", "<b>1</b>").await, 404);
        (metrics_url(endpoint).await, agents)
    });
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    let profile = Profile::new(&endpoint.socket_url());
    let mut firefox = Firefox::start(profile.path());
    sign_in(&mut firefox, endpoint, address);
    let verdict = "document.getElementById('verdict').textContent";
    wait(&mut firefox, &format!("{verdict}.includes('4 nodes, 2 user agents connected')"));
    let nodes = "document.querySelector('[data-rows=nodes]')";
    wait(
        &mut firefox,
        &format!(
            "{nodes}.textContent.includes('<i>strange</i>:1calls, last ') && \
             {nodes}.textContent.includes('<b>1</b>') && !{nodes}.querySelector('i, b')"
        ),
    );
    assert_page(&mut firefox, "admin-nodes");
    cluster.connection_nodes[1].kill();
    let silent = "1 node does not answer; its 1 user agent reconnects elsewhere; until then pushes are stored, and \
                  those with TTL 0 dropped.";
    wait(&mut firefox, &format!("{verdict} === '{silent}'"));
}

#[test]
fn a_thousand_updates_leave_the_page_as_large_as_it_was() {
    let _turn = Turn::wait();
    let (server, address) = server(&["--admin-page-interval-ms=10"]);
    let profile = Profile::new(&server.socket_url());
    let mut firefox = Firefox::start(profile.path());
    examine_tokens(&mut firefox, &server, &address);
    firefox.open(&format!("http://{address}/admin"));
    pushes(&server);
    // The rows of user agents are as many as these, which come and go: that of Firefox connects meanwhile.
    let size = "[document.querySelectorAll('*:not(#agents tr, #agents tr *)').length, \
                document.documentElement.outerHTML.length]";
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
