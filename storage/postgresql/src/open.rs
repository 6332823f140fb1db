//! Opens an engine: the server, its settings and the tables.

use parking_lot::Mutex;
use postgresql_address::Address;

use crate::PostgresOptions;
use crate::client::PostgresClient;
use crate::connection::Server;
use crate::error::PostgresOpenError;
use crate::migrations::Migration;
use crate::schema;
use crate::sql::NONE;

/// Connects, and ensures the tables.
pub(crate) async fn client(
    options: &PostgresOptions,
    migrations: &'static [Migration],
) -> Result<PostgresClient, PostgresOpenError> {
    let server = Server {
        address: Address::parse(&options.url, options.password.as_deref())?,
        is_pooled: options.is_pooled,
        connect_timeout: options.connect_timeout,
        operation_timeout: options.operation_timeout,
        failed: Mutex::default(),
    };
    let client = PostgresClient::new(server, options.clone(), migrations);
    check_server(&client).await?;
    schema::ensure(&client).await?;
    Ok(client)
}

/// Refuses a server that is too old, or that does not sync its disk.
async fn check_server(client: &PostgresClient) -> Result<(), PostgresOpenError> {
    let rows = client.read(None, SERVER, NONE).await?;
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
