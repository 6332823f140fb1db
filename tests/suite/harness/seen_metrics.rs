//! The values of metrics that the tests have seen. At the end of `make test`, `tests/metrics-seen` reads which series no
//! test has seen at two values.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

/// The first value of each series; none once it has had a second one.
static SEEN: Mutex<BTreeMap<String, Option<String>>> = Mutex::new(BTreeMap::new());

/// Writes each series of a text to `target/metrics-seen` when it is there first, and when it has a second value.
pub(crate) fn record(text: &str) {
    let mut seen = SEEN.lock().expect("no test panics while it holds it");
    let mut lines = String::new();
    let samples = text.lines().filter_map(|line| line.rsplit_once(' '));
    for (series, value) in samples.filter(|(series, _)| !series.contains(['#', ' '])) {
        match seen.get_mut(series) {
            None => {
                lines += &format!("there {series}\n");
                seen.insert(series.to_owned(), Some(value.to_owned()));
            }
            Some(first) if first.as_ref().is_some_and(|first| first != value) => {
                lines += &format!("two {series}\n");
                *first = None;
            }
            Some(_) => {}
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/metrics-seen");
    let file = OpenOptions::new().create(true).append(true).open(file);
    let written = file.and_then(|mut file| file.write_all(lines.as_bytes()));
    written.expect("target can be written");
}
