//! Compares the log lines of `docs/operations/log-lines.md` with those of the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::manual::{read, root};

/// The source directories of the server.
const FOLDERS: [&str; 3] = ["src", "actors/src", "storage/src"];

/// The logging macros, and the level of each.
const MACROS: [(&str, &str); 3] = [("info!(", "INFO"), ("warn!(", "WARN"), ("error!(", "ERRO")];

/// Lines above INFO that the table may omit.
const NOT_IN_THE_TABLE: [(&str, &str); 2] = [
    ("{advice}", "one of several texts, and the table has each of them"),
    ("the clock is shifted", "only with a flag for developers, who gave it themselves"),
];

/// The log lines of the manual, with their levels.
fn table() -> BTreeMap<String, String> {
    let manual = read("docs/operations/log-lines.md");
    let items = manual.split("\n- `").skip(1).map(|item| item.split("\n\n").next().unwrap_or(item));
    let items = items.map(|item| {
        let item = item.split_whitespace().collect::<Vec<_>>().join(" ");
        let (line, rest) = item.split_once('`').expect("a log line ends");
        let level = rest.strip_prefix(" (").and_then(|level| level.split_once("):"));
        (line.to_owned(), level.map_or("WARN", |(level, _)| level).to_owned())
    });
    items.collect()
}

/// The sources without their tests, and with joined string literals.
fn sources() -> Vec<String> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("a folder can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(read(path)),
            }
        }
    }
    files.iter().map(|text| joined(without_tests(text))).collect()
}

fn without_tests(text: &str) -> &str {
    text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(text, _)| text)
}

fn joined(text: &str) -> String {
    text.split("\\\n").enumerate().fold(String::new(), |mut joined, (part, rest)| {
        joined.push_str(if part == 0 { rest } else { rest.trim_start() });
        joined
    })
}

/// The first string literal of each use of these macros, with its level.
fn logged(source: &str) -> Vec<(String, &'static str)> {
    let mut lines = Vec::new();
    for (name, level) in MACROS {
        for call in source.split(name).skip(1) {
            let text = call.split('"').nth(1).expect("a log line has a text");
            lines.push((text.to_owned(), level));
        }
    }
    lines
}

#[test]
fn every_warning_of_the_sources_is_documented() {
    let table = table();
    let lines: Vec<_> = sources().iter().flat_map(|source| logged(source)).collect();
    assert!(lines.len() > 40, "{lines:?}");
    for (line, level) in &lines {
        let excepted = NOT_IN_THE_TABLE.iter().any(|(text, _reason)| text == line);
        let documented = table.get(line).map(String::as_str);
        let is_right =
            documented.map_or(excepted || *level == "INFO", |documented| documented == *level);
        assert!(is_right, "{line:?} is {level}, but {documented:?} in the table");
    }
    for (text, reason) in NOT_IN_THE_TABLE {
        assert!(lines.iter().any(|(line, _)| line == text), "no source logs {text:?} ({reason})");
    }
}

#[test]
fn every_documented_log_line_exists_in_the_sources() {
    let (table, sources) = (table(), sources());
    assert!(table.len() > 30, "{table:?}");
    for line in table.keys() {
        let text = format!("\"{line}\"");
        assert!(sources.iter().any(|source| source.contains(&text)), "no source logs {line:?}");
    }
}
