//! The log lines in `docs/operations.md`, and what the sources log: each is in the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::manual::{read, root};

/// Where servers log.
const FOLDERS: [&str; 3] = ["src", "actors/src", "storage/src"];

/// What logs, and the level that a line of it has.
const MACROS: [(&str, &str); 3] = [("info!(", "INFO"), ("warn!(", "WARN"), ("error!(", "ERRO")];

/// Lines above INFO that the table need not have.
const NOT_IN_THE_TABLE: [(&str, &str); 2] = [
    ("{advice}", "one of several texts, and the table has each of them"),
    ("the clock is shifted", "only with a flag for developers, who gave it themselves"),
];

/// The lines of the table, and the level that it gives each.
fn table() -> BTreeMap<String, String> {
    let manual = read("docs/operations.md");
    let logged = manual.split_once("\nLog lines are JSON.").expect("the tables are there").1;
    let logged = logged.split_once("\n## ").expect("a chapter has an end").0;
    let rows = logged.lines().filter_map(|row| row.strip_prefix("| `"));
    let rows = rows.filter(|row| !row.starts_with("msg`")).map(|row| {
        let (line, rest) = row.split_once("` ").expect("a line ends");
        let level = rest.strip_prefix('(').and_then(|level| level.split_once(')'));
        (line.to_owned(), level.map_or("WARN", |(level, _)| level).to_owned())
    });
    rows.collect()
}

/// The sources without their tests, and without the breaks in their texts.
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

/// What a source logs with these macros: the first text in each.
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
fn operators_are_told_of_each_line_that_a_node_warns_with() {
    let table = table();
    let lines: Vec<_> = sources().iter().flat_map(|source| logged(source)).collect();
    assert!(lines.len() > 40, "{lines:?}");
    for (line, level) in &lines {
        let excepted = NOT_IN_THE_TABLE.iter().any(|(text, _reason)| text == line);
        let told = table.get(line).map(String::as_str);
        let is_right = told.map_or(excepted || *level == "INFO", |told| told == *level);
        assert!(is_right, "{line:?} is {level}, and the table says {told:?}");
    }
    for (text, reason) in NOT_IN_THE_TABLE {
        assert!(lines.iter().any(|(line, _)| line == text), "nobody logs {text:?} ({reason})");
    }
}

#[test]
fn a_node_has_each_line_that_operators_are_told_of() {
    let (table, sources) = (table(), sources());
    assert!(table.len() > 30, "{table:?}");
    for line in table.keys() {
        let text = format!("\"{line}\"");
        assert!(sources.iter().any(|source| source.contains(&text)), "nobody logs {line:?}");
    }
}
