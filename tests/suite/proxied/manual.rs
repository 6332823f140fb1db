//! What `docs/operations.md` and the samples say, held against the sources.

use std::fs;
use std::path::{Path, PathBuf};

use kalends::settings::{Flags, Role, Settings};
use tempfile::TempDir;

use super::sample::folder;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The samples of settings, each with the command in its first line.
fn settings_samples(manual: &str) -> Vec<(&str, &str)> {
    let blocks = manual.split("```toml\n# ").skip(1);
    let blocks = blocks.map(|block| block.split_once("\n```").expect("a block has an end").0);
    blocks.map(|block| block.split_once('\n').expect("a sample has lines")).collect()
}

/// All sources, without the breaks in their texts.
fn sources() -> String {
    let mut all = String::new();
    let mut folders: Vec<PathBuf> = vec![root().join("src"), root().join("actors/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("a folder can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false => all.push_str(&read(path)),
            }
        }
    }
    let lines: Vec<_> = all.split("\\\n").map(str::trim_start).collect();
    lines.concat()
}

#[test]
fn the_samples_of_settings_are_right_for_their_roles() {
    let manual = read("docs/operations.md");
    let samples = settings_samples(&manual);
    let roles = [Role::Serve, Role::Connect, Role::Endpoint];
    assert_eq!(samples.iter().map(|(name, _)| *name).collect::<Vec<_>>(), roles.map(Role::command));
    for ((_, text), role) in samples.iter().zip(roles) {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let file = dir.path().join("kalends.toml");
        fs::write(&file, text).expect("a file can be written");
        let flags = Flags { config: Some(file), ..Flags::default() };
        let settings = Settings::load(&flags, []).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(settings.check(role), Ok(()));
    }
}

#[test]
fn the_log_lines_that_operators_wait_for_are_logged() {
    let manual = read("docs/operations.md");
    let table = manual.split_once("| `msg` |").expect("the table is there").1;
    let table = table.split_once("\n\n").expect("a table has an end").0;
    let rows = table.lines().filter_map(|row| row.strip_prefix("| `"));
    let lines: Vec<_> = rows.map(|row| row.split_once('`').expect("a line ends").0).collect();
    let sources = sources();
    assert!(lines.len() > 10, "{lines:?}");
    for line in lines {
        assert!(sources.contains(&format!("\"{line}\"")), "nobody logs {line:?}");
    }
}

#[test]
fn the_samples_have_no_variables_but_settings() {
    let table = read("docs/settings.md");
    let mut seen = 0;
    for entry in fs::read_dir(folder()).expect("the samples are there") {
        let text = read(entry.expect("a folder can be read").path());
        let words = text.split(|sign: char| !(sign.is_ascii_uppercase() || sign == '_'));
        for word in words.filter_map(|word| word.strip_prefix("KALENDS_")) {
            let name = word.to_ascii_lowercase();
            assert!(table.contains(&format!("| `{name}` |")), "{name} is no setting");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} variables");
}

#[test]
fn the_image_is_built_with_the_rust_of_the_project() {
    let toolchain = read("rust-toolchain.toml");
    let version = toolchain.split("channel = \"").nth(1).and_then(|rest| rest.split('"').next());
    let image = format!("FROM rust:{}-", version.expect("a version is named"));
    assert!(read("docs/deploy/Dockerfile").contains(&image), "{image}");
}
