//! The COMMIT of one file fails, each of those that these operations make: among them are operations on two files. What
//! was answered is there, what was not is whole or absent, and a repeated call completes it.
//!
//! A commit syncs the write-ahead log of its file once. So the number of a sync is that of a commit, also of one that
//! an operation makes tomorrow.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use power::{Disk, Errno, Fault, Loss, Mount, Op};
use rusqlite::Connection;
use rusqlite::types::Value;
use state_machine::{AckCode, Message, Month};
use storage::{ExpectedReceipt, ReceiptTables, Store, StoreAdmin, StoreError};
use storage_sqlite::Embedded;
use tempfile::TempDir;

use crate::embedded::{CHID, CHILD_DIR, agent, message, month, registration, this_test};
use crate::names::{output_of, subscription, with_receipt, with_topic};
use crate::raw_rows::{self, Counts};
use crate::store_calls::StoreCalls;

/// The first and the last step of a child, and whether it repeats one that fails or ends there.
const CHILD_STEPS: &str = "STORAGE_TEST_CHILD_STEPS";

/// Of the writes of commits, one of so many fails. The first is random, so that a few runs have all.
const WRITES: u64 = 7;

type Step = fn(&Embedded) -> LocalBoxFuture<'_, Result<(), StoreError>>;

/// Each writes to the files named behind it.
const STEPS: [(&str, Step); 10] = [
    ("settle: router, month", |store| {
        Box::pin(async {
            let acked = vec![(wanting(1).key(), AckCode::Delivered)];
            store.settle_messages(agent(1), months(), acked).await.map(drop)
        })
    }),
    ("replace: router, month", |store| {
        Box::pin(async {
            let later = topical(4, "t");
            store.expect_receipt(ExpectedReceipt::of(&later).unwrap(), 100).await?;
            store.store_message(agent(1), month(), later).await.map(drop)
        })
    }),
    ("withdraw: router, month", |store| {
        Box::pin(async {
            store.withdraw_message(agent(1), months(), topical(4, "t").key()).await.map(drop)
        })
    }),
    ("delete: two months", |store| {
        Box::pin(async {
            let plain = vec![message(3).key(), message(5).key()];
            store.delete_messages(agent(1), months(), plain).await.map(drop)
        })
    }),
    ("move: router, two months", |store| {
        Box::pin(store.move_messages(agent(1), month(), month().next()))
    }),
    ("remove a channel: two months", |store| {
        Box::pin(store.remove_channel(agent(2), months(), CHID))
    }),
    ("mark a user: router", |store| {
        Box::pin(async { store.mark_dropped(agent(3), None).await.map(drop) })
    }),
    ("delete the rows of a user: two months", |store| {
        Box::pin(async {
            for month in months() {
                while store.delete_rows(vec![agent(3)], month).await? {}
            }
            Ok(())
        })
    }),
    ("delete a record that is marked: router", |store| {
        Box::pin(store.delete_uaids(vec![agent(3)]))
    }),
    ("copy a month: two months", |store| {
        Box::pin(async {
            let (from, to) = (month(), month().next());
            let mut after = store.copy_rows(from, to, None).await?.next;
            while after.is_some() {
                after = store.copy_rows(from, to, after).await?.next;
            }
            Ok(())
        })
    }),
];

fn months() -> Vec<Month> {
    vec![month(), month().next()]
}

/// The message with the wish for a receipt.
fn wanting(number: u32) -> Message {
    with_receipt(message(number), subscription())
}

fn topical(number: u32, topic: &str) -> Message {
    with_receipt(with_topic(number, topic, message(number)), subscription())
}

async fn furnish(store: &Embedded) -> Result<(), StoreError> {
    for month in months() {
        store.ensure_month(month).await?;
        for number in 1..=3 {
            store.register_user(registration(agent(number), 1)).await?;
            store.add_channels(agent(number), month, [CHID].into()).await?;
            store.store_message(agent(number), month, message(9)).await?;
        }
    }
    let (old, new) = (month(), month().next());
    // Only a copy of the month reaches the next one.
    store.add_channels(agent(4), old, [CHID].into()).await?;
    store.store_message(agent(4), old, message(9)).await?;
    let later = topical(8, "u");
    for (month, message) in
        [(old, wanting(1)), (old, topical(2, "t")), (old, later), (new, topical(7, "u"))]
    {
        store.expect_receipt(ExpectedReceipt::of(&message).unwrap(), 100).await?;
        store.store_message(agent(1), month, message).await?;
    }
    store.store_message(agent(1), old, message(3)).await?;
    store.store_message(agent(1), new, message(5)).await.map(drop)
}

#[tokio::test]
async fn what_one_of_two_commits_leaves_is_whole_or_absent_and_is_completed_by_a_repeated_call() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return child(Path::new(&dir)).await;
    }
    let Some(mut mount) = Mount::or_not_run("a failed commit of one of two files") else { return };
    mount.put(Disk::default());
    std::fs::create_dir(mount.at("home")).unwrap();
    assert_eq!(steps(&mount, "furnish").done, 0);
    mount.disk().sync_all();
    let start = mount.disk().clone();
    let states = (0..=STEPS.len()).map(|steps_done| {
        mount.put(start.clone());
        let ended = steps(&mount, &format!("0 {steps_done} once"));
        assert_eq!((ended.done, ended.failed), (steps_done, 0));
        rows(&mount.disk())
    });
    let states: Vec<_> = states.collect();
    for (at, pair) in states.windows(2).enumerate() {
        assert_ne!(pair[0], pair[1], "{} changes nothing", STEPS[at].0);
    }
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    for (errno, op, stride) in [(Errno::EIO, Op::Fsync, 1), (Errno::ENOSPC, Op::Write, WRITES)] {
        for ends in ["again", "once"] {
            let mut nth = 1 + seed % stride;
            println!("the first {op:?} that fails: {nth}");
            while fails(&mut mount, &start, &states, ends, Fault::nth(nth, errno).of(&[op])) {
                nth += stride;
            }
            assert!(nth > 2 * STEPS.len() as u64, "{op:?}: {nth} commits");
        }
    }
}

/// A commit fails, and the power goes: at the end of a child that repeats what failed, or at the first failure. Returns
/// false if there are fewer commits.
fn fails(
    mount: &mut Mount,
    start: &Disk,
    states: &[BTreeSet<String>],
    ends: &str,
    fault: Fault,
) -> bool {
    mount.put(start.clone());
    let what = format!("{fault:?}, {ends}");
    mount.disk().fail(fault.on("-wal"));
    let last = STEPS.len();
    let ended = steps(mount, &format!("0 {last} {ends}"));
    if !mount.disk().heal() {
        return false;
    }
    let mut disk = mount.disk().clone();
    for disk in [disk.clone(), disk.lose(Loss::All)] {
        let left = rows(&disk);
        if ended.done == last {
            assert_eq!(left, states[last], "{what}: all was answered");
            continue;
        }
        let (before, after) = (&states[ended.done], &states[ended.done + 1]);
        let name = STEPS[ended.done].0;
        let lost: Vec<_> = before.intersection(after).filter(|row| !left.contains(*row)).collect();
        assert!(lost.is_empty(), "{what}: {name}: lost {lost:?}");
        let odd: Vec<_> =
            left.iter().filter(|row| !before.contains(*row) && !after.contains(*row)).collect();
        assert!(odd.is_empty(), "{what}: {name}: there is {odd:?}");
        // A message has the key of its receipt.
        let key = format!("/m/{}", wanting(1).id);
        let is_in = |table: &str| left.iter().any(|row| row.contains(table) && row.contains(&key));
        let (message, receipt) = (is_in(" messages "), is_in(" feed_keys "));
        assert!(message || receipt, "{what}: an acked message is gone without its receipt");
        mount.put(disk);
        let again = steps(mount, &format!("{} {last} again", ended.done));
        assert_eq!((again.done, again.failed), (last - ended.done, 0), "{what}");
        assert_eq!(rows(&mount.disk()), states[last], "{what}: {name} was repeated");
    }
    true
}

#[derive(Debug, Default)]
struct Ended {
    done: usize,
    failed: usize,
}

fn steps(mount: &Mount, which: &str) -> Ended {
    let mut child = this_test(std::env::current_exe().unwrap());
    child.env(CHILD_DIR, mount.at("home/data")).env(CHILD_STEPS, which);
    let output = output_of(&mut child);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    Ended { done: count("# done"), failed: count("# failed") }
}

async fn child(dir: &Path) {
    let which = std::env::var(CHILD_STEPS).unwrap();
    let Ok(store) = Embedded::open(dir, &storage_sqlite::EmbeddedOptions::new(64)) else {
        return println!("# failed to open");
    };
    let store = Arc::new(store);
    if which == "furnish" {
        furnish(&store).await.unwrap();
        return store.close().await.unwrap();
    }
    let [first, last, ends] = which.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let steps = first.parse().unwrap()..last.parse().unwrap();
    for (name, step) in &STEPS[steps] {
        while let Err(error) = step(&store).await {
            println!("# failed {name}: {error}");
            if ends == "once" {
                // As by a kill.
                std::process::exit(0);
            }
        }
        println!("# done {name}");
    }
    // A failure here is of the checkpoint.
    let _ = store.close().await;
}

/// All rows that operations write, which fit together.
fn rows(disk: &Disk) -> BTreeSet<String> {
    let dir = TempDir::new().unwrap();
    disk.export(dir.path()).unwrap();
    let data = dir.path().join("home/data");
    assert_eq!(raw_rows::of_files(&data).wrong(Counts::Exact), Vec::<String>::new());
    let mut rows = BTreeSet::new();
    for (file, tables) in [
        ("router", &["router", "feed_keys", "receipts_expected"][..]),
        ("messages_2026_11", &["channels", "messages"]),
        ("messages_2026_12", &["channels", "messages"]),
    ] {
        let conn = Connection::open(data.join(format!("{file}.db"))).unwrap();
        for table in tables {
            let mut all = conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = all.column_count();
            let mut found = all.query([]).unwrap();
            while let Some(row) = found.next().unwrap() {
                let values = (0..columns).map(|at| row.get::<_, Value>(at).unwrap());
                rows.insert(format!("{file} {table} {:?}", values.collect::<Vec<_>>()));
            }
        }
    }
    rows
}
