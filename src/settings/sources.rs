//! Settings as text, from flags, environment and file, before they are read as values.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::flags::{Flags, default_of};
use super::renamed;
use super::setting::Setting;
use super::table::Settings;
use super::value::{DomainName, TomlKind, Value};

/// Bytes of a file of settings that are read, which may be a device without an end.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Prefix of the environment variables of settings.
pub const ENV_PREFIX: &str = "KALENDS_";
/// Environment variable with the path of the file.
pub const ENV_CONFIG: &str = "KALENDS_CONFIG";

/// All settings found, those of the highest place first.
#[derive(Debug, Default)]
pub struct RawSettings {
    entries: Vec<Entry>,
    problems: Vec<Problem>,
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    text: String,
    /// Such as `flag --listen` or `kalends.toml line 3`.
    place: String,
}

/// All problems found, one line each.
#[derive(Debug, PartialEq, Eq)]
pub struct SettingsError(pub Vec<Problem>);

/// One problem, with the advice for the operator.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: String },
    #[error("{} is not TOML: {error}", path.display())]
    NotToml { path: PathBuf, error: String },
    #[error("`{written}` is not a setting ({place}): {advice}")]
    Unknown { written: String, place: String, advice: String },
    #[error("{name} = `{text}` ({place}): {expected}")]
    Bad { name: &'static str, text: String, place: String, expected: String },
    /// A number that is too large for the store.
    #[error("{name} = {value}: with store = \"dynamodb\" at most {max}, an item there has 400 KiB")]
    TooLarge { name: &'static str, value: usize, max: usize },
    /// A setting that needs another one.
    #[error("{name} is set, and {missing} is not: set both or none")]
    Alone { name: &'static str, missing: &'static str },
    /// A number above the setting that is its maximum.
    #[error("{name} = {value}: at most {max_name}, which is {max}")]
    Above { name: &'static str, value: u64, max_name: &'static str, max: u64 },
}

impl RawSettings {
    /// Reads all places; fails if the file cannot be read.
    pub(super) fn gather(
        flags: &Flags,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let mut given = Self::default();
        for (name, text) in &flags.given {
            let setting = Setting::find(name).expect("clap accepts the flags of settings only");
            given.add(setting, text.clone(), format!("flag {}", flag_name(name)), None);
        }
        let config = given.add_environment(environment);
        if let Some(path) = flags.config.clone().or(config) {
            given.add_file(&path).map_err(|problem| SettingsError(vec![problem]))?;
        }
        Ok(given)
    }

    /// Adds what `domain` changes the defaults of other settings to.
    pub(super) fn add_defaults_of_domain(&mut self) {
        let domain = self.entries.iter().find(|entry| entry.name == "domain");
        let Some(domain) = domain.and_then(|entry| DomainName::parse(&entry.text).ok()) else {
            return;
        };
        let public_url = format!("https://{}", domain.as_str());
        for (name, text) in
            [("listen", "[::]:443"), ("http_listen", "[::]:80"), ("public_url", &public_url)]
        {
            // The entries of higher places are before these.
            self.entries.push(Entry { name, text: text.to_owned(), place: "domain".into() });
        }
    }

    /// Adds the variables with the prefix; returns the path of the file if one names it.
    fn add_environment(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Option<PathBuf> {
        let mut config = None;
        let mut variables: Vec<_> = environment
            .into_iter()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
            .filter(|(name, _)| name.starts_with(ENV_PREFIX))
            .collect();
        variables.sort();
        for (variable, value) in variables {
            if variable == ENV_CONFIG {
                config = Some(value.into());
                continue;
            }
            match Setting::all().find(|setting| env_name(setting.name) == variable) {
                Some(setting) => {
                    let text = value.to_string_lossy().into_owned();
                    let mismatch = value.to_str().is_none().then_some("expected a text in UTF-8");
                    self.add(setting, text, format!("environment variable {variable}"), mismatch);
                }
                None => self.add_unknown(variable, "environment variable".to_owned(), env_name),
            }
        }
        config
    }

    fn add_file(&mut self, path: &Path) -> Result<(), Problem> {
        let text = File::open(path)
            .and_then(|file| io::read_to_string(file.take(FILE_BYTES_MAX)))
            .map_err(|error| Problem::Unreadable {
                path: path.to_owned(),
                error: error.to_string(),
            })?;
        self.add_text(path, &text)
    }

    /// Adds the settings in `text`; `path` is only named in errors.
    pub(super) fn add_text(&mut self, path: &Path, text: &str) -> Result<(), Problem> {
        let table = DeTable::parse(text).map_err(|error| Problem::NotToml {
            path: path.to_owned(),
            error: error.to_string().trim_end().to_owned(),
        })?;
        for (name, value) in table.get_ref() {
            let line = text[..name.span().start].matches('\n').count() + 1;
            let place = format!("{} line {line}", path.display());
            match Setting::find(name.get_ref()) {
                Some(setting) => {
                    let (text, kind) = scalar(value.get_ref());
                    let mismatch = (kind != Some(setting.toml_kind)).then(|| in_file(setting));
                    self.add(setting, text, place, mismatch.as_deref());
                }
                None => self.add_unknown(name.get_ref().to_string(), place, str::to_owned),
            }
        }
        Ok(())
    }

    /// Adds a value, or the problem that its place cannot hold a value of this kind.
    fn add(&mut self, setting: &Setting, text: String, place: String, mismatch: Option<&str>) {
        let name = setting.name;
        match mismatch.map(str::to_owned) {
            None => self.entries.push(Entry { name, text, place }),
            Some(expected) => self.problems.push(Problem::Bad { name, text, place, expected }),
        }
    }

    /// `form` writes a setting's name as its place does.
    fn add_unknown(&mut self, written: String, place: String, form: fn(&str) -> String) {
        let advice = advice(&written, form);
        self.problems.push(Problem::Unknown { written, place, advice });
    }

    /// The value in the highest place, or the default. The values in lower places are checked too, so
    /// that a mistake there does not surface later.
    pub(super) fn read<T: Value>(&mut self, name: &'static str, default: T) -> T {
        let setting = Setting::find(name).expect("read is only called for settings of the table");
        let mut value = None;
        for entry in self.entries.iter().filter(|entry| entry.name == name) {
            match parse::<T>(setting, &entry.text) {
                Ok(parsed) => value = value.or(Some(parsed)),
                Err(expected) => self.problems.push(Problem::Bad {
                    name,
                    text: entry.text.clone(),
                    place: entry.place.clone(),
                    expected,
                }),
            }
        }
        value.unwrap_or(default)
    }

    /// `settings`, if no problem was found.
    pub(super) fn finish(self, settings: Settings) -> Result<Settings, SettingsError> {
        if self.problems.is_empty() { Ok(settings) } else { Err(SettingsError(self.problems)) }
    }
}

fn parse<T: Value>(setting: &Setting, text: &str) -> Result<T, String> {
    let Some(range) = &setting.range else { return T::parse(text) };
    let within = text.parse().is_ok_and(|number| range.contains(&number));
    let expected = || {
        let example = (setting.default)();
        format!(
            "expected a whole number from {} to {}, such as {example}",
            range.start(),
            range.end()
        )
    };
    T::parse(text).ok().filter(|_| within).ok_or_else(expected)
}

/// The advice for a value of another TOML type, with the line as it may be.
fn in_file(setting: &Setting) -> String {
    let expected = setting.toml_kind.expected();
    let commas = if setting.placeholder == "LIST" { ", with commas between its parts" } else { "" };
    let example = default_of(setting).unwrap_or_else(|| "...".to_owned());
    format!("{expected}{commas}: {} = {}", setting.name, setting.toml_kind.quote(&example))
}

/// The text of a value, and its kind if settings have that kind.
fn scalar(value: &DeValue<'_>) -> (String, Option<TomlKind>) {
    match value {
        DeValue::String(text) => (text.to_string(), Some(TomlKind::Text)),
        DeValue::Integer(number) => {
            // In decimal, whatever its radix.
            let decimal = i128::from_str_radix(number.as_str(), number.radix());
            let text = decimal.map_or_else(|_| number.to_string(), |decimal| decimal.to_string());
            (text, Some(TomlKind::Number))
        }
        DeValue::Boolean(on) => (on.to_string(), Some(TomlKind::Switch)),
        DeValue::Float(number) => (number.to_string(), None),
        DeValue::Datetime(time) => (time.to_string(), None),
        DeValue::Array(_) => ("[...]".into(), None),
        DeValue::Table(_) => ("{...}".into(), None),
    }
}

/// What to write instead of an unknown name: the new name of a renamed setting, or the most similar one.
fn advice(written: &str, form: fn(&str) -> String) -> String {
    if let Some(name) = renamed::setting(&bare(written)) {
        return format!("it is `{}` now", form(name));
    }
    let link = written.strip_prefix(ENV_PREFIX).unwrap_or_default();
    if link.starts_with("SERVICE_") || link.starts_with("PORT_") || link == "PORT" {
        return "Kubernetes adds such variables for a Service named kalends, \
                set `enableServiceLinks: false` in the pod"
            .into();
    }
    let all = "docs/settings.md and `kalends serve --help` list all settings";
    let names = Setting::all().map(|setting| setting.name);
    match names.min_by_key(|name| changes(written, name)).filter(|name| is_near(written, name)) {
        Some(nearest) => format!("did you mean `{}`? {all}", form(nearest)),
        None => all.into(),
    }
}

/// Whether `written` may be a misspelling of `known`: at most a third of the name differs.
pub fn is_near(written: &str, known: &str) -> bool {
    changes(written, known) * 3 <= bare(known).len()
}

fn changes(written: &str, known: &str) -> usize {
    strsim::damerau_levenshtein(&bare(written), &bare(known))
}

/// A name without the prefix, dashes and case of its place.
fn bare(name: &str) -> String {
    let name = name.strip_prefix(ENV_PREFIX).unwrap_or(name);
    name.trim_start_matches('-').replace('-', "_").to_ascii_lowercase()
}

/// The flag of a setting.
pub fn flag_name(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// The environment variable of a setting.
pub fn env_name(name: &str) -> String {
    format!("{ENV_PREFIX}{}", name.to_ascii_uppercase())
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for SettingsError {}
