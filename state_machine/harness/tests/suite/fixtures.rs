//! Reads the fixtures of a folder.

use std::fs;
use std::path::PathBuf;

/// The text of a fixture, and the name of its file.
pub(crate) struct Fixture {
    pub(crate) file: String,
    pub(crate) text: String,
}

/// All of `fixtures/{folder}` with this extension, by name. The test fails if there are fewer than
/// `least`.
pub(crate) fn fixtures(folder: &str, extension: &str, least: usize) -> Vec<Fixture> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures")).join(folder);
    let entries = fs::read_dir(&path).expect("the fixtures are part of the repository");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|its| its == extension));
    paths.sort();
    assert!(paths.len() >= least, "only {} in {path:?}", paths.len());
    let read = |path: PathBuf| {
        let name = path.file_name().expect("an entry has a name").to_string_lossy();
        let text = fs::read_to_string(&path).expect("a fixture is text");
        Fixture { file: format!("fixtures/{folder}/{name}"), text }
    };
    paths.into_iter().map(read).collect()
}
