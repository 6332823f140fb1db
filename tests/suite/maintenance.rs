//! What a server does for its operator by itself. It first looks for that half a minute after its start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Agent, Launch, Server, WireServer, dynamo, run, until};
use crate::metrics::scrape;

/// From a start to the end of what is due, on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// Fourteen months, in seconds.
const LONG: i64 = 426 * 24 * 60 * 60;

const FORTNIGHT: i64 = 14 * 24 * 60 * 60;

const SUCCEEDED: &str = "kalends_maintenance_last_timestamp_seconds";
const CHECK: &str = r#"kalends_health_check{check="maintenance",severity="warning"}"#;
const FAILURES: &str = "kalends_maintenance_failures_total";

fn of(metric: &str, task: &str) -> String {
    format!("{metric}{{task=\"{task}\"}}")
}

fn archives(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("it can be read").file_name());
    names.map(|name| name.into_string().expect("it is text")).collect()
}

/// The files of months in a data directory.
fn months(server: &Server) -> usize {
    archives(&server.data_dir())
        .iter()
        .filter(|name| name.starts_with("messages_"))
        .filter(|name| name.ends_with(".db"))
        .count()
}

#[actix_web::test]
async fn users_that_stay_away_for_a_year_are_dropped_and_not_by_a_clock_that_jumps() {
    let (on, ttl) = ("--maintenance=true", "--ttl-max-s=31536000");
    let at = |offset_s: i64| {
        Launch::default().with(&[on, ttl, "--dev", &format!("--clock-offset-s={offset_s}")])
    };
    let noted = "is not due yet: it is done at a quiet hour from now on";
    let mut server = Server::launch(at(-LONG));
    let (uaid, _) = Agent::offline_with(&server, "old").await;
    until(BOUND, "the drops are noted", async || server.log().contains(noted)).await;

    // More than a year ahead of the last time.
    server.terminate();
    server.restart_as(at(-FORTNIGHT));
    let before = months(&server);
    until(BOUND, "the drops are noted again", async || server.log().matches(noted).count() == 2)
        .await;
    assert!(!server.log().contains("dropped") && months(&server) == before);

    // Two Sundays later.
    server.terminate();
    server.restart_as(at(0));
    until(BOUND, "the user is dropped", async || server.log().contains("dropped 1 user")).await;
    until(BOUND, "the task ends", async || server.log().contains("maintenance ended")).await;
    assert!(months(&server) < before, "no user is on the table of its month");
    let first = scrape(&server).await[&of(SUCCEEDED, "drops")];
    assert!(first > 1.7e9);
    assert_ne!(Agent::uaid_for(&server, &uaid).await, uaid);

    server.terminate();
    server.restart_as(at(FORTNIGHT));
    let ended = async || server.log().matches("maintenance ended").count() == 2;
    until(BOUND, "the next drops end", ended).await;
    assert!(scrape(&server).await[&of(SUCCEEDED, "drops")] >= first + FORTNIGHT as f64);
}

#[actix_web::test]
async fn drops_without_a_store_are_logged_and_counted() {
    let wire_server = WireServer::start();
    let server = Server::launch(dynamo::launch(&wire_server.url).with(&["--maintenance=true"]));
    drop(wire_server);
    until(BOUND, "the failure is logged", async || server.log().contains("maintenance failed"))
        .await;
    assert_eq!(scrape(&server).await[&of(FAILURES, "drops")], 1.0);
}

#[actix_web::test]
async fn a_server_writes_an_archive_a_day_that_can_be_restored() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let dir = home.path().join("archives");
    fs::create_dir(&dir).expect("it is new");
    let flag = format!("--backup-dir={}", dir.display());
    let server = Server::start_with(&[&flag]);
    Agent::offline_with(&server, "kept").await;
    until(BOUND, "the archive is written", async || server.log().contains("maintenance ended"))
        .await;
    let names = archives(&dir);
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].starts_with("kalends-20") && names[0].ends_with(".tar"), "{names:?}");
    let file = dir.join(&names[0]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    run(&["restore", "--check", &file.display().to_string()]).await.succeeded();
    let metrics = scrape(&server).await;
    assert!(metrics[&of(SUCCEEDED, "backup")] > 1.7e9);
    assert_eq!(metrics[&of(FAILURES, "backup")], 0.0);
}

#[actix_web::test]
async fn an_archive_that_cannot_be_written_is_logged_counted_and_tried_again() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let file = home.path().join("file");
    fs::write(&file, "not a directory").expect("it can be written");
    let flag = format!("--backup-dir={}", file.display());
    let mut server = Server::start_with(&[&flag]);
    until(BOUND, "the failure is logged", async || server.log().contains("maintenance failed"))
        .await;
    assert!(server.log().contains("is no directory"), "{}", server.log());
    let metrics = scrape(&server).await;
    assert_eq!(metrics[&of(FAILURES, "backup")], 1.0);
    assert!(!metrics.contains_key(&of(SUCCEEDED, "backup")));
    assert_eq!(metrics[CHECK], 0.0);

    // A restart does not wait for the hour.
    fs::remove_file(&file).expect("it is there");
    fs::create_dir(&file).expect("it is new");
    server.terminate();
    server.restart();
    until(BOUND, "the archive is written", async || server.log().contains("maintenance ended"))
        .await;
    assert_eq!(archives(&file).len(), 1);
    let metrics = scrape(&server).await;
    assert!(metrics[&of(SUCCEEDED, "backup")] > 1.7e9);
    assert_eq!(metrics[CHECK], 1.0);

    // Three weeks later there is no place for an archive.
    server.terminate();
    fs::rename(&file, home.path().join("elsewhere")).expect("it is there");
    server.restart_as(Launch::default().with(&[&flag, "--dev", "--clock-offset-s=1814400"]));
    let failed = async || server.log().matches("maintenance failed").count() == 2;
    until(BOUND, "the failure is logged again", failed).await;
    let missing = r#"kalends_health_check{check="backup",severity="warning"}"#;
    assert_eq!(scrape(&server).await[missing], 0.0);
}
