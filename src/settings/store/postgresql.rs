//! Opens PostgreSQL with the settings.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use storage::StoreAdmin;
use storage_postgresql::{Postgres, PostgresOpenError, PostgresOptions};

use super::open_error::OpenStoreError;
use crate::settings::{PostgresUrl, Settings};

pub(super) fn open(settings: &Settings) -> Result<Arc<dyn StoreAdmin>, OpenStoreError> {
    let opened = Postgres::open(&options(settings)?).map_err(|error| {
        let remedy = match error {
            PostgresOpenError::Missing { .. } => {
                " (`kalends tables create` makes them, or create_tables = true; postgresql_schema names the schema)"
            }
            PostgresOpenError::Address(_) | PostgresOpenError::Unreachable(_) => {
                " (postgresql_url is the setting)"
            }
            PostgresOpenError::Foreign { .. } => " (postgresql_schema is the setting)",
            _ => "",
        };
        let is_final = !matches!(error, PostgresOpenError::Unreachable(_));
        OpenStoreError::PostgreSql { text: format!("{error}{remedy}"), is_final }
    })?;
    Ok(Arc::new(opened))
}

fn options(settings: &Settings) -> Result<PostgresOptions, OpenStoreError> {
    let password = match &settings.postgresql_password_file {
        None => None,
        Some(file) => Some(fs::read_to_string(file).map_err(|error| {
            let text = format!("cannot read the password in {}: {error}", file.display());
            OpenStoreError::PostgreSql { text, is_final: true }
        })?),
    };
    Ok(PostgresOptions {
        url: settings.postgresql_url.as_ref().map_or("", PostgresUrl::as_str).to_owned(),
        password: password.map(|password| password.trim_end_matches(['\r', '\n']).to_owned()),
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
