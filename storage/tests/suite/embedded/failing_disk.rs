//! Each write of a disk fails once while the engine makes, opens and drops its files. Afterwards each file is right, or
//! the open was refused with its name; and what was answered survives a power loss.
//!
//! The engine is in a child process: it maps a file, which the process of the disk must not do.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use power::{Disk, Errno, Fault, Loss, Mount, Op};
use state_machine::{Month, Time};
use storage::{Store, StoreError, Stored, durable};
use storage_sqlite::{Embedded, EmbeddedOptions};

use crate::embedded::{CHID, CHILD_DIR, agent, message, month, registration, this_test, waiting};
use crate::names::output_of;
use crate::store_calls::StoreCalls;

/// What the child is to do: store the message of this number, or 0 to list what waits.
const CHILD_STORES: &str = "STORAGE_TEST_CHILD_STORES";

/// Operations from one that fails to the next one: the first is random, so that a few runs have all.
const STRIDE: u64 = 5;

/// No run has more operations.
const OPERATIONS_MAX: u64 = 2000;

#[tokio::test]
async fn files_are_right_or_refused_after_any_write_failed() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return child(Path::new(&dir)).await;
    }
    let Some(mut mount) = Mount::or_not_run("failed writes of the embedded store") else { return };
    mount.put(Disk::default());
    assert!(Answers::of(&mount, 1).has_stored(1));
    let image = mount.disk().clone();
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = 1 + seed.unwrap_or_else(|| fastrand::u64(..)) % STRIDE;
    println!("the first operation that fails: {first}");
    for errno in [Errno::EIO, Errno::ENOSPC] {
        for start in [Disk::default(), image.clone()] {
            let is_first_start = start.log().is_empty();
            sweep(&mut mount, &start, errno, first, is_first_start);
        }
    }
}

/// So that a repeated call makes it anew, and what it answers is on disk.
#[test]
fn a_new_name_whose_directory_cannot_be_synced_is_taken_back() {
    type Call = fn(&Path) -> io::Result<()>;
    let test = "new names whose directory cannot be synced";
    let Some(mut mount) = Mount::or_not_run(test) else { return };
    let calls: [(&str, Call); 4] = [
        ("create", |path| durable::create(path, "new")),
        ("replace", |path| durable::replace(path, "new")),
        ("create_dir_all", |path| durable::create_dir_all(path, 0o700)),
        ("rename", |path| durable::rename(&path.with_file_name("before"), path)),
    ];
    for (name, call) in calls {
        mount.put(Disk::default());
        fs::create_dir(mount.at("before")).expect("the disk works");
        mount.disk().sync_all();
        mount.disk().fail(Fault::nth(1, Errno::EIO).of(&[Op::FsyncDir]));
        let path = mount.at("new");
        let failed = call(&path).expect_err(name).to_string();
        assert!(failed.contains("cannot sync the directory"), "{name}: {failed}");
        assert!(mount.disk().heal() && !path.exists(), "{name}");
        call(&path).unwrap_or_else(|error| panic!("{name}, repeated: {error}"));
        mount.lose(Loss::All);
        assert!(path.exists(), "{name}");
    }
}

/// Runs the child on copies of a disk until no operation is left that could fail.
fn sweep(mount: &mut Mount, start: &Disk, errno: Errno, first: u64, is_first_start: bool) {
    let mut nth = first;
    loop {
        assert!(nth < OPERATIONS_MAX, "the operations do not end");
        let what = format!("{errno} of write {nth}, first start: {is_first_start}");
        let mut disk = start.clone();
        disk.fail(Fault::nth(nth, errno).of(&Op::CHANGES));
        mount.put(disk);
        let answers = Answers::of(mount, 2);
        if !mount.disk().heal() {
            assert!(answers.has_stored(2) && nth > 20, "{what}: {answers:?}");
            return;
        }
        let mut expected: BTreeSet<u32> = answers.stored.clone();
        if !is_first_start {
            expected.insert(1);
        }
        if let Some(refusal) = &answers.refusal {
            assert!(refusal.contains("/data"), "{what}: the refusal names no file: {refusal}");
        }
        check_files(mount, &what);
        let after = Answers::of(mount, 3);
        assert!(after.has_stored(3), "{what}, after it: {after:?}");
        expected.insert(3);
        check_files(mount, &what);
        mount.lose(Loss::All);
        check_files(mount, &what);
        let left = Answers::of(mount, 0);
        let lost: Vec<_> = expected.difference(&left.waits).collect();
        assert!(lost.is_empty(), "{what}: lost {lost:?} at a power loss, {left:?}");
        assert!(!after.is_dropped || !left.has_other_month, "{what}: a dropped month is back");
        nth += STRIDE;
    }
}

/// What a child printed.
#[derive(Debug, Default)]
struct Answers {
    refusal: Option<String>,
    stored: BTreeSet<u32>,
    waits: BTreeSet<u32>,
    is_dropped: bool,
    has_other_month: bool,
}

impl Answers {
    fn of(mount: &Mount, stores: u32) -> Self {
        let mut child = this_test(std::env::current_exe().unwrap());
        child.env(CHILD_DIR, mount.at("home/data")).env(CHILD_STORES, stores.to_string());
        let output = output_of(&mut child);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let mut answers = Self::default();
        for line in text.lines().filter_map(|line| line.split_once("# ")).map(|(_, line)| line) {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("refused", why) => answers.refusal = Some(why.to_owned()),
                ("stored", number) => drop(answers.stored.insert(number.parse().unwrap())),
                ("waits", number) => drop(answers.waits.insert(number.parse().unwrap())),
                ("dropped", _) => answers.is_dropped = true,
                ("other", _) => answers.has_other_month = true,
                _ => {}
            }
        }
        answers
    }

    fn has_stored(&self, number: u32) -> bool {
        self.refusal.is_none() && self.stored.contains(&number)
    }
}

/// The header of each database says that it has a write-ahead log and a schema, and only its owner may read it.
fn check_files(mount: &Mount, what: &str) {
    let Ok(entries) = fs::read_dir(mount.at("home/data")) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "db") {
            continue;
        }
        let (header, mode) =
            (fs::read(&path).unwrap(), path.metadata().unwrap().permissions().mode());
        let name = path.display();
        assert_eq!(mode & 0o777, 0o600, "{what}: {name}");
        assert_eq!(header.get(18..20), Some(&[2, 2][..]), "{what}: the journal mode of {name}");
        assert_ne!(header.get(60..64), Some(&[0; 4][..]), "{what}: the schema of {name}");
        assert_eq!(header.get(68..70), Some(&b"KL"[..]), "{what}: the schema of {name}");
    }
}

async fn child(dir: &Path) {
    let number: u32 = std::env::var(CHILD_STORES).unwrap().parse().unwrap();
    let store = match Embedded::open(dir, &EmbeddedOptions::new(64)) {
        Ok(store) => store,
        Err(error) => return println!("# refused {error}"),
    };
    match number {
        0 => {
            for message in waiting(&store, agent(1), Time(0)).await {
                println!("# waits {}", message.id.minted_at().unwrap().0);
            }
        }
        // What fails is answered by its caller, and the store goes on.
        _ => write(&store, number).await.unwrap_or_else(|error| println!("# failed {error}")),
    }
    if store.months().await.unwrap().contains(&other_month()) {
        println!("# other");
    }
    if let Err(error) = store.close().await {
        println!("# close {error}");
    }
}

async fn write(store: &Embedded, number: u32) -> Result<(), StoreError> {
    store.ensure_month(month()).await?;
    store.register_user(registration(agent(1), number.into())).await?;
    store.add_channels(agent(1), month(), [CHID].into()).await?;
    if store.store_message(agent(1), month(), message(number)).await? == Stored::Done {
        println!("# stored {number}");
    }
    store.ensure_month(other_month()).await?;
    store.drop_month(other_month()).await?;
    println!("# dropped");
    Ok(())
}

fn other_month() -> Month {
    "2026_12".parse().unwrap()
}
