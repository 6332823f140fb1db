//! What a file of settings has: values, mistakes, and a password that others can read.

use std::fs::Metadata;
use std::path::Path;

use toml::de::{DeValue, Error};

use super::raw::Entry;
use super::setting::Setting;
use super::value::{PostgresUrl, TomlKind, Value};
use crate::system::regular_file::exposed_mode;

/// Where and why, without the line, which the text of the error quotes: it may have a password.
pub(super) fn not_toml(text: &str, error: &Error) -> String {
    let offset = error.span().map_or(0, |span| span.start);
    let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
    format!("line {line}: {}", error.message().lines().collect::<Vec<_>>().join(", "))
}

/// The advice for a value of another TOML type, with the line as it may be.
pub(super) fn in_file(setting: &Setting) -> String {
    let expected = setting.toml_kind.expected();
    let commas = if setting.placeholder == "LIST" { ", with commas between its parts" } else { "" };
    let example = setting.default().unwrap_or_else(|| "...".to_owned());
    format!("{expected}{commas}: {} = {}", setting.name, setting.toml_kind.quote(&example))
}

/// The text of a value, and its kind if settings have that kind.
pub(super) fn scalar(value: &DeValue<'_>) -> (String, Option<TomlKind>) {
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

/// The warning of a file whose entries have a password, if other users can read it.
pub(super) fn warning_of_password(
    path: &Path,
    metadata: &Metadata,
    entries: &[Entry],
) -> Option<String> {
    let mode = exposed_mode(metadata)?;
    let mut urls = entries.iter().filter(|entry| entry.name == "postgresql_url");
    let has_password = |url: &Entry| {
        Option::<PostgresUrl>::parse(&url.text)
            .is_ok_and(|url| url.is_some_and(|url| url.has_password()))
    };
    urls.any(has_password).then(|| {
        format!(
            "warning: {} has mode {mode:04o}, so other users can read the password in postgresql_url: let the file belong to \
             the user of the server with mode 0600, or use postgresql_password_file",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_with_a_password_that_others_can_read_is_warned_of() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("kalends.toml");
        let file = File::create(&path).unwrap();
        for (mode, url, is_warned) in [
            (0o644, "postgresql://u:s3cretpw@h/db", true),
            (0o640, "postgresql://u@h/db?password=s3cretpw", true),
            (0o600, "postgresql://u:s3cretpw@h/db", false),
            (0o644, "postgresql://u@h/db", false),
            (0o644, "", false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let entry =
                Entry { name: "postgresql_url", text: url.to_owned(), place: String::new() };
            let warning = warning_of_password(&path, &file.metadata().unwrap(), &[entry]);
            assert_eq!(warning.is_some(), is_warned, "{mode:o} {url}");
            assert!(!warning.unwrap_or_default().contains("s3cretpw"));
        }
    }
}
