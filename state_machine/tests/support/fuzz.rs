//! Hostile inputs for parsers and services: valid samples with random edits, and arbitrary bytes.
//!
//! `FUZZ_CASES` is the number of inputs of each target, 10,000 unless it is set. `PROPTEST_RNG_SEED` selects them. An
//! input that fails is made small and kept in `fixtures/fuzz/TARGET`, whose files every run tries first.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

/// Inputs of a target unless `FUZZ_CASES` is set.
const CASES: u32 = 10_000;

/// How much the memory of the process may grow during the run of a target. It has other tests too.
const GROWTH_MAX_KIB: u64 = 256 * 1024;

/// Lengths of an input of arbitrary bytes.
const ARBITRARY_BYTES_MAX: usize = 512;

const EDITS_MAX: usize = 6;

/// What parsers of numbers, JSON, URLs, UTF-8 and lists find hard.
const TOKENS: [&[u8]; 24] = [
    b"0",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"{}",
    b"[[[[[[[[",
    b"{\"a\":",
    b"\r\n",
    b"\n",
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"\xf4\x8f\xbf\xbf",
    b"%00",
    b"%ff",
    b"%",
    b"=",
    b",",
    b";",
    b"../",
];

/// Checks that no input makes `check` panic, and that the memory of the process stays bounded. `samples` are valid
/// inputs.
pub(crate) fn fuzz<S: AsRef<[u8]>>(target: &str, samples: &[S], check: impl Fn(&[u8])) {
    let folder = folder(target);
    let samples: Vec<Vec<u8>> = samples.iter().map(|sample| sample.as_ref().to_vec()).collect();
    samples.iter().chain(&kept(&folder)).for_each(|input| check(input));
    let before = resident_kib();
    let config = config();
    let cases = config.cases;
    let ran = TestRunner::new(config).run(&hostile(samples), |input| {
        check(&input);
        Ok(())
    });
    match ran {
        Ok(()) => {}
        Err(TestError::Fail(_, input)) => {
            panic!("{target} fails on {}", keep(&folder, &input).display())
        }
        Err(TestError::Abort(reason)) => panic!("{target}: {reason}"),
    }
    let growth = resident_kib().saturating_sub(before);
    println!("{target}: {cases} inputs, {growth} KiB more memory");
    assert!(growth <= GROWTH_MAX_KIB, "{target}: the memory grew by {growth} KiB");
}

fn config() -> Config {
    let default = Config::default();
    let asked = std::env::var_os("FUZZ_CASES").map(|text| text.into_string().ok()?.parse().ok());
    let cases = asked.map_or(CASES, |cases| cases.expect("FUZZ_CASES is a number"));
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(2026),
        fixed @ RngSeed::Fixed(_) => fixed,
    };
    Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: 2000, ..default }
}

#[derive(Debug, Clone)]
enum Edit {
    Replace(Index, u8),
    Insert(Index, &'static [u8]),
    Remove(Index, usize),
    /// Repeats some bytes, up to 255 times.
    Repeat(Index, usize, u8),
    Copy {
        from: Index,
        to: Index,
        length: usize,
    },
    CutOff(Index),
}

fn hostile(samples: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let edited = (select(samples), vec(edit(), 0..EDITS_MAX)).prop_map(|(mut input, edits)| {
        edits.iter().for_each(|edit| edit.apply(&mut input));
        input
    });
    prop_oneof![7 => edited, 1 => vec(any::<u8>(), 0..ARBITRARY_BYTES_MAX)]
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        4 => (at(), select(&TOKENS[..])).prop_map(|(at, token)| Edit::Insert(at, token)),
        3 => (at(), 1..16_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        1 => (at(), 1..64_usize, any::<u8>()).prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        3 => (at(), at(), 1..64_usize).prop_map(|(from, to, length)| Edit::Copy { from, to, length }),
        1 => at().prop_map(Edit::CutOff),
    ]
}

impl Edit {
    fn apply(&self, input: &mut Vec<u8>) {
        // An index needs a place; the end of the input is one too.
        let places = input.len() + 1;
        let slice = |input: &[u8], at: usize, length: usize| {
            input[at..(at + length).min(input.len())].to_vec()
        };
        let (at, removed, inserted) = match self {
            Self::Replace(at, byte) => (at.index(places), 1, vec![*byte]),
            Self::Insert(at, token) => (at.index(places), 0, token.to_vec()),
            Self::Remove(at, length) => (at.index(places), *length, Vec::new()),
            Self::Repeat(at, length, times) => {
                let at = at.index(places);
                (at, 0, slice(input, at, *length).repeat(usize::from(*times)))
            }
            Self::Copy { from, to, length } => {
                (to.index(places), 0, slice(input, from.index(places), *length))
            }
            Self::CutOff(at) => (at.index(places), places, Vec::new()),
        };
        let end = (at + removed).min(input.len());
        input.splice(at..end, inserted);
    }
}

/// `fixtures/fuzz/TARGET` of the repository, whichever crate runs the test.
fn folder(target: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find(|folder| folder.join("fixtures").is_dir());
    root.expect("the repository has fixtures").join("fixtures/fuzz").join(target)
}

/// The inputs that once failed.
fn kept(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let read =
        |entry: Result<fs::DirEntry, _>| fs::read(entry.expect("a folder can be read").path());
    entries.map(|entry| read(entry).expect("a kept input can be read")).collect()
}

/// Keeps an input that failed, named by its contents.
fn keep(folder: &Path, input: &[u8]) -> PathBuf {
    let name = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let file = folder.join(format!("{name:016x}"));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&file, input))
        .expect("fixtures can be written");
    file
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("tests run on Linux");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
