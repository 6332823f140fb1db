//! Where the tables in PostgreSQL are.

use std::fmt;

/// A URL as libpq's. It may have a password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

/// The name of a schema, which needs no quotes in SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaName(String);

impl PostgresUrl {
    /// The URL with its password.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let has_scheme =
            ["postgresql://", "postgres://"].iter().any(|scheme| text.starts_with(scheme));
        match has_scheme && !text.contains(char::is_whitespace) {
            true => Ok(Self(text.to_owned())),
            false => Err("expected postgresql://USER@HOST:PORT/DATABASE".into()),
        }
    }

    pub(super) fn without_password(&self) -> String {
        let shown = || {
            let (scheme, rest) = self.0.split_once("://")?;
            let (user, rest) = rest.split_once('@')?;
            let (user, _password) = user.split_once(':')?;
            Some(format!("{scheme}://{user}@{rest}"))
        };
        shown().unwrap_or_else(|| self.0.clone())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_password())
    }
}

impl SchemaName {
    /// One that is known to be valid.
    pub(in crate::settings) fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        match begins && text.len() <= NAME_MAX && text.chars().all(is_fine) {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("expected a letter and at most {NAME_MAX} of a-z 0-9 _")),
        }
    }
}

/// PostgreSQL cuts names at 63 bytes.
const NAME_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_read_and_never_shown() {
        let url =
            PostgresUrl::read("postgresql://u:secret@db:5432,db2/push?sslmode=require").unwrap();
        let shown = "postgresql://u@db:5432,db2/push?sslmode=require";
        assert_eq!((url.without_password().as_str(), format!("{url:?}").as_str()), (shown, shown));
        assert!(url.as_str().contains("secret"));
        for url in ["postgresql:///push", "postgres://u@%2Frun%2Fpostgresql/d"] {
            assert_eq!(PostgresUrl::read(url).unwrap().without_password(), url);
        }
        PostgresUrl::read("host=db password=secret").unwrap_err();
    }

    #[test]
    fn a_schema_needs_no_quotes() {
        for name in ["kalends", "_a1", &"a".repeat(63)] {
            assert_eq!(SchemaName::read(name).unwrap().as_str(), name);
        }
        for name in ["", "1a", "Kalends", "a-b", "a; DROP", &"a".repeat(64)] {
            SchemaName::read(name).unwrap_err();
        }
    }
}
