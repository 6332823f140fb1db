//! `docs/settings.md` and the sample `docs/kalends.toml`, compared with the table.

use super::*;
use crate::settings::setting::Group;
use crate::settings::sources::{env_name, flag_name};
use crate::settings::table::GROUPS;
use crate::settings::{Flags, Settings};
use std::path::Path;

/// The text of `docs/settings.md`.
fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    for group in GROUPS {
        text += &format!("\n## {}\n\n", group.title);
        text.extend(group.settings.iter().map(markdown_item));
    }
    text
}

/// The text of `docs/kalends.toml`: every setting with its default, commented out.
fn sample() -> String {
    let mut text = SAMPLE_HEAD.to_owned();
    for Group { title, settings } in GROUPS {
        text += &format!("\n# {title}\n# {}\n", "-".repeat(title.len()));
        for setting in *settings {
            let value = setting.toml_kind.quote(&(setting.default)());
            text += &format!("{}# {} = {value}\n", head(setting), setting.name);
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Settings

All settings of `kalends serve`, for operators. None of them is required.

A setting has one name and can be set in three places, of which the upper overrides the lower:

| place | for `hello_timeout_ms` |
|---|---|
| a flag of `kalends serve` | `--hello-timeout-ms 3000` |
| the environment | `KALENDS_HELLO_TIMEOUT_MS=3000` |
| a TOML file | `hello_timeout_ms = 3000` |

`--config FILE` or `KALENDS_CONFIG` names the file. Without either, `/etc/kalends/kalends.toml` is read if it is there;
an empty `KALENDS_CONFIG` prevents it. [kalends.toml](kalends.toml) is a sample with all defaults, and `kalends
check-config` says what is wrong with a file.

An unknown name is an error in all three places, and so is a value out of its range, even if a higher place overrides
it. The server then does not start (exit code 2), and the error has the setting, the value, its place and the values
allowed. A switch is set by its flag alone (`--rotation`) or by a value after an equals sign (`--rotation=false`).

In Kubernetes, a Service named `kalends` adds variables such as `KALENDS_SERVICE_HOST` to every pod of its namespace.
They are unknown settings; `enableServiceLinks: false` in the pod prevents them.

`UPDATE_DOCS=1 cargo test -p kalends settings` writes this page from `src/settings/table.rs`, and a test compares both.
";

const SAMPLE_HEAD: &str = "\
# All settings of Kalends with their defaults: remove a `#` to change one.
# Use the file with `kalends serve --config FILE`.
";

/// A list item: the name with its flag, variable, default and values, then the documentation.
fn markdown_item(setting: &Setting) -> String {
    let name = setting.name;
    let (flag, variable) = (flag_name(name), env_name(name));
    let unit = setting.unit.map(|unit| format!(" {unit}")).unwrap_or_default();
    let default = setting.default().map(|text| format!("`{text}`"));
    let default = default.unwrap_or_else(|| "not set".to_owned());
    let allowed = match &setting.range {
        Some(range) => format!("Range: {} to {}{unit}", range.start(), range.end()),
        None => format!("Value: {}", setting.placeholder.replace('|', " or ")),
    };
    let head = format!("**`{name}`** (`{flag}`, `{variable}`). Default: {default}. {allowed}.");
    let lines = [wrap(&head, 118), wrap(setting.doc.trim(), 118)].concat();
    format!("- {}\n", lines.join("\n  "))
}

fn compare(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let remedy = "run `UPDATE_DOCS=1 cargo test -p kalends settings`";
    assert_eq!(written, generated, "docs/{name} differs from the code: {remedy}");
}

#[test]
fn the_reference_of_settings_is_what_the_code_says() {
    compare("settings.md", &markdown());
}

#[test]
fn the_sample_file_is_what_the_code_says() {
    compare("kalends.toml", &sample());
}

#[test]
fn the_sample_file_with_every_setting_taken_in_is_all_defaults() {
    let is_setting = |line: &&str| {
        let name = line.split(" = ").next();
        name.and_then(Setting::find).is_some()
    };
    let sample = sample();
    let lines: Vec<_> =
        sample.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_setting).collect();
    assert_eq!(lines.len(), Setting::all().count());

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines.join("\n")).unwrap();
    let flags = Flags { config: Some(file.path().to_owned()), given: Vec::new() };
    assert_eq!(Settings::load(&flags, []).unwrap(), Settings::default());
}

#[test]
fn lines_are_broken_between_words() {
    assert_eq!(wrap("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
    assert_eq!(wrap("longer than that", 3), ["longer", "than", "that"]);
}
