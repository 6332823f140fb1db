//! Compares the pages of `docs/operations` and the samples with the sources.

use std::fs;
use std::path::Path;

use kalends::settings::{Flags, Role, Settings};
use tempfile::TempDir;

use super::sample::folder;
use crate::harness::{Program, child, kalends};

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The samples of settings, each with the command in its first line.
fn settings_samples(manual: &str) -> Vec<(&str, &str)> {
    let blocks = manual.split("```toml\n# ").skip(1);
    let blocks = blocks.map(|block| block.split_once("\n```").expect("a block has an end").0);
    blocks.map(|block| block.split_once('\n').expect("a sample has lines")).collect()
}

#[test]
fn the_sample_settings_are_valid_for_their_roles() {
    let pages = ["install", "cluster"].map(|page| read(format!("docs/operations/{page}.md")));
    let samples: Vec<_> = pages.iter().flat_map(|page| settings_samples(page)).collect();
    let roles = [Role::All, Role::Connection, Role::Endpoint];
    let commands = roles.map(|role| format!("serve --role {}", role.name()));
    assert_eq!(samples.iter().map(|(name, _)| *name).collect::<Vec<_>>(), commands);
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
fn the_samples_have_no_variables_but_settings() {
    let reference = read("docs/settings.md");
    let mut seen = 0;
    for entry in fs::read_dir(folder()).expect("the samples are there") {
        let text = read(entry.expect("a folder can be read").path());
        let words = text.split(|sign: char| !(sign.is_ascii_uppercase() || sign == '_'));
        for word in words.filter_map(|word| word.strip_prefix("KALENDS_")) {
            let name = word.to_ascii_lowercase();
            assert!(reference.contains(&format!("- **`{name}`** ")), "{name} is no setting");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} variables");
}

/// No container engine runs where the tests run, so the shell command of the Compose file runs here.
#[tokio::test]
async fn the_compose_file_gives_each_node_a_directory_with_the_same_keys() {
    let compose = read("docs/deploy/compose.yaml");
    let image = format!("image: kalends:{}\n", env!("CARGO_PKG_VERSION"));
    assert!(compose.contains(&image), "{image}");
    for written in ["kalends:", "kalends-"] {
        let versions = compose.split(written).skip(1);
        let mut numbers = versions.filter(|text| text.starts_with(|c: char| c.is_ascii_digit()));
        let is_of_today = |text: &str| text.starts_with(env!("CARGO_PKG_VERSION"));
        assert!(numbers.all(is_of_today), "{written} has another version");
    }
    let command = compose.split("- -ec\n      - >-\n").nth(1).expect("a service makes the keys");
    let command = command.split("    volumes:").next().expect("the command ends");
    let dir = TempDir::new().expect("a temporary directory can be made");
    let command = command.replace("$$", "$").replace('\n', " ");
    // The user of the image exists there, and files of a user that is not root cannot be given away.
    let command = command.replace("cd /data", "cd \"$0\"").replace("chown -R 10001", "test -d");
    let keys = || {
        let status = child("sh").args(["-ec", &command]).arg(dir.path()).status();
        assert!(status.expect("sh can be run").success());
        fs::read_to_string(dir.path().join("endpoint2/keys.toml")).expect("each node has keys")
    };
    let first = keys();
    assert_eq!(first, keys(), "a second run leaves them unchanged");
    let mut nodes = 0;
    for line in compose.lines() {
        let Some(path) = line.trim().strip_prefix("KALENDS_DATA_DIR: /data/") else { continue };
        let data_dir = dir.path().join(path).display().to_string();
        let arguments = ["feed", "token", "--read", "feed", "--data-dir", &data_dir];
        let output = Program::run(kalends(&arguments)).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        nodes += 1;
    }
    assert_eq!(nodes, 5);
}
