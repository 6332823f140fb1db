//! kill -9 in the middle of an import.

use tempfile::TempDir;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::autopush::{Autopush, Waiting};
use super::imports::{crypto_keys, import};
use super::redis_database::RedisDatabase;
use crate::harness::{Program, put_keys, run, unix_now_s};

/// More than one page of keys, and several times the users that are imported at once.
const USERS: usize = 3000;

/// After each, the import is killed once Redis has been asked for the messages of so many users.
const KILLED_AFTER: [usize; 3] = [1, 300, 600];

#[actix_web::test]
async fn an_import_that_is_killed_and_repeated_imports_every_user_once() {
    let mut autopush = Autopush::<RedisDatabase>::start().await;
    let (now, channel) = (unix_now_s(), Uuid::new_v4());
    for _ in 0..USERS {
        let uaid = autopush.user(&[channel]);
        autopush.message(uaid, &Waiting::new(channel, "waits", now));
    }
    let dir = TempDir::new().expect("a temporary directory can be made");
    put_keys(dir.path(), &crypto_keys(&autopush.crypto_key));
    let import = || import(&autopush.database, dir.path());
    for steps in KILLED_AFTER {
        let mut reads =
            autopush.database.server.commands().filter(|line| line.contains("\"MGET\""));
        let import = Program::start(import());
        spawn_blocking(move || reads.nth(steps - 1)).await.unwrap();
        import.kill().await;
    }
    let ended = Program::run(import()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let numbers = |line: &str| -> Vec<usize> {
        line.split([' ', '(']).filter_map(|word| word.parse().ok()).collect()
    };
    let lines: Vec<_> = ended.stdout.lines().collect();
    let [imported, skipped] = lines[..] else { panic!("{ended:?}") };
    let [users, bridged, channels, messages] = numbers(imported)[..] else { panic!("{imported}") };
    assert_eq!([bridged, channels, messages], [0, users, users], "{imported}");
    assert!(skipped.ends_with("already in the store"), "{skipped}");
    let before = numbers(skipped)[0];
    assert!(before > 0 && users > 0, "the import was killed in the middle: {ended:?}");
    assert_eq!(before + users, USERS);
    let list = ["tables", "list", "--json", "--data-dir", dir.path().to_str().unwrap()];
    let tables: serde_json::Value =
        serde_json::from_str(&run(&list).await.stdout).expect("it prints JSON");
    assert!(tables.to_string().contains(&format!("\"items\":{USERS}")), "{tables}");
}
