//! What the embedded engine promises beyond the contract: one process a directory, files that are
//! damaged or not ours, a full queue, a full disk, and kill -9.

mod damage;
mod expiry;
mod failing_disk;
mod full_disk;
mod journal;
mod kill;
mod kill_drops;
mod kill_feeds;
mod operation;
mod snapshot;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use state_machine::{Chid, LastConnect, Message, Month, NodeId, RouterType, Time, Uaid};
use storage::{Embedded, EmbeddedOptions, PageLimit, Registration, Store};

use crate::names::{self, NOW};

const CHID: Chid = Chid([7; 16]);

/// Where a test that runs itself once more as a child process finds its directory.
const CHILD_DIR: &str = "STORAGE_TEST_CHILD_DIR";

/// Runs one test of this binary in a process of its own.
fn run_as_child(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs a test of this binary once more, in a process with a disk of 64 MiB of its own. Returns the disk's directory in
/// that process, and none in the other once that has succeeded.
fn on_small_disk(test: &str) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return Some(dir.into());
    }
    let home = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=64m,mode=700 kalends-test \"$STORAGE_TEST_CHILD_DIR\" && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD_DIR, home.path())
        .output()
        .expect("unshare of util-linux can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        stdout.contains("running 1 test"),
        "it needs a user namespace in which it may mount a tmpfs (Linux, unprivileged user namespaces, or root):\n\
         {stdout}\n{stderr}"
    );
    assert!(stdout.contains("1 passed"), "{stdout}\n{stderr}");
    None
}

fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, &EmbeddedOptions::new(4096)).unwrap()
}

/// Why the directory cannot be opened.
fn refusal(dir: &Path) -> String {
    match Embedded::open(dir, &EmbeddedOptions::new(4096)) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    }
}

fn month() -> Month {
    names::month("2026_11")
}

fn agent(number: u8) -> Uaid {
    Uaid([number; 16])
}

fn registration(uaid: Uaid, connected_at: u64) -> Registration {
    Registration {
        uaid,
        router_type: RouterType::WebPush,
        node: NodeId::new("a"),
        connected_at: Time(connected_at),
        last_connect: LastConnect(1),
        create_in: Some(month()),
    }
}

fn message(number: u32) -> Message {
    let payload = Some(names::payload(number.to_string().repeat(50)));
    Message { payload, ..names::message(number, CHID, NOW) }
}

/// A store with one agent of one channel and one message.
async fn furnish(store: &Embedded) {
    use storage::{MessageTables, RouterTable};
    store.register_user(registration(agent(1), 1)).await.unwrap();
    store.ensure_month(month()).await.unwrap();
    store.add_channels(agent(1), month(), [CHID].into()).await.unwrap();
    store.store_message(agent(1), month(), message(1)).await.unwrap();
}

async fn waiting(store: &dyn Store, uaid: Uaid, at: Time) -> Vec<Message> {
    let all = PageLimit { rows: usize::MAX, bytes: usize::MAX };
    names::all_messages(store, uaid, month(), all, at).await
}
