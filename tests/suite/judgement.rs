//! What is wrong with a server: `/health`, the metrics, the log, `kalends status`, `kalends health`, the doctor and the page
//! of a browser say the same.

use std::time::Duration;

use hyper::Method;
use rustix::fs::statvfs;
use serde_json::{Value, json};

use crate::harness::{
    AT_ONCE, Agent, Authority, Launch, Program, Raw, Sender, Server, WireServer, dynamo, free_port,
    run, until,
};
use crate::metrics::scrape;

/// The metric of a check.
pub(crate) fn metric(check: &str, severity: &str) -> String {
    format!("kalends_health_check{{check=\"{check}\",severity=\"{severity}\"}}")
}

/// Runs a command on the server. Returns its exit code and what it printed.
async fn told(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let ended = Program::run(server.command(arguments)).await;
    (ended.code, ended.stdout)
}

/// What the server finds wrong.
pub(crate) async fn findings(server: &Server) -> Vec<Value> {
    let told = Program::run(server.command(&["status", "--json"])).await;
    let status: Result<Value, _> = serde_json::from_str(&told.stdout);
    let status = status.unwrap_or_else(|error| panic!("{error} in {told:?}"));
    status["findings"].as_array().expect("a status has findings").clone()
}

/// Checks that each place shows this warning, and that the server stays healthy.
async fn is_warned(server: &Server, check: &str, found: &str) {
    is_warned_without_metrics(server, check, found).await;
    assert_eq!(scrape(server).await[&metric(check, "warning")], 0.0);
}

/// The same of a server that nothing scrapes.
pub(crate) async fn is_warned_without_metrics(server: &Server, check: &str, found: &str) {
    until(AT_ONCE, "it is found", async || {
        findings(server).await.iter().any(|finding| finding["check"] == *check)
    })
    .await;
    let findings = findings(server).await;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0]["severity"], "warning");
    let text = |part: &str| findings[0][part].as_str().expect("it is a text");
    assert!(text("found").contains(found), "{findings:?}");
    let (code, screen) = told(server, &["status"]).await;
    assert_eq!(code, Some(0));
    assert!(screen.starts_with("The server works, with a warning.\n"), "{screen}");
    assert!(screen.contains(found) && screen.contains(text("effect")), "{screen}");
    assert!(screen.contains(text("remedy")), "{screen}");
}

#[actix_web::test]
async fn a_good_server_finds_nothing_and_shows_what_it_does() {
    let (server, _agent, channel) = Server::with_subscribed(&[]).await;
    Sender::new().push(&channel.endpoint, "message").await;
    let health = server.health().await;
    assert_eq!((health.status, &health.json()["findings"]), (200, &json!([])));
    let (code, screen) = told(&server, &["status"]).await;
    assert_eq!(code, Some(0));
    assert!(screen.starts_with("Everything works.\n"), "{screen}");
    assert!(!screen.contains("\nnode "), "it is no node of a cluster: {screen}");
    for line in
        ["user agents  1 connected", "backup       none is known", "store        embedded, "]
    {
        assert!(screen.contains(line), "{screen}");
    }
    assert!(screen.contains(&server.origin()), "{screen}");
    let metrics = scrape(&server).await;
    let checks = metrics.iter().filter(|(name, _)| name.starts_with("kalends_health_check{"));
    assert!(checks.clone().count() > 15 && checks.clone().all(|(_, value)| *value == 1.0));
    let page = include_str!("../../docs/operations/monitoring.md");
    for (series, _) in checks {
        let check = series.split('"').nth(1).expect("it names a check");
        assert!(
            page.contains(&format!("`{check}`")),
            "docs/operations/monitoring.md has no {check}"
        );
    }
    let archive = server.data_dir().with_extension("tar");
    told(&server, &["backup", &archive.display().to_string()]).await;
    let (_, screen) = told(&server, &["status"]).await;
    assert!(screen.contains("ago") && !screen.contains("none is known"), "{screen}");
}

#[actix_web::test]
async fn a_disk_that_is_low_is_a_warning_and_a_full_one_an_outage_with_what_to_do() {
    let mut server = Server::start();
    let disk = statvfs(server.data_dir()).expect("the disk has a size");
    let free = disk.f_bavail * disk.f_frsize;
    server.terminate();
    server.restart_as(Launch::default().with(&[&format!("--disk-free-min={}", free / 2)]));
    is_warned(&server, "disk", "and messages are refused below").await;
    let health = server.health().await;
    let found = &health.json()["findings"][0];
    // A stranger learns no more than the name.
    assert_eq!(found.as_object().map(serde_json::Map::len), Some(3), "{found}");
    assert_eq!((health.status, &found["check"]), (200, &json!("disk")));
    let health = run(&["health", &format!("--url={}", server.origin())]).await;
    assert!(health.succeeded().contains(", warnings: disk (see `kalends status`)"));

    server.terminate();
    server.restart_as(Launch::default().with(&[&format!("--disk-free-min={}", free * 2)]));
    let health = server.health().await;
    health.assert_error(503, 201);
    assert_eq!(health.json()["checks"]["space"], false);
    let (code, screen) = told(&server, &["status"]).await;
    assert_eq!(code, Some(1));
    assert!(screen.starts_with("The server is unhealthy.\n"), "{screen}");
    assert!(screen.contains("OUTAGE space, ") && screen.contains("lower disk_free_min"));
    assert_eq!(scrape(&server).await[&metric("space", "outage")], 0.0);
    let url = format!("--url={}", server.origin());
    run(&["health", &url]).await.failed(1, "answers 503: space");
    let json = run(&["health", "--json", &url]).await;
    let body: Value = serde_json::from_str(&json.stdout).expect("it prints the body");
    assert_eq!((json.code, &body["status"]), (Some(1), &json!("unhealthy")));
    let min = format!("--disk-free-min={}", free * 2);
    let (_, found) = told(&server, &["doctor", "--json", "--idle-s=0", &min]).await;
    assert!(found.contains(r#"{"level":"fail","check":"disk","found":""#), "{found}");
}

#[actix_web::test]
async fn a_database_that_is_away_is_named_to_operators_and_not_to_visitors() {
    let wire = WireServer::start();
    let server = Server::launch(dynamo::launch(&wire.url));
    let database = format!("DynamoDB at {}", wire.url.trim_end_matches('/'));
    drop(wire);
    until(AT_ONCE, "it is found", async || server.health().await.status == 503).await;
    let (_, screen) = told(&server, &["status"]).await;
    assert!(screen.contains(&format!("{database} does not answer: ")), "{screen}");
    let findings = findings(&server).await;
    assert!(
        findings[0]["remedy"].as_str().is_some_and(|it| it.starts_with("Start the database, "))
    );
    let (sender, url) = (Sender::new(), format!("{}/", server.origin()));
    let visited = sender.request(Method::GET, &url).header("accept", "text/html").send().await;
    let page = String::from_utf8_lossy(&visited.body);
    assert!(page.contains(">No push message arrives now: the database of this server "), "{page}");
    for hidden in [database.as_str(), "store", "DynamoDB", " open>"] {
        assert!(!page.contains(hidden), "{hidden}: {page}");
    }
}

#[actix_web::test]
async fn a_certificate_in_its_last_days_is_a_warning() {
    let authority = Authority::new();
    authority.issue_for(Duration::from_secs(10 * 24 * 60 * 60 + 3600));
    let server = authority.server(&[]);
    is_warned(&server, "certificate_ends", "the certificate ends in 10 days, on ").await;
    is_warned(&server, "certificate_ends", " (tls_certificate = ").await;
}

#[actix_web::test]
async fn a_certificate_that_begins_later_is_an_outage() {
    let authority = Authority::new();
    authority.issue_from(Duration::from_secs(2 * 24 * 60 * 60));
    let server = authority.server(&[]);
    server.logged("the certificate is not valid yet").await;
    let findings = findings(&server).await;
    assert_eq!(findings.len(), 1, "{findings:?}");
    let [check, severity, found] = ["check", "severity", "found"].map(|part| &findings[0][part]);
    assert_eq!((check, severity), (&json!("certificate"), &json!("outage")));
    assert!(found.as_str().is_some_and(|it| it.contains(": it begins only on ")), "{found}");
}

#[actix_web::test]
async fn a_source_of_broadcasts_that_does_not_answer_is_a_warning() {
    let url = format!("--broadcast-source-url=http://{}", free_port());
    let server = Server::start_with(&[&url]);
    is_warned(&server, "broadcast_source", "broadcast_source_url gives no broadcasts: ").await;
    let (_, found) = told(&server, &["doctor", "--json", "--idle-s=0"]).await;
    assert!(found.contains(r#"{"level":"warn","check":"broadcast_source","found":""#), "{found}");
}

#[actix_web::test]
async fn a_port_with_a_tenth_of_its_connections_left_is_nearly_full() {
    let server = Server::start_with(&["--connections-max=20"]);
    let mut open = Vec::new();
    for _ in 0..19 {
        open.push(Raw::open(&server).await);
    }
    is_warned(&server, "connections", "19 of connections_max = 20 connections are open").await;
}

#[actix_web::test]
async fn a_month_without_a_table_is_a_warning() {
    let wire = WireServer::start();
    let launch = dynamo::launch(&wire.url);
    assert!(Server::launch(launch.clone()).terminate().success());
    let server = Server::launch(launch.with(&["--create-tables=false", "--dev"]));
    let clock = format!("{}/dev/clock", server.origin());
    let moved = Sender::new().request(Method::POST, &clock).raw_body("31d").send().await;
    assert_eq!(moved.status, 503, "it cannot make the table: {moved}");
    is_warned(&server, "months", "there is no message table of 20").await;
}

#[actix_web::test]
async fn two_programs_with_one_uaid_are_named_in_each_place() {
    let (server, agent, _channel) = Server::with_subscribed(&[]).await;
    let uaid = agent.uaid().to_owned();
    let mut before = agent;
    for _ in 0..10 {
        let newer = Agent::reconnect(&server, &uaid).await;
        before.ended().await;
        before = newer;
    }
    let begin = &uaid.replace('-', "")[..8];
    let found = format!("two programs use one uaid, which begins with {begin}");
    is_warned(&server, "rivals", &found).await;
    assert!(!server.log().contains(&uaid.replace('-', "")), "a log has no whole uaid");
    let (_, inspected) = told(&server, &["inspect", &uaid]).await;
    assert!(inspected.contains("two programs use this uaid: "), "{inspected}");
}

#[actix_web::test]
async fn a_status_without_a_server_says_so() {
    let mut server = Server::start();
    server.terminate();
    let ended = Program::run(server.command(&["status"])).await;
    ended.failed(1, "no server runs on this data directory");
}
