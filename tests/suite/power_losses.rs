//! What servers and commands have answered is on disk: the power goes, and it is there. And file systems that cannot sync.

use std::fs;

use power::{Disk, Errno, Fault, Loss, Mount, Op};

use crate::harness::{Agent, Launch, Program, Sender, Server, kalends};

/// Commands that write a file, with the file and a part of it. `DIR` is a directory of the disk.
const COMMANDS: [(&[&str], &str, &str); 4] = [
    (&["keys", "vapid", "DIR/home/vapid.pem"], "home/vapid.pem", "PRIVATE KEY"),
    (&["init", "--yes", "DIR/home/kalends.toml"], "home/kalends.toml", "kalends serve"),
    (&["keys", "cluster", "--data-dir", "DIR/home/keys"], "home/keys/keys.toml", "cluster_keys"),
    (&["dev", "view", VIEWED, "--output", "DIR/home/view.html"], "home/view.html", "<html"),
];

const VIEWED: &str = "fixtures/deliveries/busy_node.delivery";

/// A disk on which a directory `home` is, as on one that was used before.
fn used_disk(mount: &mut Mount) {
    mount.put(Disk::default());
    fs::create_dir(mount.at("home")).expect("the disk works");
    mount.disk().sync_all();
}

fn server_on(mount: &Mount, arguments: &[&str]) -> Launch {
    let launch = Launch { data_dir: Some(mount.at("home/parent/data")), ..Launch::default() };
    launch.with(arguments)
}

#[actix_web::test]
async fn a_command_that_succeeded_has_written_its_file_before_a_power_loss() {
    let Some(mut mount) = Mount::or_not_run("power losses after commands") else { return };
    for (arguments, file, part) in COMMANDS {
        used_disk(&mut mount);
        let dir = mount.path().to_str().expect("a temporary path is text").to_owned();
        let arguments: Vec<_> = arguments.iter().map(|word| word.replace("DIR", &dir)).collect();
        let ended = Program::run(kalends(&arguments)).await;
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        mount.lose(Loss::All);
        let left = fs::read_to_string(mount.at(file)).unwrap_or_default();
        assert!(left.contains(part), "{arguments:?} left {} bytes", left.len());
    }
}

#[actix_web::test]
async fn a_first_start_is_on_disk_with_its_directories_before_the_first_answer() {
    let Some(mut mount) = Mount::or_not_run("a power loss after the first start") else { return };
    used_disk(&mut mount);
    let mut server = Server::launch(server_on(&mount, &[]));
    let (uaid, _channel) = Agent::offline_with(&server, "first").await;
    mount.lose(Loss::All);
    server.kill();
    server.restart();
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
    server.kill();
    server.restart();
    Sender::new().push(&channel.endpoint, "after").await;
    mount.lose(Loss::All);
    server.kill();
    server.restart();
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
        server.kill();
        server.restart();
        let mut agent = Agent::reconnect(&server, &uaid).await;
        assert_eq!(agent.notification().await.body(), "unsynced");
        let lost = format!("\"cannot_sync\":\"{what}\"");
        server.logged(&lost).await;
    }
}
