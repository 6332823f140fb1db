//! The disk against a real file system, and its losses against an oracle.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use power::{Disk, Errno, Fault, Ino, Kind, Loss, Mount, Op, ROOT};

const NAMES: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "d"];

/// One operation with what was drawn for it, in a directory. Its outcome is compared.
fn step(dir: &Path, random: &mut fastrand::Rng) -> Result<String, io::ErrorKind> {
    let mut path = || dir.join(NAMES[random.usize(..NAMES.len())]);
    let (one, other) = (path(), path());
    let (offset, bytes) = (random.u64(..5000), vec![random.u8(..); random.usize(..3000)]);
    let open = || OpenOptions::new().read(true).write(true).open(&one);
    let done = match random.u8(..10) {
        0 => OpenOptions::new().write(true).create_new(true).open(&one).map(drop),
        1 => fs::create_dir(&one),
        2 | 3 => open().and_then(|file| file.write_all_at(&bytes, offset)),
        4 => open().and_then(|file| file.set_len(offset)),
        5 => fs::remove_file(&one),
        6 => fs::remove_dir(&one),
        7 => fs::rename(&one, &other),
        8 => return fs::read(&one).map(|data| format!("{data:?}")).map_err(|error| error.kind()),
        _ => fs::File::open(&one).and_then(|file| file.sync_all()),
    };
    done.map(|()| String::new()).map_err(|error| error.kind())
}

fn tree(dir: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let at = |name: &&str| (name.to_string(), fs::read(dir.join(name)).ok());
    NAMES.iter().filter(|name| dir.join(name).exists()).map(at).collect()
}

#[test]
fn a_mounted_disk_answers_random_operations_as_a_real_file_system() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let Some(mount) = Mount::or_not_run("random operations on a mounted disk") else { return };
    let real = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed));
    for number in 0..3000 {
        let expected = step(real.path(), &mut one);
        assert_eq!(step(mount.path(), &mut other), expected, "operation {number} of seed {seed}");
        if number % 100 == 0 {
            assert_eq!(tree(mount.path()), tree(real.path()), "operation {number} of seed {seed}");
        }
    }
}

/// A directory of files, as a power loss may leave it: each version that a name or a sector may have.
#[derive(Default)]
struct Oracle {
    /// What a name may mean, the synced one first.
    names: BTreeMap<&'static str, Vec<Option<Ino>>>,
    /// What a file may contain, the synced version first.
    files: BTreeMap<Ino, Vec<Vec<u8>>>,
}

/// Applies random operations to the disk and to the oracle.
fn play(disk: &mut Disk, oracle: &mut Oracle, random: &mut fastrand::Rng) {
    let name = ["a", "b", "c"][random.usize(..3)];
    let there = disk.lookup(ROOT, OsStr::new(name)).ok();
    let versions = oracle.names.entry(name).or_insert_with(|| vec![None]);
    match (random.u8(..6), there) {
        (0, None) => {
            let ino = disk.make(ROOT, OsStr::new(name), Kind::File, 0o600).unwrap();
            versions.push(Some(ino));
            oracle.files.insert(ino, vec![Vec::new()]);
        }
        (1, Some(_)) => {
            disk.remove(ROOT, OsStr::new(name), Kind::File).unwrap();
            versions.push(None);
        }
        (2 | 3, Some(ino)) => {
            disk.write(ino, random.usize(..2000), &vec![random.u8(1..); random.usize(1..1500)])
                .unwrap();
            oracle.files.get_mut(&ino).unwrap().push(disk.read(ino, 0, usize::MAX / 2).unwrap());
        }
        (4, Some(ino)) => {
            disk.fsync(ino).unwrap();
            let contents = oracle.files.get_mut(&ino).unwrap();
            contents.drain(..contents.len() - 1);
        }
        (5, _) => {
            disk.fsync_dir(ROOT).unwrap();
            oracle
                .names
                .values_mut()
                .for_each(|versions| drop(versions.drain(..versions.len() - 1)));
        }
        _ => {}
    }
}

fn contents(disk: &mut Disk, ino: Ino) -> Vec<u8> {
    disk.read(ino, 0, usize::MAX / 2).unwrap()
}

#[test]
fn a_loss_of_all_leaves_what_was_synced_and_nothing_else() {
    for seed in 0..200 {
        let (mut disk, mut oracle) = (Disk::default(), Oracle::default());
        let mut random = fastrand::Rng::with_seed(seed);
        (0..40).for_each(|_| play(&mut disk, &mut oracle, &mut random));
        let mut left = disk.lose(Loss::All);
        for (name, versions) in &oracle.names {
            let there = left.lookup(ROOT, OsStr::new(name)).ok();
            assert_eq!(there, versions[0], "{name} of seed {seed}");
            if let Some(ino) = there {
                assert_eq!(
                    contents(&mut left, ino),
                    oracle.files[&ino][0],
                    "{name} of seed {seed}"
                );
            }
        }
        assert_eq!(disk.open(ROOT), Err(Errno::EIO), "the former disk is off");
    }
}

#[test]
fn a_loss_of_a_part_leaves_each_name_and_each_sector_in_one_of_its_versions() {
    let mut torn = 0;
    for seed in 0..200 {
        let (mut disk, mut oracle) = (Disk::default(), Oracle::default());
        let mut random = fastrand::Rng::with_seed(seed);
        (0..40).for_each(|_| play(&mut disk, &mut oracle, &mut random));
        let mut left = disk.lose(Loss::Part(random));
        for (name, versions) in &oracle.names {
            let there = left.lookup(ROOT, OsStr::new(name)).ok();
            assert!(versions.contains(&there), "{name} of seed {seed}");
            let Some(ino) = there else { continue };
            let data = contents(&mut left, ino);
            torn += usize::from(!oracle.files[&ino].contains(&data));
            for (place, byte) in data.iter().enumerate() {
                let known = |version: &Vec<u8>| version.get(place).copied().unwrap_or(0) == *byte;
                // A write that was kept over one that was lost gives bytes that no version had only beyond an old end.
                assert!(
                    oracle.files[&ino].iter().any(known),
                    "{name}, byte {place} of seed {seed}"
                );
            }
        }
    }
    assert!(torn > 20, "{torn} files were torn");
}

#[test]
fn an_fsync_that_fails_forgets_what_programs_still_read() {
    let mut disk = Disk::default();
    let ino = disk.make(ROOT, OsStr::new("a"), Kind::File, 0o600).unwrap();
    disk.fsync_dir(ROOT).unwrap();
    disk.write(ino, 0, b"answered?").unwrap();
    disk.fail(Fault::nth(1, Errno::EIO).of(&[Op::Fsync]).on("/a"));
    assert_eq!(disk.fsync(ino), Err(Errno::EIO));
    assert_eq!(disk.fsync(ino), Ok(()), "as on Linux, the next one knows nothing of it");
    assert_eq!(contents(&mut disk, ino), b"answered?");
    assert_eq!(contents(&mut disk.lose(Loss::All), ino), b"");
}

#[test]
fn a_fault_strikes_the_nth_operation_of_its_kind_and_path() {
    let mut disk = Disk::default();
    let [a, b] =
        ["a", "b"].map(|name| disk.make(ROOT, OsStr::new(name), Kind::File, 0o600).unwrap());
    disk.fail(Fault::nth(2, Errno::ENOSPC).of(&[Op::Write]).on("/a"));
    let mut write = |ino| disk.write(ino, 0, b"x");
    assert_eq!(
        [a, b, b, a, a].map(&mut write),
        [Ok(()), Ok(()), Ok(()), Err(Errno::ENOSPC), Ok(())]
    );
    assert!(disk.heal());
    assert_eq!(disk.log().iter().filter(|operation| operation.error.is_some()).count(), 1);
    disk.fail(Fault::always(Errno::EIO).of(&[Op::Read]));
    assert_eq!([disk.read(a, 0, 1), disk.read(b, 0, 1)], [Err(Errno::EIO), Err(Errno::EIO)]);
}
