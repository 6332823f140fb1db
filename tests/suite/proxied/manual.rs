//! Compares the pages of `docs/operations` and the samples with the sources.

use std::fs;
use std::path::Path;

use kalends::settings::{Flags, Role, Settings};
use tempfile::TempDir;

use super::sample::folder;
use crate::harness::{Program, kalends};

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

#[test]
fn the_image_is_built_with_the_rust_version_of_the_project() {
    let toolchain = read("rust-toolchain.toml");
    let version = toolchain.split("channel = \"").nth(1).and_then(|rest| rest.split('"').next());
    let image = format!("FROM rust:{}-", version.expect("a version is named"));
    assert!(read("docs/deploy/Dockerfile").contains(&image), "{image}");
}

/// No container engine runs where the tests run, so what the image relies on is compared with the program.
#[tokio::test]
async fn the_image_starts_the_program_as_it_is() {
    let dockerfile = read("docs/deploy/Dockerfile");
    let instruction = |name: &str| {
        let mut lines = dockerfile.lines().filter_map(|line| line.strip_prefix(name));
        lines.next_back().unwrap_or_else(|| panic!("the image has no {name}")).trim()
    };
    let words = |text: &str| serde_json::from_str::<Vec<String>>(text).expect("it is a list");
    let (entry, command) = (words(instruction("ENTRYPOINT")), words(instruction("CMD")));
    let (_, health) = instruction("HEALTHCHECK").split_once("CMD ").expect("it has a command");
    for command in [[entry, command].concat(), words(health)] {
        let (program, arguments) = command.split_first().expect("a command has a program");
        assert_eq!(program, "kalends");
        let help = [arguments, &["--help".to_owned()]].concat();
        let output = Program::run(kalends(&help)).await;
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    assert_eq!(instruction("USER"), "kalends");
    let (_, listen) = instruction("ENV").split_once("KALENDS_LISTEN=").expect("it is set");
    assert_eq!(listen, format!("0.0.0.0:{}", instruction("EXPOSE")));
    let copied = dockerfile.lines().find(|line| line.starts_with("COPY --from=build"));
    assert!(copied.is_some_and(|line| line.ends_with("release/kalends /usr/local/bin/kalends")));
}
