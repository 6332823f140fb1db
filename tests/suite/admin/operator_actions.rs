//! What an operator does on the page: each change only after a question, and only by a form of the session.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::AdminFixture;
use super::operator_page::{Operator, PORT, body};
use crate::harness::{
    AT_ONCE, Agent, Cluster, ClusterPlan, Launch, Sender, Server, free_port, run, until,
};
use crate::metrics::scrape;

/// A server looks at what is due half a minute after its start.
const FIRST_LOOK: Duration = Duration::from_secs(120);

const CONFIRMED: (&str, &str) = ("confirmed", "yes");

/// Asks a question, which changes nothing, and sends no form of another session. Returns the page with the answer.
async fn confirm(operator: &Operator, path: &str, fields: &[(&str, &str)], asked: &str) -> String {
    let question = body(&operator.submit(path, fields).await);
    assert!(question.contains(&format!("<h2>{asked}?</h2>")), "{question}");
    let confirmed = [fields, &[CONFIRMED]].concat();
    let foreign = operator.post(path, &operator.origin(), &confirmed).await;
    assert_eq!(foreign.status, 403, "without the token of the form");
    body(&operator.submit(path, &confirmed).await)
}

#[actix_web::test]
async fn a_user_agent_is_dropped_after_a_question() {
    for fixture in AdminFixture::engines(&[PORT]) {
        let (mut agent, channel) = Agent::subscribed(&fixture.server).await;
        let operator = Operator::signed_in(&fixture.server).await;
        let found = body(&operator.submit("/admin/inspect", &[("target", agent.uaid())]).await);
        assert!(found.contains("Drop this user agent"), "{found}");
        let hostile = "<script>alert(1)</script>";
        let refused = body(&operator.submit("/admin/drop", &[("uaid", hostile), CONFIRMED]).await);
        assert!(refused.contains("this is no uaid") && !refused.contains(hostile), "{refused}");
        agent.sync().await;
        let uaid = agent.uaid().to_owned();
        let dropped =
            confirm(&operator, "/admin/drop", &[("uaid", &uaid)], &format!("Drop {uaid}")).await;
        assert!(dropped.contains(&format!("dropped {uaid} with its channels")), "{dropped}");
        agent.ended().await;
        Sender::new().post(&channel.endpoint).ttl(60).body("x").send().await.assert_error(410, 103);
        let again = body(&operator.submit("/admin/drop", &[("uaid", &uaid), CONFIRMED]).await);
        assert!(again.contains("there is no user"), "{again}");
    }
}

async fn back_up(operator: &Operator) -> String {
    confirm(operator, "/admin/backup", &[], "Back up now").await
}

fn archives(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("it is a directory").flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[actix_web::test]
async fn a_backup_is_made_at_once_and_not_while_another_is_under_way() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let dir = home.path().join("archives");
    fs::create_dir(&dir).expect("it is new");
    let server = Server::start_with(&[PORT, &format!("--backup-dir={}", dir.display())]);
    let operator = Operator::signed_in(&server).await;
    assert!(body(&operator.get("/admin").await).contains(">Back up now</button>"));

    // The lock and the file of another backup.
    let partial = server.data_dir().join("backup.partial");
    fs::create_dir(&partial).expect("no backup is under way");
    let lock = File::open(&partial).expect("it is there");
    lock.lock().expect("it is free");
    let unfinished = dir.join(".kalends-2026-11-29.tar.x.kalends-tmp");
    fs::write(&unfinished, "").expect("it can be written");
    let refused = back_up(&operator).await;
    assert!(refused.contains("another backup of ") && unfinished.exists(), "{refused}");
    let failures = "kalends_maintenance_failures_total{task=\"backup\"}";
    assert_eq!(scrape(&server).await[failures], 0.0, "it is not missed");
    drop(lock);

    let done = back_up(&operator).await;
    assert!(done.contains("The backup is done."), "{done}");
    let [name] = &archives(&dir)[..] else { panic!("{:?}", archives(&dir)) };
    let file = dir.join(name).display().to_string();
    run(&["restore", "--check", &file]).await.succeeded();
    let metrics = scrape(&server).await;
    let last = "kalends_maintenance_last_timestamp_seconds{task=\"backup\"}";
    assert!(metrics[last] > 1.7e9, "it counts as that of the server");

    fs::remove_dir_all(&dir).expect("it is ours");
    let failed = back_up(&operator).await;
    assert!(failed.contains("does not exist: make it"), "{failed}");
    server.logged("the backup that an operator asked for failed").await;
    assert_eq!(scrape(&server).await[failures], 1.0);
    let without = AdminFixture::embedded(&[PORT]);
    let operator = Operator::signed_in(&without.server).await;
    assert!(!body(&operator.get("/admin").await).contains("Back up now"));
    let refused = body(&operator.submit("/admin/backup", &[CONFIRMED]).await);
    assert!(refused.contains("backup_dir is not set"), "{refused}");
}

#[actix_web::test]
async fn a_backup_from_the_page_is_known_after_a_restart() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let mut server =
        Server::start_with(&[PORT, &format!("--backup-dir={}", home.path().display())]);
    let done = back_up(&Operator::signed_in(&server).await).await;
    assert!(done.contains("The backup is done."), "{done}");
    // An archive that is made again is another file under the same name.
    let files = || -> Vec<u64> {
        let files = archives(home.path()).into_iter().map(|name| home.path().join(name));
        files.map(|file| fs::metadata(file).expect("it is there").ino()).collect()
    };
    let made = files();
    server.terminate();
    server.restart();
    let data_dir = server.data_dir().display().to_string();
    until(FIRST_LOOK, "the backup is known", async || {
        let told = run(&["status", "--json", "--data-dir", &data_dir]).await;
        let screen: Value = serde_json::from_str(&told.succeeded()).expect("it is JSON");
        screen["backup_ms"].is_u64()
    })
    .await;
    assert!(made.len() == 1 && files() == made, "it is not made again");
}

#[actix_web::test]
async fn a_backup_that_fails_has_the_reason_of_age_on_the_page_and_among_what_is_wrong() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    fs::create_dir(home.path().join("archives")).expect("it is new");
    let server = server_with_age(home.path(), "echo 'age: error: it is lost' >&2\nexit 3");
    let operator = Operator::signed_in(&server).await;
    let reason = "age failed, exit status: 3: it is lost";
    let failed = back_up(&operator).await;
    assert!(failed.contains(reason), "{failed}");
    let data_dir = server.data_dir().display().to_string();
    let told = run(&["status", "--data-dir", &data_dir]).await.succeeded();
    let found = format!("maintenance failed: backup: {reason}");
    assert!(told.contains(&found), "{told}");
}

/// A server with backups, and with this script in place of the program age of the machine.
fn server_with_age(home: &Path, script: &str) -> Server {
    let programs = home.join("bin");
    fs::create_dir(&programs).expect("it is new");
    let age = programs.join("age");
    fs::write(&age, format!("#!/bin/sh\n{script}\n")).expect("it is new");
    fs::set_permissions(&age, Permissions::from_mode(0o755)).expect("it is ours");
    let backup_dir = format!("--backup-dir={}", home.join("archives").display());
    let recipient = format!("--backup-recipient=age1{}", "q".repeat(58));
    let mut launch = Launch::default().with(&[PORT, &backup_dir, &recipient]);
    let path = std::env::var("PATH").expect("the test has one");
    launch.variables.push(("PATH", format!("{}:{path}", programs.display())));
    Server::launch(launch)
}

#[actix_web::test]
async fn a_backup_that_takes_long_goes_on_and_the_page_says_so() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let [dir, gate] = ["archives", "gate"].map(|name| home.path().join(name));
    fs::create_dir(&dir).expect("it is new");
    // It waits for the gate, or for the end of the test, and encrypts nothing.
    let (there, open) = (dir.display(), gate.display());
    let waits = format!("while [ -d '{there}' ] && [ ! -e '{open}' ]; do sleep 0.1; done");
    let server = server_with_age(home.path(), &format!("{waits}\nexec cat"));
    let operator = Operator::signed_in(&server).await;

    let answer = back_up(&operator).await;
    assert!(answer.contains("The backup takes longer, and goes on."), "{answer}");
    let second = body(&operator.submit("/admin/backup", &[CONFIRMED]).await);
    assert!(second.contains("A backup is under way already: wait for it."), "{second}");
    fs::write(&gate, "").expect("it is new");
    server.logged("the backup that an operator asked for ended").await;
    let [name] = &archives(&dir)[..] else { panic!("{:?}", archives(&dir)) };
    assert!(name.ends_with(".tar.age"), "{name}");
    let metrics = scrape(&server).await;
    assert_eq!(metrics["kalends_maintenance_failures_total{task=\"backup\"}"], 0.0);
    assert!(metrics["kalends_maintenance_last_timestamp_seconds{task=\"backup\"}"] > 1.7e9);
}

#[actix_web::test]
async fn the_doctor_tries_the_public_url_and_one_at_a_time() {
    let fixture = AdminFixture::embedded(&[PORT]);
    let operator = Operator::signed_in(&fixture.server).await;
    let ask = "Run the doctor";
    let found = confirm(&operator, "/admin/doctor", &[], ask).await;
    assert!(found.contains("Everything that was tried works."), "{found}");
    for expected in [
        "<th scope=\"row\">push</th><td>ok</td><td>a signed push arrives at once</td>",
        "<th scope=\"row\">stored push</th><td>ok</td>",
    ] {
        assert!(found.contains(expected), "{found}");
    }
    assert!(!found.contains("silent connection</th>"), "{found}");

    // A public URL that accepts connections and answers none of them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("an address is free");
    let url = format!("--public-url=http://{}", silent.local_addr().expect("it is bound"));
    let misled = AdminFixture::embedded(&[PORT, &url]);
    let operator = Operator::signed_in(&misled.server).await;
    let visit = async || body(&operator.submit("/admin/doctor", &[CONFIRMED]).await);
    let second = async {
        misled.server.logged("an operator asked for the doctor").await;
        let second = visit().await;
        drop(silent);
        second
    };
    let (first, second) = tokio::join!(visit(), second);
    assert!(second.contains("The doctor is at work already"), "{second}");
    assert!(first.contains("Checks that failed: 1. Warnings: 0."), "{first}");
    let failed = "<tr class=\"bad\"><th scope=\"row\">user agent</th><td>FAIL</td>";
    assert!(first.contains(failed), "{first}");

    let closed = AdminFixture::embedded(&[PORT, "--access=token"]);
    let operator = Operator::signed_in(&closed.server).await;
    assert!(!body(&operator.get("/admin").await).contains(ask));
    let refused = body(&operator.submit("/admin/doctor", &[CONFIRMED]).await);
    assert!(refused.contains("needs an access token"), "{refused}");
}

#[actix_web::test]
async fn a_server_that_is_asked_twice_to_stop_drains_once() {
    let plan = ClusterPlan::of(1, 1);
    let mut cluster =
        Cluster::launch(plan.with_endpoint_arguments(&[PORT, "--drain-lame-duck-s=2"]));
    let endpoint = &mut cluster.endpoint_nodes[0];
    let operator = Operator::signed_in(endpoint).await;
    let question = body(&operator.submit("/admin/stop", &[]).await);
    assert!(question.contains("<h2>Drain and stop?</h2>"), "{question}");
    let confirmed = [CONFIRMED];
    let foreign = operator.post("/admin/stop", &operator.origin(), &confirmed).await;
    assert_eq!(foreign.status, 403);
    let stop = || operator.submit("/admin/stop", &confirmed);
    let (first, second) = tokio::join!(stop(), stop());
    let answers = [body(&first), body(&second)];
    for expected in ["The server drains, and stops then.", "The server is stopping already."] {
        let count = answers.iter().filter(|answer| answer.contains(expected)).count();
        assert_eq!(count, 1, "{answers:?}");
    }
    assert!(endpoint.ended_within(AT_ONCE).await.success());
    let log = endpoint.log();
    assert!(log.contains("an operator asked the server to stop"), "{log}");
    assert!(!log.contains("stopping at once"), "{log}");
}

#[actix_web::test]
async fn a_node_that_drains_is_shown_as_draining() {
    let plan = ClusterPlan::of(1, 1).with_endpoint_arguments(&[PORT]);
    let plan = plan.with_connection_arguments(&["--drain-s=300", "--drain-lame-duck-s=300"]);
    let mut cluster = Cluster::launch(plan);
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    Sender::new().push_to(&mut agent, &channel, "direct").await;
    let (endpoint, node) = (&cluster.endpoint_nodes[0], &cluster.connection_nodes[0]);
    let shown = async |state: &str| {
        let has_state = |page: &Value| {
            let rows = page["nodes"].as_array().expect("they are a list");
            rows.iter().any(|row| row["node"] == node.router_url() && row["state"] == state)
        };
        super::operator_page::values_with(endpoint, has_state).await["nodes"].clone()
    };
    let rows = shown("answers").await;
    let [own, other] = ["this_server", "answers"].map(|state| {
        let mut row = rows.as_array().expect("it is a list").iter();
        row.find(|row| row["state"] == state).expect("both are there")
    });
    assert_eq!((&other["role"], &other["agents"]), (&"connection".into(), &1.into()));
    assert_eq!((&own["role"], &own["agents"]), (&"endpoint".into(), &Value::Null));
    assert!(own["version"].is_string() && other["version"] == own["version"], "{rows}");
    node.signal("TERM");
    assert_eq!(shown("drains").await[0]["node"], node.router_url(), "the worst is first");
    let listed = endpoint.run(&["nodes", "--store=dynamodb"]).await.succeeded();
    assert!(listed.contains("drains, and stops then"), "{listed}");
    cluster.connection_nodes[0].kill();
    let (endpoint, node) = (&cluster.endpoint_nodes[0], &cluster.connection_nodes[0]);
    let is_silent = |page: &Value| page["nodes"][0]["state"]["unreachable"].is_string();
    let rows = super::operator_page::values_with(endpoint, is_silent).await["nodes"].clone();
    assert_eq!(rows[0]["node"], node.router_url());
    let why = rows[0]["state"]["unreachable"].as_str().unwrap_or_default();
    assert!(why.contains("cannot connect"), "{rows}");
    assert!(rows[0]["agents"].is_u64(), "those of its last answer: {rows}");
}

#[actix_web::test]
async fn the_history_continues_after_a_restart_and_a_damaged_one_is_set_aside() {
    // The log has the address of the first start.
    let mut server = Server::start_with(&[&format!("--metrics-listen={}", free_port())]);
    let history = async |server: &Server| {
        let mut stream = Operator::signed_in(server).await.stream().await;
        stream.until(AT_ONCE, "event: history\ndata: ").await;
        let text = stream.until(AT_ONCE, "\n\n").await;
        serde_json::from_str::<Value>(text.trim()).expect("an event is JSON")
    };
    let points = |history: &Value| history["rings"][0]["at"].as_array().map_or(0, Vec::len);
    until(AT_ONCE, "there is a point", async || points(&history(&server).await) > 0).await;
    assert!(server.terminate().success());
    let file = server.data_dir().join("history.json");
    server.restart();
    let continued = history(&server).await;
    assert_eq!(continued["starts"].as_array().map(Vec::len), Some(2), "{continued}");
    assert!(points(&continued) >= 1, "{continued}");
    assert!(server.terminate().success());
    fs::write(&file, "damaged").expect("it can be written");
    server.restart();
    server.logged("the history of the figures cannot be read, it begins anew").await;
    assert_eq!(history(&server).await["starts"].as_array().map(Vec::len), Some(1));
    let aside = file.with_extension("json.damaged");
    assert_eq!(fs::read_to_string(aside).expect("it is set aside"), "damaged");
}
