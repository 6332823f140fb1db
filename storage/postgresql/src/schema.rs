//! The tables, and the functions of each month: `tables.sql`, `month.sql`, and what later versions change of them
//! (`migrations`).
//!
//! A row of `agents` marks an agent as known in its month and counts what waits for it; a row of `channels` is a
//! registered channel and counts what waits in it. Triggers of `messages` keep both counts, so that no statement can forget
//! them. Whatever writes an agent's rows of a month locks its row of `agents` first: two nodes never wait for each other.
//!
//! The version of the tables is in the row `schema` of `state`. A month has a version of its own, in a row with its name if
//! it is not 1: a node of the version before may make its tables after the others were changed.

use state_machine::Month;
use storage::networked::MonthCalls;
use storage::sql::rows::SqlRow;
use storage::store::StoreError;
use tokio_postgres::error::SqlState;

use crate::client::{PostgresClient, Transaction, transact};
use crate::error::{PostgresOpenError, Result, SqlError};
use crate::migrations::{MIGRATIONS, Migration};
use crate::sql::{NONE, Names, Row, holds, params};

/// A lock that is held while tables are made or changed. What then waits for a table's lock holds up what comes after it,
/// and so gives up soon, but after a vacuum in the way was ended (`deadlock_timeout`).
const LOCK: &str = "
    SELECT pg_advisory_xact_lock(hashtextextended('kalends tables', 0));
    SET LOCAL lock_timeout = '2s'";

const SCHEMA: &str = "CREATE SCHEMA IF NOT EXISTS {s};";

const TABLES: &str = include_str!("tables.sql");

const MONTH: &str = include_str!("month.sql");

const MONTH_VERSION: &str = "
INSERT INTO {s}.state (name, number) VALUES ('messages_{m}', 1) ON CONFLICT DO NOTHING;";

const OLDEST: &str = "
INSERT INTO {s}.state AS there (name, number) VALUES ('schema_oldest', {oldest})
    ON CONFLICT (name) DO UPDATE SET number = greatest(there.number, excluded.number);";

/// Does nothing if the version is there already.
const STEP: &str = "
DO $step$ BEGIN
    IF (SELECT number FROM {s}.state WHERE name = '{name}') < {version} THEN
        {statements};
        UPDATE {s}.state SET number = {version} WHERE name = '{name}';
    END IF;
END $step$;";

/// In the order in which writers lock them, so that none waits for the other in a circle.
const DROP_MONTH: &str = "
DROP TABLE {s}.agents_{m}, {s}.channels_{m}, {s}.messages_{m};
DROP FUNCTION IF EXISTS {s}.count_added_{m}, {s}.count_removed_{m}, {s}.store_{m}, {s}.add_messages_{m}, {s}.delete_{m},
    {s}.add_channels_{m};
DELETE FROM {s}.state WHERE name = 'messages_{m}';
";

/// The version that the last of the migrations makes.
fn newest(migrations: &[Migration]) -> u64 {
    1 + migrations.len() as u64
}

fn steps(migrations: &[Migration], name: &str, of: fn(&Migration) -> &'static str) -> String {
    let step = |(migration, version): (_, u64)| {
        let statements = of(migration).trim().trim_end_matches(';');
        let statements = if statements.is_empty() { "NULL" } else { statements };
        let step = STEP.replace("{name}", name).replace("{version}", &version.to_string());
        step.replace("{statements}", statements)
    };
    migrations.iter().zip(2..).map(step).collect()
}

/// The statements that make or change the tables which are no month's.
fn of_no_month(migrations: &[Migration]) -> String {
    let oldest = migrations.last().map_or(1, |migration| migration.oldest).to_string();
    let steps = steps(migrations, "schema", |migration| migration.tables);
    format!("{TABLES}{steps}{}", OLDEST.replace("{oldest}", &oldest))
}

/// The statements that make the tables of a month.
fn of_month(migrations: &[Migration]) -> String {
    format!("{MONTH}{}", to_newest_month(migrations))
}

/// The statements that change the tables of a month.
fn to_newest_month(migrations: &[Migration]) -> String {
    let version = if migrations.is_empty() { "" } else { MONTH_VERSION };
    format!("{version}{}", steps(migrations, "messages_{m}", |migration| migration.month))
}

/// The statements that make all tables but those of months, and those of these months. They change those of an older
/// version, of all months.
pub fn statements(schema: &str, months: &[Month]) -> String {
    let names = Names { schema: schema.to_owned() };
    let begin = format!("BEGIN;\n{};\n{SCHEMA}\n{}", LOCK.trim(), of_no_month(MIGRATIONS));
    let months = months.iter().map(|month| names.text(Some(*month), &of_month(MIGRATIONS)));
    let others = OF_ALL_MONTHS.replace("{months}", &MONTHS.replace("$1", "'{s}'"));
    let others = others.replace("{statements}", &to_newest_month(MIGRATIONS));
    let parts = std::iter::once(names.text(None, &begin)).chain(months);
    parts.chain([names.text(None, &others), "COMMIT;\n".to_owned()]).collect::<Vec<_>>().join("\n")
}

const OF_ALL_MONTHS: &str = "
DO $all$ DECLARE name text; BEGIN
    FOR name IN {months} LOOP
        EXECUTE replace($month${statements}$month$, '{m}', substr(name, length('messages_') + 1));
    END LOOP;
END $all$;
";

/// Makes or changes the tables, or compares their version with the one that this program knows.
pub(crate) async fn ensure(client: &PostgresClient) -> Result<(), PostgresOpenError> {
    let known = newest(client.migrations);
    match versions(client).await? {
        Some((found, oldest)) if found == known || found > known && oldest <= known => Ok(()),
        Some((found, _)) if found > known => Err(PostgresOpenError::Newer { found, known }),
        _ if client.options.create_tables => {
            Ok(transact!(client, |transaction| make(&transaction).await)?)
        }
        Some((found, _)) => Err(PostgresOpenError::Older { found, known }),
        None => Err(PostgresOpenError::Missing {
            schema: client.names.schema.clone(),
            server: client.server.address.shown.clone(),
        }),
    }
}

/// Makes the tables, or brings them to the newest version with those of all months.
async fn make(transaction: &Transaction<'_>) -> Result<()> {
    let PostgresClient { names, migrations, .. } = transaction.client;
    transaction.connection.execute(LOCK).await?;
    // A role that owns a schema may not make others.
    let is_there = "SELECT to_regnamespace('{s}') IS NOT NULL";
    if !holds(&transaction.run(None, is_there, NONE).await?)? {
        transaction.connection.execute(&names.text(None, SCHEMA)).await?;
    }
    transaction.connection.execute(&names.text(None, &of_no_month(migrations))).await?;
    if !migrations.is_empty() {
        let rows = transaction.run(None, MONTHS, params![names.schema.as_str()]).await?;
        for month in decode_months(&rows)? {
            transaction
                .connection
                .execute(&names.text(Some(month), &to_newest_month(migrations)))
                .await?;
        }
    }
    Ok(())
}

/// The version in the row of the schema, and the oldest one whose programs can use the tables, in a row of its own unless it
/// is the version itself. None without tables.
async fn versions(client: &PostgresClient) -> Result<Option<(u64, u64)>, PostgresOpenError> {
    let foreign = || PostgresOpenError::Foreign { schema: client.names.schema.clone() };
    let rows = match client.read(None, VERSIONS, NONE).await {
        Err(error) if error.has_code(&[SqlState::UNDEFINED_TABLE]) => return Ok(None),
        // A table of this name is another program's.
        Err(error) if error.has_code(&[SqlState::UNDEFINED_COLUMN]) => return Err(foreign()),
        rows => rows?,
    };
    let numbers = rows.iter().map(|row| row.number(0)).collect::<Result<Vec<_>>>()?;
    let version = *numbers.first().ok_or_else(foreign)?;
    Ok(Some((version, *numbers.get(1).unwrap_or(&version))))
}

const VERSIONS: &str = "
    SELECT number FROM {s}.state WHERE name IN ('schema', 'schema_oldest') ORDER BY name";

impl MonthCalls for PostgresClient {
    async fn ensure_month(&self, month: Month) -> Result<()> {
        let version = newest(self.migrations);
        if holds(&self.read(Some(month), IS_CURRENT, params![version]).await?)? {
            return Ok(());
        }
        if !self.options.create_tables {
            let what = format!("the tables of {month} are missing or old: {REMEDY}");
            return Err(SqlError::corrupt(&what));
        }
        transact!(self, |transaction| async {
            transaction.connection.execute(LOCK).await?;
            let statements = match is_there(&transaction, month).await? {
                true => to_newest_month(self.migrations),
                false => of_month(self.migrations),
            };
            transaction.connection.execute(&self.names.text(Some(month), &statements)).await
        }
        .await)
    }

    async fn months(&self) -> Result<Vec<Month>> {
        decode_months(&self.read(None, MONTHS, params![self.names.schema.as_str()]).await?)
    }

    /// Other months are not waited for, nor do they wait.
    async fn drop_month(&self, month: Month) -> Result<bool> {
        transact!(self, |transaction| async {
            transaction.connection.execute(LOCK).await?;
            let is_there = is_there(&transaction, month).await?;
            if is_there {
                transaction.connection.execute(&self.names.text(Some(month), DROP_MONTH)).await?;
            }
            Ok(is_there)
        }
        .await)
    }
}

/// Whether the month has its tables.
pub(crate) async fn is_there(transaction: &Transaction<'_>, month: Month) -> Result<bool> {
    holds(&transaction.run(Some(month), IS_THERE, NONE).await?)
}

/// The error of a call that found no function of a month. A month whose tables are there is of an older version, and not
/// missing.
pub(crate) async fn missing(client: &PostgresClient, month: Month) -> Result<SqlError> {
    let is_old = format!("{IS_THERE} AND to_regproc('{{s}}.add_messages_{{m}}') IS NULL");
    Ok(match holds(&client.read(Some(month), &is_old, NONE).await?)? {
        true => SqlError::corrupt(&format!("the tables of {month} are old: {REMEDY}")),
        false => StoreError::NoSuchMonth(month).into(),
    })
}

const IS_THERE: &str = "SELECT to_regclass('{s}.messages_{m}') IS NOT NULL";

const REMEDY: &str = "create them with `kalends tables create`, or allow the creation of tables";

fn decode_months(rows: &[Row]) -> Result<Vec<Month>> {
    let month = |name: &str| name.trim_start_matches("messages_").parse();
    rows.iter().map(|row| row.some(0, row.parsed(0, month)?)).collect()
}

/// Whether the month has its tables, in this version.
const IS_CURRENT: &str = "
    SELECT to_regclass('{s}.messages_{m}') IS NOT NULL
        AND coalesce((SELECT number FROM {s}.state WHERE name = 'messages_{m}'), 1) >= $1";

/// Those with tables, oldest first.
const MONTHS: &str = "
    SELECT relname::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname = $1 AND relkind = 'r' AND relname ~ '^messages_[0-9]{4}_[0-9]{2}$' ORDER BY relname";
