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
        if text.contains(char::is_whitespace) {
            return Err("expected postgresql://USER@HOST:PORT/DATABASE without spaces".into());
        }
        // A build without the engine refuses the store.
        #[cfg(feature = "postgresql")]
        storage_postgresql::check_url(text).map_err(|error| error.to_string())?;
        Ok(Self(text.to_owned()))
    }

    pub fn has_password(&self) -> bool {
        self.without_password() != self.0
    }

    pub(super) fn without_password(&self) -> String {
        let (base, options) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let shown = || {
            let (scheme, rest) = base.split_once("://")?;
            let (user, rest) = rest.split_once('@')?;
            let (user, _password) = user.split_once(':')?;
            Some(format!("{scheme}://{user}@{rest}"))
        };
        let base = shown().unwrap_or_else(|| base.to_owned());
        // The name of an option may be percent-encoded.
        let is_shown = |option: &&str| {
            let name = option.split('=').next().unwrap_or_default();
            name != "password" && !name.contains('%')
        };
        let options = options.split('&').filter(is_shown).collect::<Vec<_>>().join("&");
        if options.is_empty() { base } else { format!("{base}?{options}") }
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
            let url_read = PostgresUrl::read(url).unwrap();
            assert_eq!(url_read.without_password(), url);
            assert!(!url_read.has_password());
        }
        let url = PostgresUrl::read("postgresql://u@db/d?password=secret&sslmode=require").unwrap();
        assert_eq!(url.without_password(), "postgresql://u@db/d?sslmode=require");
        assert!(url.has_password());
    }

    #[test]
    fn a_url_that_a_server_would_refuse_is_refused_without_its_password() {
        for (url, part) in [
            ("host=db password=secret", "postgresql://"),
            ("mysql://u:secret@db/d", "postgresql://"),
            ("postgresql://u:secret@db/d e", "without spaces"),
            ("postgresql://u:p@secret@db/d", "%40"),
            ("postgresql://u:secret@db:99999/d", "port"),
            ("postgresql://u:secret@db/d?sslmode=bogus", "sslmode=bogus"),
        ] {
            let error = PostgresUrl::read(url).unwrap_err();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
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
