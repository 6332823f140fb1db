//! Opens PostgreSQL with the settings.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use storage::StoreAdmin;
use storage_postgresql::{PostgresOpenError, PostgresOptions};

use super::open_error::{OpenStoreError, maker_of_tables};
use crate::settings::{PostgresUrl, Settings};
use crate::system::regular_file;

pub(super) fn open(
    settings: &Settings,
    creates: bool,
) -> Result<Arc<dyn StoreAdmin>, OpenStoreError> {
    let options = PostgresOptions { create_tables: creates, ..options(settings)? };
    let opened = storage_postgresql::open(&options).map_err(|error| {
        let remedy = match error {
            PostgresOpenError::Missing { .. } => {
                format!(
                    " ({}; postgresql_schema names the schema)",
                    maker_of_tables(settings.create_tables)
                )
            }
            PostgresOpenError::Address(_) | PostgresOpenError::Unreachable(_) => {
                " (postgresql_url is the setting)".to_owned()
            }
            PostgresOpenError::Foreign { .. } => " (postgresql_schema is the setting)".to_owned(),
            _ => String::new(),
        };
        let is_final = !matches!(error, PostgresOpenError::Unreachable(_));
        OpenStoreError::PostgreSql { text: format!("{error}{remedy}"), is_final }
    })?;
    Ok(Arc::new(opened))
}

pub(super) fn place(settings: &Settings) -> String {
    let url = settings.postgresql_url.as_ref().map_or("", PostgresUrl::as_str);
    storage_postgresql::place(url).unwrap_or("PostgreSQL".to_owned())
}

fn options(settings: &Settings) -> Result<PostgresOptions, OpenStoreError> {
    let password = settings.postgresql_password_file.as_deref().map(read_password).transpose();
    let password = password.map_err(|text| OpenStoreError::PostgreSql { text, is_final: true })?;
    Ok(PostgresOptions {
        url: settings.postgresql_url.as_ref().map_or("", PostgresUrl::as_str).to_owned(),
        password,
        schema: settings.postgresql_schema.as_str().to_owned(),
        create_tables: settings.create_tables,
        is_pooled: settings.postgresql_pooler,
        connect_timeout: Duration::from_millis(settings.postgresql_connect_timeout_ms),
        operation_timeout: Duration::from_millis(settings.postgresql_operation_timeout_ms),
        requests_max: settings.postgresql_requests_max,
        agent_writes_max: settings.postgresql_agent_writes_max,
        connections: settings.postgresql_connections_max,
        threads: settings.postgresql_threads,
        waiting: settings.waiting_limits(),
    })
}

/// Maximum size of the file, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// The one line of a file that only its owner can read. The error never quotes it.
fn read_password(file: &Path) -> Result<String, String> {
    let unreadable = |error: io::Error| {
        format!("postgresql_password_file: cannot read {}: {error}", file.display())
    };
    let opened = regular_file::open(file).map_err(unreadable)?;
    if let Some(mode) = regular_file::exposed_mode(&opened.metadata().map_err(unreadable)?) {
        return Err(format!(
            "postgresql_password_file: {0} has mode {mode:04o}, so other users can read the password: run `chmod 600 {0}`",
            file.display()
        ));
    }
    let mut password = String::new();
    opened.take(PASSWORD_BYTES_MAX).read_to_string(&mut password).map_err(unreadable)?;
    Ok(password.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_password_is_read_from_a_file_that_only_its_owner_can_read() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("password");
        fs::write(&file, "a secret \n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_password(&file).unwrap(), "a secret ");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let refused = read_password(&file).unwrap_err();
        assert!(refused.contains("mode 0640") && !refused.contains("secret"), "{refused}");
        assert!(read_password(home.path()).is_err());
    }
}
