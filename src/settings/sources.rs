//! Settings as text, from flags, environment and file, before they are read as values.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::flags::Flags;
use super::table::{Setting, Settings};
use super::value::{TomlKind, Value};
use crate::renamed;

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
    place: Source,
}

/// Place of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Flag(String),
    Environment(String),
    File {
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
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
    Unknown { written: String, place: Source, advice: String },
    #[error("{name} = `{text}` ({place}): {expected}")]
    Bad { name: &'static str, text: String, place: Source, expected: String },
    /// A number that is too large for the store.
    #[error("{name} = {value}: with store = \"dynamodb\" at most {max}, an item there has 400 KiB")]
    TooLarge { name: &'static str, value: usize, max: usize },
}

impl RawSettings {
    /// Reads all places; fails if the file cannot be read.
    pub(super) fn gather(
        flags: &Flags,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let mut given = Self::default();
        for (name, text) in &flags.given {
            given.add(name, text.clone(), Source::Flag(flag_name(name)));
        }
        let config = given.add_environment(environment);
        if let Some(path) = flags.config.clone().or(config) {
            given.add_file(&path).map_err(|problem| SettingsError(vec![problem]))?;
        }
        Ok(given)
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
            } else {
                self.add_variable(variable, value);
            }
        }
        config
    }

    fn add_variable(&mut self, variable: String, value: OsString) {
        let known = Setting::all().find(|setting| env_name(setting.name) == variable);
        let name = known.map_or(variable.as_str(), |setting| setting.name).to_owned();
        let place = Source::Environment(variable);
        match (known, value.into_string()) {
            (Some(setting), Err(value)) => self.problems.push(Problem::Bad {
                name: setting.name,
                text: value.to_string_lossy().into_owned(),
                place,
                expected: "expected a text in UTF-8".into(),
            }),
            (_, value) => self.add(&name, value.unwrap_or_default(), place),
        }
    }

    fn add_file(&mut self, path: &Path) -> Result<(), Problem> {
        let text = std::fs::read_to_string(path).map_err(|error| Problem::Unreadable {
            path: path.to_owned(),
            error: error.to_string(),
        })?;
        let table = DeTable::parse(&text).map_err(|error| Problem::NotToml {
            path: path.to_owned(),
            error: error.to_string().trim_end().to_owned(),
        })?;
        for (name, value) in table.get_ref() {
            let line = text[..name.span().start].matches('\n').count() + 1;
            let place = Source::File { path: path.to_owned(), line };
            self.add_typed(name.get_ref(), value.get_ref(), place);
        }
        Ok(())
    }

    fn add_typed(&mut self, name: &str, value: &DeValue<'_>, place: Source) {
        let (text, shape) = scalar(value);
        match Setting::find(name) {
            Some(setting) if shape != Some(setting.toml_kind) => self.problems.push(Problem::Bad {
                name: setting.name,
                text,
                place,
                expected: setting.toml_kind.expected().to_owned(),
            }),
            _ => self.add(name, text, place),
        }
    }

    fn add(&mut self, name: &str, text: String, place: Source) {
        match Setting::find(name) {
            Some(setting) => self.entries.push(Entry { name: setting.name, text, place }),
            None => {
                let advice = advice(name, &place);
                self.problems.push(Problem::Unknown { written: name.to_owned(), place, advice });
            }
        }
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
    let expected = || format!("expected a number from {} to {}", range.start(), range.end());
    let value = T::parse(text).map_err(|_| expected())?;
    let within = value.number().is_some_and(|number| range.contains(&number));
    if within { Ok(value) } else { Err(expected()) }
}

/// The text of a value, and its kind if settings have that kind.
fn scalar(value: &DeValue<'_>) -> (String, Option<TomlKind>) {
    match value {
        DeValue::String(text) => (text.to_string(), Some(TomlKind::Text)),
        DeValue::Integer(number) => (whole(number), Some(TomlKind::Number)),
        DeValue::Boolean(on) => (on.to_string(), Some(TomlKind::Switch)),
        DeValue::Float(number) => (number.to_string(), None),
        DeValue::Datetime(time) => (time.to_string(), None),
        DeValue::Array(_) => ("[...]".into(), None),
        DeValue::Table(_) => ("{...}".into(), None),
    }
}

/// A TOML integer in decimal, whatever its radix.
fn whole(number: &toml::de::DeInteger<'_>) -> String {
    match i128::from_str_radix(number.as_str(), number.radix()) {
        Ok(number) => number.to_string(),
        Err(_) => number.to_string(),
    }
}

/// Advice on an unknown name.
fn advice(written: &str, place: &Source) -> String {
    let form = match place {
        Source::Environment(_) => env_name,
        Source::Flag(_) => flag_name,
        Source::File { .. } => str::to_owned,
    };
    if let Some(name) = renamed::setting(&bare(written)) {
        return format!("it is `{}` now", form(name));
    }
    let nearest = match place {
        Source::Environment(_) if is_service_link(written) => {
            return "Kubernetes adds such variables for a Service named kalends, \
                    set `enableServiceLinks: false` in the pod"
                .into();
        }
        _ => nearest(written, form),
    };
    let all = "docs/settings.md and `kalends serve --help` list all settings";
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? {all}"),
        None => all.into(),
    }
}

fn is_service_link(variable: &str) -> bool {
    let name = &variable[ENV_PREFIX.len()..];
    name.starts_with("SERVICE_") || name.starts_with("PORT_") || name == "PORT"
}

/// The setting most similar to the name, in the form of its place, if any is similar.
fn nearest(written: &str, form: fn(&str) -> String) -> Option<String> {
    Setting::all()
        .map(|setting| setting.name)
        .min_by_key(|name| changes(written, name))
        .filter(|name| is_near(written, name))
        .map(form)
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

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment(variable) => write!(f, "environment variable {variable}"),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
        }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for SettingsError {}
