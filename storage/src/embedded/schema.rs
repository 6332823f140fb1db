//! The tables, and the migration of a file of an older version.

use std::io;

use rusqlite::{Connection, TransactionBehavior};

/// The schema of one kind of database file.
pub(super) struct Schema {
    /// Distinguishes the file from other SQLite databases, and a router table from a message table.
    pub(super) application_id: i32,
    /// One per schema version; `PRAGMA user_version` counts the applied ones. Never change a
    /// released one, add another.
    pub(super) migrations: &'static [&'static str],
}

/// Why a file does not have the schema and cannot be migrated to it.
#[derive(Debug)]
pub(super) enum SchemaError {
    Foreign,
    Newer {
        found: usize,
        known: usize,
    },
    Database(rusqlite::Error),
    /// The file cannot be created.
    Io(io::Error),
}

/// Wide rows are in rowid tables with a unique index, measured 30 % cheaper than `WITHOUT ROWID`:
/// the row is appended, and only a narrow index entry is inserted in order.
///
/// A notification's version is eight bytes, big-endian: SQLite's integers are signed.
///
/// A waiting key of a feed is in `feed_keys_pending`, every other in `feed_keys_by_number`.
pub(super) const ROUTER: Schema = Schema {
    application_id: 0x4b4c_4e52, // "KLNR"
    migrations: &[
        "
        CREATE TABLE router (
            uaid BLOB NOT NULL UNIQUE,
            router_type TEXT NOT NULL,
            node_id TEXT,
            connected_at INTEGER NOT NULL,
            last_connect INTEGER NOT NULL,
            curmonth TEXT NOT NULL,
            oldmonth TEXT
        ) STRICT;
        CREATE TABLE months (
            month TEXT NOT NULL PRIMARY KEY
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE health (
            id INTEGER PRIMARY KEY,
            checks INTEGER NOT NULL
        ) STRICT;
    ",
        "
        CREATE INDEX router_by_last_connect ON router (last_connect, uaid);
        CREATE TABLE notifications (
            uaid BLOB NOT NULL,
            chid BLOB NOT NULL,
            version BLOB NOT NULL,
            PRIMARY KEY (uaid, chid)
        ) STRICT, WITHOUT ROWID;
    ",
        "
        CREATE TABLE sequences (
            name TEXT NOT NULL PRIMARY KEY,
            value INTEGER NOT NULL,
            version INTEGER NOT NULL,
            keys INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE feed_keys (
            feed TEXT NOT NULL,
            key TEXT NOT NULL,
            version INTEGER NOT NULL,
            feed_sync_id INTEGER,
            value TEXT
        ) STRICT;
        CREATE UNIQUE INDEX feed_keys_by_key ON feed_keys (feed, key);
        CREATE UNIQUE INDEX feed_keys_by_number ON feed_keys (feed, feed_sync_id)
            WHERE feed_sync_id IS NOT NULL;
        CREATE INDEX feed_keys_pending ON feed_keys (feed, key) WHERE feed_sync_id IS NULL;
    ",
    ],
};

/// A channel's row is all key, so its table is the index. A row with an empty `chid` marks a user
/// agent as known, also without channels.
///
/// The wide columns of a message are the last, so that expired rows are skipped without reading
/// them.
pub(super) const MESSAGES: Schema = Schema {
    application_id: 0x4b4c_4e4d, // "KLNM"
    migrations: &["
        CREATE TABLE channels (
            uaid BLOB NOT NULL,
            chid BLOB NOT NULL,
            PRIMARY KEY (uaid, chid)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE messages (
            uaid BLOB NOT NULL,
            id BLOB NOT NULL,
            expires_at INTEGER NOT NULL,
            chid BLOB NOT NULL,
            topic TEXT,
            urgency INTEGER NOT NULL,
            accepted_at INTEGER NOT NULL,
            ttl INTEGER NOT NULL,
            encoding INTEGER,
            encryption TEXT,
            crypto_key TEXT,
            data BLOB
        ) STRICT;
        CREATE UNIQUE INDEX messages_by_id ON messages (uaid, id);
        CREATE UNIQUE INDEX messages_by_topic ON messages (uaid, chid, topic)
            WHERE topic IS NOT NULL;
    "],
};

impl Schema {
    /// Creates the schema in an empty database.
    pub(super) fn create(&self, conn: &mut Connection) -> Result<(), SchemaError> {
        conn.pragma_update(None, "application_id", self.application_id)?;
        self.migrate(conn)?;
        conn.pragma_update(None, "journal_mode", "wal")?;
        Ok(())
    }

    /// Checks the application id, and migrates a file of an older version.
    pub(super) fn verify(&self, conn: &mut Connection) -> Result<(), SchemaError> {
        let found: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
        if found != self.application_id {
            return Err(SchemaError::Foreign);
        }
        self.migrate(conn)
    }

    /// Runs the missing migrations in one transaction.
    fn migrate(&self, conn: &mut Connection) -> Result<(), SchemaError> {
        let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let found = usize::try_from(version).map_err(|_| SchemaError::Foreign)?;
        let known = self.migrations.len();
        let missing = self.migrations.get(found..).ok_or(SchemaError::Newer { found, known })?;
        if missing.is_empty() {
            return Ok(());
        }
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for migration in missing {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "user_version", known as i64)?;
        Ok(transaction.commit()?)
    }
}

impl From<rusqlite::Error> for SchemaError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<io::Error> for SchemaError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        channels, copy_table, feeds, inactive_users, messages, month_counts, notifications, router,
        row_estimate,
    };
    use super::*;

    const FIRST: Schema =
        Schema { application_id: 7, migrations: &["CREATE TABLE a (x INTEGER) STRICT"] };
    const SECOND: Schema = Schema {
        migrations: &[
            FIRST.migrations[0],
            "ALTER TABLE a ADD COLUMN y TEXT NOT NULL DEFAULT 'old'",
        ],
        ..FIRST
    };
    const BROKEN: Schema = Schema {
        migrations: &[FIRST.migrations[0], "UPDATE a SET x = 0; UPDATE nowhere SET x = 0"],
        ..FIRST
    };

    fn database_of_the_first_version() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        FIRST.create(&mut conn).unwrap();
        conn.execute("INSERT INTO a VALUES (1)", []).unwrap();
        conn
    }

    fn version(conn: &Connection) -> i64 {
        conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_database_of_an_older_version_is_brought_up_to_date_with_its_rows() {
        let mut conn = database_of_the_first_version();
        SECOND.verify(&mut conn).unwrap();
        let row = conn.query_row("SELECT x, y FROM a", [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(row, Ok((1, "old".to_owned())));
        assert_eq!(version(&conn), 2);
        SECOND.verify(&mut conn).expect("nothing is left to migrate");
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let mut conn = database_of_the_first_version();
        assert!(matches!(BROKEN.verify(&mut conn), Err(SchemaError::Database(_))));
        assert_eq!(conn.query_row("SELECT x FROM a", [], |row| row.get(0)), Ok(1));
        assert_eq!(version(&conn), 1);
    }

    #[test]
    fn a_database_of_a_newer_version_is_refused() {
        let mut conn = database_of_the_first_version();
        SECOND.verify(&mut conn).unwrap();
        let refused = FIRST.verify(&mut conn);
        assert!(matches!(refused, Err(SchemaError::Newer { found: 2, known: 1 })), "{refused:?}");
    }

    /// The plan names the used index, or has a SCAN.
    #[test]
    fn no_statement_reads_more_than_an_index_leads_it_to() {
        let router_statements = [
            router::READ,
            router::WRITE,
            router::UPDATE_MONTH,
            router::FINISH_MOVE,
            router::CLEAR_NODE,
            router::DROP,
            inactive_users::FIND,
            inactive_users::DROP_UNCHANGED,
            month_counts::COUNT,
            month_counts::RENAME,
            row_estimate::RECORDS,
            row_estimate::NOTIFICATIONS,
            notifications::FETCH,
            notifications::SAVE,
            notifications::DELETE,
            feeds::CHANGE,
            feeds::REPUBLISH,
            feeds::DELETE,
            feeds::COUNT_KEY,
            feeds::SEQUENCE,
            feeds::PENDING,
            feeds::ASSIGN,
            feeds::ADVANCE,
            feeds::FETCH,
            feeds::LIST,
            feeds::REMOVE_KEYS,
            feeds::REMOVE_SEQUENCE,
        ];
        let message_statements = [
            channels::READ,
            channels::ADD,
            channels::REMOVE,
            channels::FIND,
            messages::STORE,
            messages::FETCH,
            messages::DELETE,
            messages::SWEEP,
            messages::DELETE_ALL,
            copy_table::AGENTS,
            row_estimate::CHANNELS,
            row_estimate::MESSAGES,
        ];
        for (schema, statements) in
            [(ROUTER, &router_statements[..]), (MESSAGES, &message_statements[..])]
        {
            let mut conn = Connection::open_in_memory().unwrap();
            schema.create(&mut conn).unwrap();
            for statement in statements {
                let plan = plan(&conn, statement);
                assert!(!plan.contains("TEMP B-TREE"), "{statement}\n{plan}");
                assert!(
                    plan.lines().all(|step| !step.starts_with("SCAN") || step.contains("CONSTANT")),
                    "{statement}\n{plan}"
                );
            }
        }
    }

    fn plan(conn: &Connection, statement: &str) -> String {
        let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
        let parameters = vec![rusqlite::types::Null; explain.parameter_count()];
        let steps = explain
            .query_map(rusqlite::params_from_iter(parameters), |row| row.get::<_, String>(3))
            .unwrap();
        steps.map(|step| step.unwrap() + "\n").collect()
    }

    #[test]
    fn a_router_table_is_not_taken_for_a_message_table() {
        let mut conn = Connection::open_in_memory().unwrap();
        ROUTER.create(&mut conn).unwrap();
        assert!(matches!(MESSAGES.verify(&mut conn), Err(SchemaError::Foreign)));
    }
}
