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
mod one_commit;
mod operation;
mod snapshot;

use std::env::current_exe;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use state_machine::{Chid, LastConnect, Message, Month, NodeId, RouterType, Time, Uaid};
use storage::{PageLimit, Registration, Store};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::names::{self, NOW, WAIT, output_of};
use crate::store_calls::StoreCalls;

const CHID: Chid = Chid([7; 16]);

/// Where a test that runs itself once more as a child process finds its directory.
const CHILD_DIR: &str = "STORAGE_TEST_CHILD_DIR";

/// The command that runs this test once more, in a process of its own.
fn this_test(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let thread = thread::current();
    command.args([thread.name().expect("a test runs on its thread"), "--exact", "--nocapture"]);
    command
}

/// Runs this test once more, in a process of its own.
fn run_as_child(dir: &Path) -> Child {
    this_test(current_exe().unwrap())
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs this test once more, in a process with a disk of 64 MiB of its own. Returns the disk's directory in
/// that process, and none in the other once that has succeeded.
fn on_small_disk() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return Some(dir.into());
    }
    let home = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=64m,mode=700 kalends-test \"$STORAGE_TEST_CHILD_DIR\" && exec \"$0\" \"$@\"";
    let test = this_test(current_exe().unwrap());
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(test.get_program())
        .args(test.get_args())
        .env(CHILD_DIR, home.path());
    let output = output_of(&mut unshare);
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

/// Runs this test as a child process, and kills it once `is_enough` of what it prints, and after a pause. The rest of
/// its lines is read too.
async fn kill_child(dir: &Path, mut is_enough: impl FnMut(&str) -> bool, pause: Duration) {
    let mut child = run_as_child(dir);
    let (line_of_child, lines) = mpsc::channel();
    let printed = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    thread::spawn(move || printed.for_each(|line| drop(line_of_child.send(line))));
    let mut last = String::new();
    loop {
        // An end without a kill is that of a child that has nothing left to do.
        last = match lines.recv_timeout(WAIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("the child prints nothing after {last:?}"),
        };
        if is_enough(&last) {
            break;
        }
    }
    sleep(pause).await;
    child.kill().unwrap();
    for line in lines {
        is_enough(&line);
    }
    child.wait().unwrap();
}

/// Repeats an attempt until it has the result that is waited for.
async fn until<T: Debug>(mut attempt: impl AsyncFnMut() -> T, is_it: impl Fn(&T) -> bool) {
    let end = Instant::now() + WAIT;
    loop {
        let seen = attempt().await;
        if is_it(&seen) {
            return;
        }
        assert!(Instant::now() < end, "it still is {seen:?}");
    }
}

fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, &EmbeddedOptions::new(4096)).unwrap()
}

/// An open store in a directory of its own.
fn opened() -> (TempDir, Embedded) {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    (home, store)
}

/// The same, with one agent of one channel and one message.
async fn furnished() -> (TempDir, Embedded) {
    let (home, store) = opened();
    furnish(&store).await;
    (home, store)
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
    use storage::Store;
    store.register_user(registration(agent(1), 1)).await.unwrap();
    store.ensure_month(month()).await.unwrap();
    store.add_channels(agent(1), month(), [CHID].into()).await.unwrap();
    store.store_message(agent(1), month(), message(1)).await.unwrap();
}

async fn waiting(store: &dyn Store, uaid: Uaid, at: Time) -> Vec<Message> {
    let all = PageLimit { rows: usize::MAX, bytes: usize::MAX };
    names::all_messages(store, uaid, month(), all, at).await
}
