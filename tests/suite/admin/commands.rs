//! Every operator command, with and without a running server, on both storage engines.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use state_machine::month::CivilHour;
use state_machine::{Month, Time};
use tempfile::TempDir;

use super::{AdminFixture, months_ago};
use crate::harness::{
    Agent, Bystander, Program, PushService, WireServer, dynamo, kalends, unix_now_s,
};

/// The uid of a user that does not run the tests.
const OTHER_UID: u32 = 65_534;

#[actix_web::test]
async fn every_command_works_with_and_without_a_running_server() {
    for mut fixture in AdminFixture::engines(&[]) {
        let mut bystander = Bystander::connect(&fixture.server).await;
        let was_there = format!("{} was there\n", months_ago(0));
        fixture.prints("tables create --lower-prior 5:5", &was_there).await;
        let beside = answers(&fixture).await;
        bystander.is_unaffected().await;
        assert!(fixture.server.terminate().success());

        assert_eq!(answers(&fixture).await, beside);
        let ensured = fixture.stdout_of("tables create").await;
        assert_eq!(ensured.matches(" was there\n").count(), 3, "{ensured}");
        fixture.server.restart();
    }
}

/// The output of the read-only commands.
async fn answers(fixture: &AdminFixture) -> Vec<String> {
    let mut answers = Vec::new();
    for command in [
        "preflight",
        "tables status",
        "tables drop-old",
        "tables drop-old --dry-run --keep 3",
        "users drop-inactive --dry-run",
        &format!("users drop-inactive --since {}", months_ago(12)),
    ] {
        answers.push(without_sizes(&fixture.stdout_of(command).await));
    }
    assert!(answers[0].lines().all(|line| line.starts_with("ok ")), "{answers:?}");
    assert!(answers[1].contains("all is well"), "{answers:?}");
    assert!(answers[2].starts_with("no table is older than"), "{answers:?}");
    assert!(answers[5].starts_with("found 0 users"), "{answers:?}");
    answers
}

/// Removes file sizes, because files grow a little with use.
fn without_sizes(text: &str) -> String {
    let is_of_a_table = |line: &&str| line.contains("active") || line.starts_with("TABLE");
    let (tables, rest): (Vec<_>, Vec<_>) = text.lines().partition(is_of_a_table);
    let names = tables.iter().filter_map(|line| line.split(' ').next());
    names.chain(rest).collect::<Vec<_>>().join("\n")
}

#[actix_web::test]
async fn tables_status_counts_agents_by_month() {
    for fixture in AdminFixture::engines(&[]) {
        for _ in 0..3 {
            Agent::offline(&fixture.server).await;
        }
        let month = months_ago(0).to_string();
        let status = fixture.json_of("tables status --json").await;
        assert_eq!(status["clients"][&month], 3, "{status}");
        assert_eq!((&status["this_month"], &status["rotation"]), (&month.into(), &true.into()));
        let tables = fixture.json_of("tables list --json").await;
        let tables = tables["tables"].as_array().unwrap();
        let holds: Vec<_> = tables.iter().filter_map(|table| table["holds"].as_str()).collect();
        assert_eq!(holds[0], "router");
        assert!(holds.iter().filter(|holds| **holds == "messages").count() >= 2, "{holds:?}");
    }
}

#[actix_web::test]
async fn tables_made_by_the_command_suffice_for_a_server_that_creates_none() {
    let fixture = AdminFixture::prepared(&[]).await;
    Bystander::connect(&fixture.server).await.is_unaffected().await;
    fixture.stdout_of("preflight").await;
}

#[actix_web::test]
async fn next_month_gets_this_months_throughput_and_last_months_is_lowered() {
    const MOVING_DAYS: u8 = 3;
    let provisioned = ["--dynamodb-billing=provisioned", "--dynamodb-read-units=7"];
    let mut fixture = AdminFixture::dynamo(&provisioned);
    // Tables that a command creates itself have a lower capacity.
    fixture.override_argument("--dynamodb-read-units=7", "--dynamodb-read-units=5");
    fixture.stdout_of("tables create --lower-prior 2:9").await;
    let tables = fixture.json_of("tables list --json").await;
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
async fn two_concurrent_commands_do_not_interfere() {
    let mut fixture = AdminFixture::embedded(&[]);
    for is_alive in [true, false] {
        if !is_alive {
            assert!(fixture.server.terminate().success());
        }
        let ensure = || fixture.run("tables create");
        let (one, two, three) = tokio::join!(ensure(), fixture.run("tables status"), ensure());
        for ended in [one, two, three] {
            ended.succeeded();
        }
    }
    fixture.server.restart();
}

#[actix_web::test]
async fn preflight_reports_keys_that_others_can_read_among_all_checks() {
    let fixture = AdminFixture::embedded(&[]);
    let keys = fixture.server.data_dir().join("keys.toml");
    std::fs::set_permissions(&keys, Permissions::from_mode(0o644)).unwrap();
    let ended = fixture.run("preflight").await;
    ended.failed(1, "not everything is as it should be");
    assert!(ended.stdout.starts_with("FAILED  keys.toml: "), "{ended:?}");
    assert!(ended.stdout.contains("chmod 600") && ended.stdout.contains("\nok "), "{ended:?}");
}

#[actix_web::test]
async fn preflight_reads_the_file_of_bridges() {
    let (fixture, service) = (AdminFixture::embedded(&[]), PushService::start());
    let command = format!("preflight --bridges-file {}", service.bridges_file().display());
    let shown = fixture.stdout_of(&command).await;
    let expected = "ok      bridges_file (fcm.example, apns.certified, apns.example)\n";
    assert!(shown.contains(expected), "{shown}");
    service.write_bridges("");
    let ended = fixture.run(&command).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("has no [fcm.APP] and no [apns.APP]"), "{ended:?}");
}

#[actix_web::test]
async fn commands_create_no_store() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    for words in [
        &["preflight"][..],
        &["tables", "list"],
        &["users", "drop-inactive"],
        &["feed", "list"],
        &["feed", "put", "f", "k", "v"],
        &["feed", "tail", "f"],
        &["broadcast", "put", "b", "1"],
        &["feed", "token", "f", "--read"],
    ] {
        let mut command = kalends(words);
        command.arg("--data-dir").arg(&data);
        let ended = Program::run(command).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.starts_with("kalends: there is no store in "), "{ended:?}");
        assert!(!data.exists(), "{ended:?}");
    }
}

#[actix_web::test]
async fn invalid_arguments_exit_with_2() {
    let wrong = [
        "tables",
        "tables mend",
        "tables copy 2026_09",
        "tables drop september --yes",
        "tables list --data-dri x",
        "tables list --log-level loud",
        "users drop-inactive --rate fast",
        "users drop",
        "users drop 0190a4a3",
    ];
    AdminFixture::embedded(&[]).rejects(&wrong).await;
}

#[actix_web::test]
async fn preflight_reports_a_missing_table() {
    let mut fixture = AdminFixture::embedded(&[]);
    assert!(fixture.server.terminate().success());
    let file = fixture.server.data_dir().join(format!("messages_{}.db", months_ago(0)));
    let aside = fixture.server.data_dir().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    fixture.refuses("preflight", "is missing: restore it from a backup").await;
    std::fs::rename(&aside, &file).unwrap();
    fixture.server.restart();

    let wire_server = WireServer::start();
    let command = dynamo::launch(&wire_server.url).command(&["preflight"]);
    let maker = "(`kalends tables create` makes them, and so does the first start of a server)";
    Program::run(command).await.failed(1, maker);
    let command = dynamo::launch(&wire_server.url).command(&["preflight", "--create-tables=false"]);
    let maker = "(`kalends tables create` makes them, or a server with create_tables = true)";
    Program::run(command).await.failed(1, maker);
}

#[actix_web::test]
async fn copy_without_a_store_creates_nothing() {
    let wire_server = WireServer::start();
    let launch = dynamo::launch(&wire_server.url).with(&["--rotation=false"]);
    let copy = format!("tables copy {} {}", months_ago(2), months_ago(0));
    for words in [&*copy, &format!("{copy} --server-stopped"), "tables list"] {
        let command = launch.command(&words.split(' ').collect::<Vec<_>>());
        println!("{words}");
        Program::run(command).await.failed(1, "there is no table");
    }
}

#[actix_web::test]
async fn tables_copy_requires_confirmation_that_servers_are_stopped() {
    let fixture = AdminFixture::dynamo(&["--rotation=false"]);
    let before = fixture.stdout_of("tables list").await;
    let copy = format!("tables copy {} {}", months_ago(2), months_ago(0));
    fixture.refuses(&copy, "--server-stopped").await;
    assert_eq!(fixture.stdout_of("tables list").await, before);
}

#[actix_web::test]
async fn keys_are_required_once_an_agent_is_registered() {
    let fixture = AdminFixture::dynamo(&[]);
    let elsewhere = TempDir::new().unwrap();
    let preflight =
        async || Program::run(fixture.command_in(elsewhere.path(), &["preflight"])).await;
    let none_yet = "ok      keys.toml (none yet, the server makes them)\n";
    let shown = preflight().await.succeeded();
    assert!(shown.starts_with(none_yet), "{shown}");

    Agent::offline(&fixture.server).await;
    let ended = preflight().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.starts_with("FAILED  keys.toml: no keys.toml in "), "{ended:?}");
    assert!(ended.stdout.contains("but users are registered: is data_dir right?"), "{ended:?}");
    assert!(!elsewhere.path().join("keys.toml").exists());
}

#[actix_web::test]
async fn a_store_of_another_user_is_not_opened() {
    let mut fixture = AdminFixture::embedded(&[]);
    assert!(fixture.server.terminate().success());
    let file = fixture.server.data_dir().join("router.db");
    let owner = file.metadata().unwrap().uid();
    // Only root can change the owner of a file, and only root could open the file of another user.
    if chown(&file, Some(OTHER_UID), None).is_ok() {
        let expected =
            format!("belongs to uid {OTHER_UID}, and this runs as uid {owner}: run it as");
        fixture.refuses("tables create", &expected).await;
        fixture.refuses("preflight", &expected).await;
        chown(&file, Some(owner), None).unwrap();
    }
    fixture.stdout_of("tables create").await;
    fixture.server.restart();
}

#[actix_web::test]
async fn a_file_is_rejected_as_data_directory() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("data");
    std::fs::write(&file, "").unwrap();
    let mut command = kalends(&["tables", "list"]);
    command.arg("--data-dir").arg(&file);
    let reason = "data is not a directory: name that of the store";
    Program::run(command).await.failed(1, reason);
}
