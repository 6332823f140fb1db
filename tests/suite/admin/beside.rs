//! Every command beside a live server and without one, in either engine.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use serde_json::Value;
use state_machine::month::CivilHour;
use state_machine::{Month, Time};
use tempfile::TempDir;

use super::{Place, months_ago};
use crate::harness::{Agent, Neighbour, Program, kalends, unix_now_s};

/// A user that the tests do not run as.
const STRANGER: u32 = 65_534;

#[actix_web::test]
async fn every_command_works_beside_a_live_server_and_without_one() {
    for mut place in [Place::embedded(&[]), Place::dynamo(&[])] {
        let mut neighbour = Neighbour::beside(&place.server).await;
        let ensured = place.done("tables create --lower-prior 5:5").await;
        assert!(ensured.contains(&format!("{} was there\n", months_ago(0))), "{ensured}");
        let beside = answers(&place).await;
        neighbour.notices_nothing().await;
        assert!(place.server.terminate().success());

        assert_eq!(answers(&place).await, beside);
        let ensured = place.done("tables create").await;
        assert_eq!(ensured.matches(" was there\n").count(), 3, "{ensured}");
        place.server.restart();
    }
}

/// What the commands say that change nothing.
async fn answers(place: &Place) -> Vec<String> {
    let mut answers = Vec::new();
    for command in [
        "preflight",
        "tables status",
        "tables drop-old",
        "tables drop-old --dry-run --keep 3",
        "users drop-inactive --dry-run",
        "users drop-inactive",
    ] {
        answers.push(without_sizes(&place.done(command).await));
    }
    assert!(answers[0].lines().all(|line| line.starts_with("ok ")), "{answers:?}");
    assert!(answers[1].contains("all is well"), "{answers:?}");
    assert!(answers[2].starts_with("no table is older than"), "{answers:?}");
    assert!(answers[5].starts_with("found 0 users"), "{answers:?}");
    answers
}

/// Files grow a little by being used.
fn without_sizes(text: &str) -> String {
    let is_of_a_table = |line: &&str| line.contains("active") || line.starts_with("TABLE");
    let (tables, rest): (Vec<_>, Vec<_>) = text.lines().partition(is_of_a_table);
    let names = tables.iter().filter_map(|line| line.split(' ').next());
    names.chain(rest).collect::<Vec<_>>().join("\n")
}

#[actix_web::test]
async fn a_status_counts_who_is_there() {
    for place in [Place::embedded(&[]), Place::dynamo(&[])] {
        for _ in 0..3 {
            Agent::absent(&place.server).await;
        }
        let month = months_ago(0).to_string();
        let status: Value =
            serde_json::from_str(&place.done("tables status --json").await).unwrap();
        assert_eq!(status["clients"][&month], 3, "{status}");
        assert_eq!((&status["this_month"], &status["rotation"]), (&month.into(), &true.into()));
        let tables: Value = serde_json::from_str(&place.done("tables list --json").await).unwrap();
        let tables = tables["tables"].as_array().unwrap();
        let holds: Vec<_> = tables.iter().filter_map(|table| table["holds"].as_str()).collect();
        assert_eq!(holds[0], "router");
        assert!(holds.iter().filter(|holds| **holds == "messages").count() >= 2, "{holds:?}");
    }
}

#[actix_web::test]
async fn what_ensure_makes_is_all_that_a_server_needs_which_makes_nothing() {
    let place = Place::prepared(&[]).await;
    Neighbour::beside(&place.server).await.notices_nothing().await;
    place.done("preflight").await;
}

#[actix_web::test]
async fn next_month_gets_the_throughput_of_this_one_and_last_month_is_lowered() {
    const MOVING_DAYS: u8 = 3;
    let provisioned = ["--dynamodb-billing=provisioned", "--dynamodb-read-units=7"];
    let mut place = Place::dynamo(&provisioned);
    // What a command makes by itself has less.
    place.say_instead("--dynamodb-read-units=7", "--dynamodb-read-units=5");
    place.done("tables create --lower-prior 2:9").await;
    let tables: Value = serde_json::from_str(&place.done("tables list --json").await).unwrap();
    let units = |month: Month| {
        let tables = tables["tables"].as_array().unwrap();
        let table = tables.iter().find(|table| table["month"] == *month.to_string()).unwrap();
        let units = &table["throughput"]["provisioned"];
        (units["read"].as_u64().unwrap(), units["write"].as_u64().unwrap())
    };
    let this = months_ago(0);
    assert_eq!((units(this), units(this.next())), ((7, 5), (7, 5)));
    let day = CivilHour::of(Time(unix_now_s() * 1000)).day;
    let lowered = if day > MOVING_DAYS { (2, 5) } else { (7, 5) };
    assert_eq!(units(this.previous()), lowered);
}

#[actix_web::test]
async fn two_commands_at_once_do_not_disturb_each_other() {
    let mut place = Place::embedded(&[]);
    for is_alive in [true, false] {
        if !is_alive {
            assert!(place.server.terminate().success());
        }
        let ensure = || place.run("tables create");
        let (one, two, three) = tokio::join!(ensure(), place.run("tables status"), ensure());
        for ended in [one, two, three] {
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }
    place.server.restart();
}

#[actix_web::test]
async fn keys_that_others_can_read_are_told_by_preflight_with_all_the_rest() {
    let place = Place::embedded(&[]);
    let keys = place.server.data_dir().join("keys.toml");
    std::fs::set_permissions(&keys, Permissions::from_mode(0o644)).unwrap();
    let ended = place.run("preflight").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.starts_with("FAILED  keys.toml: "), "{ended:?}");
    assert!(ended.stdout.contains("chmod 600") && ended.stdout.contains("\nok "), "{ended:?}");
    assert!(ended.stderr.contains("not everything is as it should be"), "{ended:?}");
}

#[actix_web::test]
async fn where_no_store_is_none_is_made() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    for words in [&["preflight"][..], &["tables", "list"], &["users", "drop-inactive"]] {
        let mut command = kalends(words);
        command.arg("--data-dir").arg(&data);
        let ended = Program::run(command).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.starts_with("kalends: there is no store in "), "{ended:?}");
        assert!(!data.exists(), "{ended:?}");
    }
}

#[actix_web::test]
async fn what_is_not_said_rightly_ends_with_2() {
    let place = Place::embedded(&[]);
    for words in [
        "tables",
        "tables mend",
        "tables copy 2026_09",
        "tables drop september --yes",
        "tables list --data-dri x",
        "tables list --log-level loud",
        "users drop-inactive --rate fast",
    ] {
        let ended = place.run(words).await;
        assert_eq!(ended.code, Some(2), "{words}: {ended:?}");
    }
}

#[actix_web::test]
async fn a_table_that_is_not_there_is_told_by_preflight() {
    let mut place = Place::embedded(&[]);
    assert!(place.server.terminate().success());
    let file = place.server.data_dir().join(format!("messages_{}.db", months_ago(0)));
    let aside = place.server.data_dir().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    let why = place.refused("preflight").await;
    assert!(why.contains("is missing: restore it from a backup"), "{why}");
    std::fs::rename(&aside, &file).unwrap();
    place.server.restart();

    let wire_server = crate::harness::WireServer::start();
    let launch = crate::harness::dynamo::launch(&wire_server.url);
    let mut command = kalends(&["preflight"]);
    command.args(&launch.arguments).envs(launch.variables);
    let ended = Program::run(command).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("`kalends tables create` makes it"), "{ended:?}");
}

#[actix_web::test]
async fn nothing_is_copied_and_nothing_made_where_there_is_no_store() {
    let wire_server = crate::harness::WireServer::start();
    let launch = crate::harness::dynamo::launch(&wire_server.url).with(&["--rotation=false"]);
    let copy = format!("tables copy {} {}", months_ago(2), months_ago(0));
    for words in [copy.clone(), format!("{copy} --server-stopped"), "tables list".to_owned()] {
        let mut command = kalends(&words.split(' ').collect::<Vec<_>>());
        command.args(&launch.arguments).envs(launch.variables.clone());
        let ended = Program::run(command).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("there is no table"), "{words}: {ended:?}");
    }
}

#[actix_web::test]
async fn nothing_is_made_before_servers_are_said_to_be_stopped() {
    let place = Place::dynamo(&["--rotation=false"]);
    let before = place.done("tables list").await;
    let why = place.refused(&format!("tables copy {} {}", months_ago(2), months_ago(0))).await;
    assert!(why.contains("--server-stopped"), "{why}");
    assert_eq!(place.done("tables list").await, before);
}

#[actix_web::test]
async fn keys_beside_tables_must_be_there_once_somebody_is_registered() {
    let place = Place::dynamo(&[]);
    let elsewhere = TempDir::new().unwrap();
    let preflight = async || Program::run(place.command_in(elsewhere.path(), &["preflight"])).await;
    let ended = preflight().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let none_yet = "ok      keys.toml (none yet, the server makes them)\n";
    assert!(ended.stdout.starts_with(none_yet), "{ended:?}");

    Agent::absent(&place.server).await;
    let ended = preflight().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.starts_with("FAILED  keys.toml: no keys.toml in "), "{ended:?}");
    assert!(ended.stdout.contains("but users are registered: is data_dir right?"), "{ended:?}");
    assert!(!elsewhere.path().join("keys.toml").exists());
}

#[actix_web::test]
async fn the_store_of_another_user_is_not_opened() {
    let mut place = Place::embedded(&[]);
    assert!(place.server.terminate().success());
    let file = place.server.data_dir().join("router.db");
    let owner = file.metadata().unwrap().uid();
    // Only root can give a file away, and only to root is it a trap: others are not let in.
    if chown(&file, Some(STRANGER), None).is_ok() {
        let why = place.refused("tables create").await;
        let expected =
            format!("belongs to uid {STRANGER}, and this runs as uid {owner}: run it as");
        assert!(why.contains(&expected), "{why}");
        assert!(place.refused("preflight").await.contains(&expected));
        chown(&file, Some(owner), None).unwrap();
    }
    place.done("tables create").await;
    place.server.restart();
}

#[actix_web::test]
async fn a_file_is_no_data_directory() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("data");
    std::fs::write(&file, "").unwrap();
    let mut command = kalends(&["tables", "list"]);
    command.arg("--data-dir").arg(&file);
    let ended = Program::run(command).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("data is not a directory: name that of the store"), "{ended:?}");
}
