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
    #[error("this is PostgreSQL {found}, and 13 or later is needed")]
    Old { found: String },
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
    check_server(&client).await?;
    schema::ensure(&client).await?;
    Ok(client)
}

/// Refuses a server that is too old, or that does not sync its disk.
async fn check_server(client: &PostgresClient) -> Result<(), PostgresOpenError> {
    let query = client.names.query(SERVER, params![]);
    let rows = client.read(&query).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let version: i32 = row.column(0)?;
    if version < VERSION_MIN {
        return Err(PostgresOpenError::Old { found: row.column(2)? });
    }
    if row.column::<bool>(1)? { Ok(()) } else { Err(PostgresOpenError::NoSync) }
}

/// The oldest version that the tests know, 13, in the form of `server_version_num`.
const VERSION_MIN: i32 = 130_000;

const SERVER: &str = "
    SELECT current_setting('server_version_num')::int, current_setting('fsync') = 'on', current_setting('server_version')";
