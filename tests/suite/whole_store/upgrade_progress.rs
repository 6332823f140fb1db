//! What is seen of an upgrade while it runs: by who opens the store, in the log, by systemd and on standard error.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use storage::Store as _;
use storage::data_dir::FileKey;
use storage::upgrade::{Upgrade, UpgradeStep, UpgradeWatch};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;

use super::upgrade::{MESSAGES, databases, set_back};
use super::upgrade_refusals::{copied_samples, make_old, sql};
use crate::harness::{AT_ONCE, Launch, Program, Server, child, kalends};

/// Enough for several steps of a copy, and for a change of many milliseconds.
const MANY_MESSAGES: &str = "
    WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 10000)
    INSERT INTO messages (uaid, id, expires_at, chid, urgency, accepted_at, ttl, data)
    SELECT randomblob(16), randomblob(16), 4000000000000, randomblob(16), 1, 0, 0, zeroblob(1000) FROM numbers";

/// Opens the store, and returns what the watch has seen.
async fn seen(dir: &Path, migration_copy: bool) -> Vec<Upgrade> {
    let seen = Mutex::new(Vec::new());
    let see = |upgrade: &Upgrade| seen.lock().expect("no thread panics").push(*upgrade);
    let watch = UpgradeWatch { every: Duration::from_millis(1), see: &see };
    let options = EmbeddedOptions { migration_copy, ..EmbeddedOptions::new(64) };
    let store = Embedded::open_watched(dir, &options, watch).expect("it can be opened");
    store.close().await.expect("the store closes");
    seen.into_inner().expect("no thread panics")
}

#[actix_web::test]
async fn an_upgrade_is_followed_from_its_begin_to_its_end() {
    let (home, month) = copied_samples(false).await;
    let dir = home.path();
    assert_eq!(seen(dir, true).await, [], "the files are of this version");
    for migration_copy in [true, false] {
        make_old(dir, &month);
        set_back(&dir.join(&month), &MESSAGES, MESSAGES.len());
        sql(&dir.join(&month), MANY_MESSAGES);
        let sizes = databases(dir)
            .into_iter()
            .map(|file| fs::metadata(dir.join(file)).expect("it is there").len());
        let bytes: u64 = sizes.sum();
        let of = if migration_copy { 2 * bytes } else { bytes };

        let seen = seen(dir, migration_copy).await;
        let (first, last) = (seen.first().expect("it begins"), seen.last().expect("it ends"));
        assert_eq!((first.step, first.done), (UpgradeStep::Begin, 0));
        assert_eq!((last.step, last.done, last.percent()), (UpgradeStep::Done, of, 100));
        for upgrade in &seen {
            assert_eq!((upgrade.files, upgrade.bytes), (databases(dir).len(), bytes));
            assert_eq!(upgrade.of, of);
        }
        assert!(seen.is_sorted_by_key(|upgrade| (upgrade.done, upgrade.elapsed)), "{seen:?}");
        let key = FileKey::parse(&month).expect("it is the file of a month");
        let has = |step| seen.iter().any(|upgrade| upgrade.step == step);
        assert_eq!(has(UpgradeStep::Copy(key)), migration_copy, "{seen:?}");
        assert!(has(UpgradeStep::Change(key)), "{seen:?}");
    }
}

#[actix_web::test]
async fn the_log_and_systemd_learn_of_an_upgrade_before_the_server_is_ready() {
    let (home, _month) = copied_samples(true).await;
    make_old(home.path(), "");
    let manager_dir = TempDir::new().expect("a temporary directory can be made");
    let path = manager_dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket can be bound");
    manager.set_read_timeout(Some(AT_ONCE)).expect("it is not zero");
    let next = || {
        let mut message = [0; 256];
        let bytes = manager.recv(&mut message).expect("the server notifies");
        String::from_utf8_lossy(&message[..bytes]).into_owned()
    };
    let mut launch = Launch { data_dir: Some(home.path().to_owned()), ..Launch::default() };
    launch.variables.push(("NOTIFY_SOCKET", path.display().to_string()));
    let server = Server::launch(launch);
    let longer = "EXTEND_TIMEOUT_USEC=120000000\n";
    assert_eq!(next(), format!("{longer}STATUS=upgrading the store, 0 %\n"));
    let rest: Vec<_> = std::iter::repeat_with(next).take_while(|it| it != "READY=1\n").collect();
    assert_eq!(rest.last(), Some(&format!("{longer}STATUS=\n")), "{rest:?}");

    let logged = async |text: &str| -> Value {
        serde_json::from_str(&server.logged(text).await).expect("the log is JSON")
    };
    let begun = logged("upgrading files of an older version before the server listens").await;
    let files = databases(home.path()).len();
    assert_eq!(begun["files"], files);
    assert!(begun["bytes"].as_u64() > Some(0) && begun["bytes_to_copy"] == begun["bytes"]);
    assert!(begun["may_take_s"].as_u64() > Some(0), "{begun}");
    let done = logged("upgraded all files of an older version").await;
    assert!(done["files"] == files && done["took_ms"].is_u64(), "{done}");
}

#[actix_web::test]
async fn a_command_shows_the_upgrade_of_its_store_on_standard_error() {
    let (home, _month) = copied_samples(true).await;
    make_old(home.path(), "");
    let list = async || {
        let mut command = kalends(&["tables", "list"]);
        command.arg("--data-dir").arg(home.path());
        Program::run(command).await
    };
    let files = databases(home.path()).len();
    let (first, second) = (list().await, list().await);
    let lines: Vec<_> = first.stderr.lines().collect();
    let begin = format!("kalends: upgrading {files} files of an older version first, ");
    assert!(lines[0].starts_with(&begin) && lines[1].starts_with("kalends: upgraded in "));
    assert!(!second.stderr.contains("upgraded"), "{second:?}");
    assert!(first.succeeded().contains("messages_"));
    second.succeeded();
}

/// docs/performance.md names the script.
#[test]
fn the_measurement_of_upgrades_still_makes_an_older_store() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/load/upgrade");
    let mut command = child(script);
    command.args(["--messages=500", "--kalends", env!("CARGO_BIN_EXE_kalends")]);
    let output = command.output().expect("Python can be run");
    let figures: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(figures["messages"], 500);
    assert!(figures["upgrade_ms"].is_u64() && figures["start_s"].is_f64(), "{figures}");
}
