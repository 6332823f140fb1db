//! The tables, and the functions of each month.
//!
//! A row of `agents` marks an agent as known in its month and counts what waits for it; a row of `channels` is a
//! registered channel and counts what waits in it. Triggers of `messages` keep both counts, so that no statement can forget
//! them. Whatever writes an agent's rows of a month locks its row of `agents` first: two nodes never wait for each other.

use state_machine::Month;
use tokio_postgres::Row;

use crate::client::{PostgresClient, Transaction, transact};
use crate::error::{PostgresOpenError, SqlError};
use crate::sql::{Columns, params};

/// The version of the tables that this program knows.
const VERSION: u64 = 1;

/// A lock of this number is held while tables are made or changed.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('kalends tables', 0))";

const SCHEMA: &str = "CREATE SCHEMA IF NOT EXISTS {s};";

/// Texts of feeds are compared by their bytes, as the names of keys are.
const TABLES: &str = r#"
CREATE TABLE IF NOT EXISTS {s}.state (
    name text PRIMARY KEY,
    number bigint NOT NULL DEFAULT 0,
    marks text[] NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS {s}.health (session int PRIMARY KEY, checks bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.router (
    uaid uuid PRIMARY KEY,
    router_type text NOT NULL,
    node_id text,
    connected_at bigint NOT NULL,
    last_connect bigint NOT NULL,
    curmonth text NOT NULL,
    oldmonth text,
    router_data text
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS router_by_last_connect ON {s}.router (last_connect, uaid);
CREATE TABLE IF NOT EXISTS {s}.notifications (
    uaid uuid NOT NULL,
    chid uuid NOT NULL,
    version bytea NOT NULL,
    data bytea,
    PRIMARY KEY (uaid, chid)
) WITH (fillfactor = 80);
CREATE TABLE IF NOT EXISTS {s}.sequences (
    name text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL,
    version bigint NOT NULL,
    keys bigint NOT NULL,
    horizon bigint NOT NULL DEFAULT 0,
    forgotten bigint NOT NULL DEFAULT 0,
    mark bigint,
    marked_at bigint
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {s}.feed_keys (
    feed text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    feed_sync_id bigint,
    value bytea,
    PRIMARY KEY (feed, key)
);
CREATE UNIQUE INDEX IF NOT EXISTS feed_keys_by_number ON {s}.feed_keys (feed, feed_sync_id)
    WHERE feed_sync_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS feed_keys_pending ON {s}.feed_keys (feed, key) WHERE feed_sync_id IS NULL;
CREATE TABLE IF NOT EXISTS {s}.receipts_expected (
    feed text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    deadline bigint NOT NULL,
    PRIMARY KEY (feed, key)
);
CREATE INDEX IF NOT EXISTS receipts_expected_by_deadline ON {s}.receipts_expected (deadline);
INSERT INTO {s}.state (name, number) VALUES ('schema', 1), ('id_floor', 0), ('keys', 0)
    ON CONFLICT DO NOTHING;
"#;

/// Payloads are encrypted, which no compression makes smaller. `expires_at` of an agent is a time before which none of its
/// messages expires.
///
/// The codes of `store`: 0 is stored, 1 is a channel that is not registered, 2 is outranked by the other id. With 3 more is
/// to be done first (`messages::store_with_care`).
const MONTH: &str = r"
CREATE TABLE IF NOT EXISTS {s}.agents_{m} (
    uaid uuid PRIMARY KEY,
    messages bigint NOT NULL,
    bytes bigint NOT NULL,
    expires_at bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.channels_{m} (
    uaid uuid NOT NULL,
    chid uuid NOT NULL,
    messages bigint NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (uaid, chid)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.messages_{m} (
    uaid uuid NOT NULL,
    id uuid NOT NULL,
    expires_at bigint NOT NULL,
    chid uuid NOT NULL,
    topic text,
    urgency smallint NOT NULL,
    accepted_at bigint NOT NULL,
    ttl bigint NOT NULL,
    encoding smallint,
    encryption text,
    crypto_key text,
    data bytea,
    offers int NOT NULL,
    receipt text,
    size int NOT NULL,
    PRIMARY KEY (uaid, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE {s}.messages_{m} ALTER data SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX IF NOT EXISTS messages_{m}_by_topic ON {s}.messages_{m} (uaid, chid, topic)
    WHERE topic IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_{m}_by_expiry ON {s}.messages_{m} (expires_at);

CREATE OR REPLACE FUNCTION {s}.count_added_{m}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE {s}.agents_{m} a
        SET messages = a.messages + n.messages, bytes = a.bytes + n.bytes,
            expires_at = least(a.expires_at, n.expires_at)
        FROM (SELECT uaid, count(*) messages, sum(size) bytes, min(expires_at) expires_at FROM added GROUP BY uaid) n
        WHERE a.uaid = n.uaid;
    UPDATE {s}.channels_{m} c SET messages = c.messages + n.messages, bytes = c.bytes + n.bytes
        FROM (SELECT uaid, chid, count(*) messages, sum(size) bytes FROM added GROUP BY uaid, chid) n
        WHERE c.uaid = n.uaid AND c.chid = n.chid;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION {s}.count_removed_{m}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE {s}.agents_{m} a SET messages = a.messages - n.messages, bytes = a.bytes - n.bytes
        FROM (SELECT uaid, count(*) messages, sum(size) bytes FROM removed GROUP BY uaid) n
        WHERE a.uaid = n.uaid;
    UPDATE {s}.channels_{m} c SET messages = c.messages - n.messages, bytes = c.bytes - n.bytes
        FROM (SELECT uaid, chid, count(*) messages, sum(size) bytes FROM removed GROUP BY uaid, chid) n
        WHERE c.uaid = n.uaid AND c.chid = n.chid;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS count_added ON {s}.messages_{m};
CREATE TRIGGER count_added AFTER INSERT ON {s}.messages_{m}
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {s}.count_added_{m}();
DROP TRIGGER IF EXISTS count_removed ON {s}.messages_{m};
CREATE TRIGGER count_removed AFTER DELETE ON {s}.messages_{m}
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {s}.count_removed_{m}();

CREATE OR REPLACE FUNCTION {s}.store_{m}(
    u uuid, i uuid, expiry bigint, c uuid, t text, urgent smallint, accepted bigint, lifetime bigint, coding smallint,
    salt text, sender_key text, payload bytea, receipt_of text, bytes_of int,
    user_messages bigint, user_bytes bigint, channel_messages bigint, channel_bytes bigint,
    OUT code int, OUT other uuid
) LANGUAGE plpgsql AS $$
DECLARE
    of_user record; of_channel record; there record;
    more_messages bigint := 1; more_bytes bigint := bytes_of;
BEGIN
    SELECT messages, bytes INTO of_user FROM {s}.agents_{m} WHERE uaid = u FOR UPDATE;
    SELECT messages, bytes INTO of_channel FROM {s}.channels_{m} WHERE uaid = u AND chid = c;
    IF NOT FOUND THEN code := 1; RETURN; END IF;
    IF t IS NOT NULL THEN
        SELECT id, size, receipt INTO there FROM {s}.messages_{m} WHERE uaid = u AND chid = c AND topic = t;
        IF FOUND THEN
            IF there.id > i THEN code := 2; other := there.id; RETURN; END IF;
            IF there.id = i THEN code := 0; RETURN; END IF;
            IF there.receipt IS NOT NULL THEN code := 3; RETURN; END IF;
            more_messages := 0; more_bytes := bytes_of - there.size;
        END IF;
    END IF;
    IF more_messages > 0 AND (
            user_messages > 0 AND of_user.messages >= user_messages
            OR channel_messages > 0 AND of_channel.messages >= channel_messages)
        OR more_bytes > 0 AND (
            user_bytes > 0 AND of_user.bytes + more_bytes > user_bytes
            OR channel_bytes > 0 AND of_channel.bytes + more_bytes > channel_bytes)
    THEN code := 3; RETURN; END IF;
    IF more_messages = 0 THEN
        DELETE FROM {s}.messages_{m} WHERE uaid = u AND id = there.id;
    END IF;
    INSERT INTO {s}.messages_{m} VALUES (
        u, i, expiry, c, t, urgent, accepted, lifetime, coding, salt, sender_key, payload, 0, receipt_of, bytes_of)
        ON CONFLICT DO NOTHING;
    code := 0;
END $$;
CREATE OR REPLACE FUNCTION {s}.delete_{m}(u uuid, ids uuid[], chids uuid[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE deleted bigint;
BEGIN
    PERFORM 1 FROM {s}.agents_{m} WHERE uaid = u FOR UPDATE;
    DELETE FROM {s}.messages_{m} d USING unnest(ids, chids) AS gone(id, chid)
        WHERE d.uaid = u AND d.id = gone.id AND d.chid = gone.chid;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END $$;
CREATE OR REPLACE FUNCTION {s}.add_channels_{m}(u uuid, chids uuid[], if_new boolean) RETURNS void LANGUAGE plpgsql
AS $$ BEGIN
    INSERT INTO {s}.agents_{m}
        SELECT u, count(*), coalesce(sum(size), 0), coalesce(min(expires_at), 9223372036854775807)
        FROM {s}.messages_{m} WHERE uaid = u
        ON CONFLICT DO NOTHING;
    IF if_new AND NOT FOUND THEN RETURN; END IF;
    PERFORM 1 FROM {s}.agents_{m} WHERE uaid = u FOR UPDATE;
    INSERT INTO {s}.channels_{m}
        SELECT u, c,
            (SELECT count(*) FROM {s}.messages_{m} WHERE uaid = u AND chid = c),
            (SELECT coalesce(sum(size), 0) FROM {s}.messages_{m} WHERE uaid = u AND chid = c)
        FROM unnest(chids) c
        ON CONFLICT DO NOTHING;
END $$;
";

/// In the order in which writers lock them, so that none waits for the other in a circle.
const DROP_MONTH: &str = "
DROP TABLE {s}.agents_{m}, {s}.channels_{m}, {s}.messages_{m};
DROP FUNCTION {s}.count_added_{m}, {s}.count_removed_{m}, {s}.store_{m}, {s}.delete_{m}, {s}.add_channels_{m};
";

/// The statements that make all tables but those of months, and those of these months.
pub fn statements(schema: &str, months: &[Month]) -> String {
    let names = crate::sql::Names { schema: schema.to_owned() };
    let tables = names.text(&format!("{SCHEMA}\n{TABLES}"));
    let months = months.iter().map(|month| names.month_text(*month, MONTH));
    std::iter::once(tables).chain(months).collect::<Vec<_>>().join("\n")
}

/// Makes the tables, or compares their version with the one that this program knows.
pub(crate) async fn ensure(client: &PostgresClient) -> Result<(), PostgresOpenError> {
    match version(client).await? {
        Some(VERSION) => Ok(()),
        Some(found) => Err(PostgresOpenError::Newer { found, known: VERSION }),
        None if client.create_tables => {
            let made: Result<(), SqlError> = transact!(client, |transaction| async {
                transaction.execute(LOCK).await?;
                // A role that owns a schema may not make others.
                let there = "SELECT to_regnamespace('{s}') IS NOT NULL";
                let there = transaction.run(there, params![]).await?;
                if !there.first().map_or(Ok(false), |row| row.column(0))? {
                    transaction.execute(&client.names.text(SCHEMA)).await?;
                }
                transaction.execute(&client.names.text(TABLES)).await
            }
            .await);
            Ok(made?)
        }
        None => Err(PostgresOpenError::Missing {
            schema: client.names.schema.clone(),
            server: client.shown().to_owned(),
        }),
    }
}

/// The version in the row of the schema. None without tables.
async fn version(client: &PostgresClient) -> Result<Option<u64>, PostgresOpenError> {
    let exists = client.names.query("SELECT to_regclass('{s}.state') IS NOT NULL", params![]);
    let rows = client.read(&exists).await?;
    if !rows.first().map_or(Ok(false), |row| row.column(0))? {
        return Ok(None);
    }
    let query = client.names.query("SELECT number FROM {s}.state WHERE name = 'schema'", params![]);
    let foreign = || PostgresOpenError::Foreign { schema: client.names.schema.clone() };
    let rows = client.read(&query).await.map_err(|error| match error.has_code(&FOREIGN) {
        true => foreign(),
        false => error.into(),
    })?;
    rows.first().map(|row| row.number(0).map_err(Into::into)).ok_or_else(foreign)?.map(Some)
}

/// A table of this name is another program's.
const FOREIGN: [tokio_postgres::error::SqlState; 1] =
    [tokio_postgres::error::SqlState::UNDEFINED_COLUMN];

/// Makes the tables of a month.
pub(crate) async fn ensure_month(client: &PostgresClient, month: Month) -> Result<(), SqlError> {
    if months(client).await?.contains(&month) {
        return Ok(());
    }
    if !client.create_tables {
        let remedy = "create them with `kalends tables create`, or allow the creation of tables";
        return Err(SqlError::corrupt(&format!("the tables of {month} are missing: {remedy}")));
    }
    transact!(client, |transaction| async {
        transaction.execute(LOCK).await?;
        if !is_there(&transaction, month).await? {
            transaction.execute(&client.names.month_text(month, MONTH)).await?;
        }
        Ok(())
    }
    .await)
}

/// Whether the month has its tables.
pub(crate) async fn is_there(
    transaction: &Transaction<'_>,
    month: Month,
) -> Result<bool, SqlError> {
    let exists = "SELECT to_regclass('{s}.messages_{m}') IS NOT NULL";
    let rows = transaction.run_month(month, exists, params![]).await?;
    rows.first().map_or(Ok(false), |row| row.column(0))
}

/// The months with tables, oldest first.
pub(crate) async fn months(client: &PostgresClient) -> Result<Vec<Month>, SqlError> {
    let schema = client.names.schema.as_str();
    let rows = client.read(&client.names.query(MONTHS, params![schema])).await?;
    let month = |row: &Row| row.parsed(0, |name| name.trim_start_matches("messages_").parse());
    rows.iter().map(month).collect()
}

/// Drops a month's tables. Other months are not waited for, nor do they wait.
pub(crate) async fn drop_month(client: &PostgresClient, month: Month) -> Result<bool, SqlError> {
    transact!(client, |transaction| async {
        transaction.execute("SET LOCAL lock_timeout = '1s'").await?;
        transaction.execute(LOCK).await?;
        let is_there = is_there(&transaction, month).await?;
        if is_there {
            transaction.execute(&client.names.month_text(month, DROP_MONTH)).await?;
        }
        Ok(is_there)
    }
    .await)
}

const MONTHS: &str = "
    SELECT relname::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname = $1 AND relkind = 'r' AND relname ~ '^messages_[0-9]{4}_[0-9]{2}$' ORDER BY relname";
