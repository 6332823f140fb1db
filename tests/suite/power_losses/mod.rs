//! What servers and commands have answered is on disk: the power goes, and it is there. And file systems that cannot sync.

mod acme;
mod commands;
mod left;
mod load;
mod sweep;

use std::fs;
use std::path::Path;

use power::{Disk, Errno, Fault, Loss, Mount, Op};

use crate::harness::{Agent, Launch, Sender, Server, number_from_env};

/// A disk on which a directory `home` is, as on one that was used before.
fn used_disk(mount: &mut Mount) {
    mount.put(Disk::default());
    fs::create_dir(mount.at("home")).expect("the disk works");
    mount.disk().sync_all();
}

/// Which changes `make test` strikes.
const SEED_OF_TESTS: u64 = 8;

/// The seed of a run: `POWER_SEED`, or a random one for a longer run. `make test` has always the same one.
fn seed() -> u64 {
    let by_length = || match number_from_env("POWER_SECONDS") {
        Some(_) => fastrand::u64(..1_000_000),
        None => SEED_OF_TESTS,
    };
    number_from_env("POWER_SEED").unwrap_or_else(by_length)
}

/// The command that repeats a run.
fn repeat(seed: u64, test: &str) -> String {
    format!(
        "POWER_SEED={seed} cargo test --workspace --locked --test suite -- --exact {test} --nocapture"
    )
}

/// Keeps a disk and what was done in `target/power`, under the seed of the run and the name of a case.
fn keep(seed: u64, name: &str, disk: &Disk, done: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/power");
    let dir = dir.join(seed.to_string()).join(name.replace(' ', "_"));
    // What an earlier run of the seed left.
    let _ = fs::remove_dir_all(&dir);
    let kept = fs::create_dir_all(dir.join("disk"))
        .and_then(|()| disk.export(&dir.join("disk")))
        .and_then(|()| fs::write(dir.join("done.txt"), done));
    kept.unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    println!("the disk and what was done are in {}", dir.display());
}

fn server_on(mount: &Mount, arguments: &[&str]) -> Launch {
    let launch = Launch { data_dir: Some(mount.at("home/parent/data")), ..Launch::default() };
    launch.with(arguments)
}

#[actix_web::test]
async fn a_first_start_is_on_disk_with_its_directories_before_the_first_answer() {
    let Some(mut mount) = Mount::or_not_run("a power loss after the first start") else { return };
    used_disk(&mut mount);
    let mut server = Server::launch(server_on(&mount, &[]));
    let (uaid, _channel) = Agent::offline_with(&server, "first").await;
    mount.lose(Loss::All);
    server.crash();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    assert_eq!(agent.notification().await.body(), "first");
}

/// After a failed sync, Linux takes the pages for written. The next start reads them from memory, copies them into the
/// database and syncs that: so also a message that was refused is on disk then, and the next log begins empty.
#[actix_web::test]
async fn a_start_after_a_failed_sync_and_a_kill_keeps_what_is_answered_later() {
    let Some(mut mount) = Mount::or_not_run("a failed sync, a kill and a power loss") else {
        return;
    };
    used_disk(&mut mount);
    let mut server = Server::launch(server_on(&mount, &[]));
    let (uaid, channel) = Agent::offline_with(&server, "before").await;
    mount.disk().fail(Fault::nth(1, Errno::EIO).of(&[Op::Fsync]).on("db-wal"));
    let post = Sender::new().post(&channel.endpoint).ttl(3600).body("refused").send().await;
    post.assert_error(503, 201);
    assert!(mount.disk().heal());
    server.crash();
    Sender::new().push(&channel.endpoint, "after").await;
    mount.lose(Loss::All);
    server.crash();
    let mut agent = Agent::reconnect(&server, &uaid).await;
    let got = agent.take(3).await;
    let mut bodies: Vec<_> = got.iter().map(|notification| notification.body()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, ["after", "before", "refused"]);
}

#[actix_web::test]
async fn a_file_system_that_cannot_sync_is_refused_or_served_with_a_warning() {
    let Some(mut mount) = Mount::or_not_run("a file system that cannot sync") else { return };
    for (ops, what) in [(&[Op::Fsync, Op::FsyncDir][..], "files"), (&[Op::FsyncDir], "directories")]
    {
        used_disk(&mut mount);
        mount.disk().fail(Fault::always(Errno::EINVAL).of(ops));
        let Err(refused) = Server::try_launch(server_on(&mount, &[])) else {
            panic!("it cannot sync {what}")
        };
        let text = format!("{refused:?}");
        let is_refused = text.contains("cannot sync directories");
        assert!(is_refused && text.contains("allow_unsynced_data_dir"), "{text}");

        let allowed = server_on(&mount, &["--allow-unsynced-data-dir"]);
        let mut server = Server::launch(allowed);
        let (uaid, _channel) = Agent::offline_with(&server, "unsynced").await;
        server.crash();
        let mut agent = Agent::reconnect(&server, &uaid).await;
        assert_eq!(agent.notification().await.body(), "unsynced");
        let lost = format!("\"cannot_sync\":\"{what}\"");
        server.logged(&lost).await;
    }
}
