//! Opens an engine: the server, its settings and the tables.

use std::io;
use std::sync::Mutex;

use crate::PostgresOptions;
use crate::address::{Address, AddressError};
use crate::client::PostgresClient;
use crate::connection::Server;
use crate::error::{ErrorKind, SqlError};
use crate::schema;
use crate::sql::{Columns, params};

/// Why the tables cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("{0}")]
    Unreachable(String),
    /// The tables are missing and may not be created.
    #[error(
        "there are no tables of Kalends in the schema {schema} at {server}: create them, or allow the creation of tables"
    )]
    Missing { schema: String, server: String },
    #[error("the schema {schema} has tables of another program: name another one")]
    Foreign { schema: String },
    /// A newer version of this program made the tables.
    #[error(
        "the tables have schema version {found} and this program knows none above {known}: run the newer version again"
    )]
    Newer { found: u64, known: u64 },
    /// A crash of the server would lose what was answered.
    #[error(
        "PostgreSQL runs with fsync = off, with which a power loss loses answered writes: set it to on"
    )]
    NoSync,
    #[error("{0}")]
    Failed(String),
    #[error("cannot start the threads of the PostgreSQL engine: {0}")]
    Thread(io::Error),
}

impl From<SqlError> for PostgresOpenError {
    fn from(error: SqlError) -> Self {
        match error.kind {
            ErrorKind::Unreachable | ErrorKind::Lost => Self::Unreachable(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Connects, and ensures the tables.
pub(crate) async fn client(options: &PostgresOptions) -> Result<PostgresClient, PostgresOpenError> {
    let server = Server {
        address: Address::parse(&options.url, options.password.as_deref())?,
        is_pooled: options.is_pooled,
        connect_timeout: options.connect_timeout,
        operation_timeout: options.operation_timeout,
        failed: Mutex::default(),
    };
    let PostgresOptions { schema, create_tables, waiting, connections, .. } = options.clone();
    let client = PostgresClient::new(server, schema, create_tables, waiting, connections);
    let fsync =
        client.read(&client.names.query("SELECT current_setting('fsync')", params![])).await?;
    if fsync.first().is_some_and(|row| row.column::<&str>(0).is_ok_and(|fsync| fsync == "off")) {
        return Err(PostgresOpenError::NoSync);
    }
    schema::ensure(&client).await?;
    Ok(client)
}
