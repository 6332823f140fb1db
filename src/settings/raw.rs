//! Settings as text, and how they are read as values.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::renamed::Kept;
use super::setting::Setting;
use super::value::Value;

/// All settings found, those of the highest place first.
#[derive(Debug, Default)]
pub(super) struct RawSettings {
    pub(super) entries: Vec<Entry>,
    pub(super) problems: Vec<Problem>,
    /// Names that work, and have another one today.
    pub(super) kept: Kept,
    /// A line for each of them that is used.
    pub(super) warnings: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) text: String,
    /// Such as `flag --listen` or `kalends.toml line 3`.
    pub(super) place: String,
}

/// All problems found, one line each.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
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
    /// `shown` is the value, unless it may have a secret.
    #[error("{name}{shown} ({place}): {expected}")]
    Bad { name: &'static str, shown: String, place: String, expected: String },
    /// A number that is too large for the store.
    #[error("{name} = {value}: with store = \"dynamodb\" at most {max}, an item there has 400 KiB")]
    TooLarge { name: &'static str, value: usize, max: usize },
    #[error("backup_dir = `{}`: name an absolute path outside of data_dir, best on another disk", dir.display())]
    BackupDir { dir: PathBuf },
    #[error(
        "{name} is for the embedded store: the database has backups of its own, and `kalends backup` writes the keys"
    )]
    OfSqlite { name: &'static str },
    /// A setting that needs another one.
    #[error("{name} is set, and {missing} is not: set both or none")]
    Alone { name: &'static str, missing: &'static str },
    /// A setting of a port that speaks TLS itself.
    #[error(
        "{name} is set, and listen is a Unix socket, behind which only a proxy is: remove {name}, or set listen to \
         ADDRESS:PORT"
    )]
    BesideSocket { name: &'static str },
    /// A number above the setting that is its maximum.
    #[error("{name} = {value}: at most {max_name}, which is {max}")]
    Above { name: &'static str, value: u64, max_name: &'static str, max: u64 },
}

impl Problem {
    pub(super) fn bad(setting: &Setting, text: &str, place: String, expected: String) -> Self {
        let shown = if setting.is_secret { String::new() } else { format!(" = `{text}`") };
        Self::Bad { name: setting.name, shown, place, expected }
    }
}

impl SettingsError {
    /// The value, if there is no problem.
    pub(super) fn check<T>(problems: Vec<Problem>, value: T) -> Result<T, Self> {
        if problems.is_empty() { Ok(value) } else { Err(Self(problems)) }
    }
}

impl RawSettings {
    /// The value in the highest place, or the default. The values in lower places are checked too, so
    /// that a mistake there does not surface later.
    pub(super) fn read<T: Value>(
        &mut self,
        name: &'static str,
        range: Option<&RangeInclusive<u64>>,
        default: T,
    ) -> T {
        let setting = Setting::find(name).expect("the table has it");
        let mut value = None;
        for entry in self.entries.iter().filter(|entry| entry.name == name) {
            match parse(range, &default, &entry.text) {
                Ok(parsed) => value = value.or(Some(parsed)),
                Err(expected) => {
                    let place = entry.place.clone();
                    self.problems.push(Problem::bad(setting, &entry.text, place, expected));
                }
            }
        }
        value.unwrap_or(default)
    }
}

fn parse<T: Value>(
    range: Option<&RangeInclusive<u64>>,
    default: &T,
    text: &str,
) -> Result<T, String> {
    let Some(range) = range else { return T::parse(text) };
    let within = text.parse().is_ok_and(|number| range.contains(&number));
    let expected = || {
        let example = default.show();
        format!(
            "expected a whole number from {} to {}, such as {example}",
            range.start(),
            range.end()
        )
    };
    T::parse(text).ok().filter(|_| within).ok_or_else(expected)
}
