//! Rules of the code base that the compiler does not check.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Maximum number of lines of a file of sources or tests.
const FILE_LINES_MAX: usize = 500;

/// Files that are one concept and longer, and their limit.
const LONG_FILES: [&str; 3] = [
    "src/settings/sources.rs",
    "src/settings/table.rs",
    "storage/tests/suite/dynamo/faults/operations.rs",
];
const LONG_FILE_LINES_MAX: usize = 700;

#[test]
fn there_is_only_one_cryptography_library() {
    let lock = fs::read_to_string(Path::new(ROOT).join("Cargo.lock")).unwrap();
    assert!(lock.contains("name = \"aws-lc-rs\""));
    for other in ["openssl-sys", "native-tls"] {
        assert!(!lock.contains(&format!("name = \"{other}\"")), "{other}");
    }
}

#[test]
fn only_one_file_uses_actix_web_actors() {
    let naming = sources().into_iter().filter(|(_, text)| text.contains("use actix_web_actors"));
    let naming: Vec<_> = naming.map(|(path, _)| path).collect();
    assert_eq!(naming, [Path::new(ROOT).join("actors/src/socket/websocket.rs")]);
}

#[test]
fn no_source_file_exceeds_the_line_limit() {
    let mut files = sources();
    for tests in [
        "tests",
        "actors/tests",
        "storage/tests",
        "state_machine/tests",
        "state_machine/harness/tests",
    ] {
        collect(&Path::new(ROOT).join(tests), &mut files);
    }
    for (path, text) in files {
        let lines = text.lines().count();
        let is_long = LONG_FILES.iter().any(|long| path == Path::new(ROOT).join(long));
        let max = if is_long { LONG_FILE_LINES_MAX } else { FILE_LINES_MAX };
        assert!(lines <= max, "{}: {lines} lines", path.display());
        assert!(!is_long || lines > FILE_LINES_MAX, "{} is no longer long", path.display());
    }
}

/// No library has tests in its documentation, so nothing compiles it for them (`doctest = false`).
#[test]
fn no_comment_has_an_example_that_no_test_would_run() {
    for (path, text) in sources() {
        let comments = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
        });
        let fences = comments.filter(|comment| comment.trim_start().starts_with("```"));
        for opening in fences.step_by(2) {
            assert_eq!(opening.trim(), "```text", "{}", path.display());
        }
    }
}

#[test]
fn the_documentation_site_has_every_page() {
    let docs = Path::new(ROOT).join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    for folder in [docs.clone(), docs.join("decisions"), docs.join("operations")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&docs).unwrap().display().to_string();
            let is_page = name.ends_with(".md") && name != "SUMMARY.md";
            assert!(!is_page || summary.contains(&format!("]({name})")), "{name} is not in it");
        }
    }
}

#[test]
fn no_page_for_operators_exceeds_its_line_limit() {
    let root = Path::new(ROOT);
    let jobs = fs::read_dir(root.join("docs/operations")).unwrap();
    let mut pages: Vec<_> = jobs.map(|entry| (entry.unwrap().path(), 250)).collect();
    assert!(pages.len() > 10, "there is a page for each job");
    pages.push((root.join("docs/operations.md"), 45));
    pages.push((root.join("README.md"), 150));
    for (page, lines_max) in pages {
        let lines = fs::read_to_string(&page).unwrap().lines().count();
        assert!(lines <= lines_max, "{}: {lines} lines", page.display());
    }
}

/// All Rust source files of the product, with their text.
pub(crate) fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for crate_sources in [
        "src",
        "actors/src",
        "storage/src",
        "storage/dynamodb/src",
        "storage/postgresql/src",
        "storage/postgresql_address/src",
        "storage/sqlite/src",
        "state_machine/src",
        "state_machine/harness/src",
    ] {
        collect(&Path::new(ROOT).join(crate_sources), &mut found);
    }
    assert!(found.len() > 50, "the sources are where this test looks");
    found
}

fn collect(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).expect("a source folder can be read") {
        let path = entry.expect("a source folder can be read").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("a source file is text");
            found.push((path, text));
        }
    }
}
