//! The tables, and the migration of a file of an older version.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::OpenError;
use crate::statements::{pragma, run};

/// The schema of one kind of database file.
pub(crate) struct Schema {
    /// Distinguishes the file from other SQLite databases, and a router table from a message table.
    pub(crate) application_id: i32,
    /// One per schema version. Never change a released one, add another.
    pub(crate) migrations: &'static [&'static str],
    /// The oldest schema version whose programs can use a file of the newest one: they ignore the columns, indexes and
    /// tables that were added since. A migration that they cannot ignore sets it to its own version.
    pub(crate) oldest: usize,
}

/// The versions of a file, in `PRAGMA user_version`: the lower 16 bits count the applied migrations. The upper ones have the
/// oldest version whose programs can use the file, or 0 if that is the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Versions {
    written: usize,
    oldest: usize,
}

impl Versions {
    const BITS: u32 = 16;

    fn of(user_version: i64) -> Option<Self> {
        let user_version = usize::try_from(user_version).ok()?;
        let (written, oldest) = (user_version % (1 << Self::BITS), user_version >> Self::BITS);
        Some(Self { written, oldest: if oldest == 0 { written } else { oldest } })
    }

    fn user_version(self) -> usize {
        let oldest = if self.oldest == self.written { 0 } else { self.oldest };
        self.written + (oldest << Self::BITS)
    }
}

/// Wide rows are in rowid tables with a unique index, measured 30 % cheaper than `WITHOUT ROWID`:
/// the row is appended, and only a narrow index entry is inserted in order.
///
/// A notification's version is eight bytes, big-endian: SQLite's integers are signed.
///
/// A waiting key of a feed is in `feed_keys_pending`, every other in `feed_keys_by_number`.
pub(crate) const ROUTER: Schema = Schema {
    application_id: 0x4b4c_4e52, // "KLNR"
    oldest: 8,
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
        "ALTER TABLE router ADD COLUMN router_data TEXT",
        "ALTER TABLE notifications ADD COLUMN data TEXT",
        "
        CREATE TABLE receipts_expected (
            feed TEXT NOT NULL,
            key TEXT NOT NULL,
            deadline INTEGER NOT NULL
        ) STRICT;
        CREATE UNIQUE INDEX receipts_expected_by_key ON receipts_expected (feed, key);
        CREATE INDEX receipts_expected_by_deadline ON receipts_expected (deadline);
    ",
        "
        ALTER TABLE sequences ADD COLUMN horizon INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE sequences ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE sequences ADD COLUMN mark INTEGER;
        ALTER TABLE sequences ADD COLUMN marked_at INTEGER;
    ",
        "
        CREATE TABLE id_floor (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            floor INTEGER NOT NULL
        ) STRICT;
    ",
    ],
};

/// A channel's row is all key, so its table is the index. A row with an empty `chid` marks a user
/// agent as known, also without channels.
///
/// The wide columns of a message are the last, so that expired rows are skipped without reading
/// them.
///
/// A row of `waiting` counts the messages of a channel, that with an empty `chid` those of the user
/// agent. None of them expires before its `expires_at`. Two statements with `=` were measured cheaper than one with `IN`.
pub(crate) const MESSAGES: Schema = Schema {
    application_id: 0x4b4c_4e4d, // "KLNM"
    oldest: 4,
    migrations: &[
        "
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
    ",
        "ALTER TABLE messages ADD COLUMN offers INTEGER NOT NULL DEFAULT 0",
        "
        CREATE INDEX messages_by_expiry ON messages (expires_at);
        CREATE TABLE waiting (
            uaid BLOB NOT NULL,
            chid BLOB NOT NULL,
            messages INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            expires_at INTEGER NOT NULL,
            PRIMARY KEY (uaid, chid)
        ) STRICT, WITHOUT ROWID;
        INSERT INTO waiting
            SELECT uaid, chid, count(*),
                sum(ifnull(octet_length(data), 0) + ifnull(octet_length(encryption), 0)
                    + ifnull(octet_length(crypto_key), 0)),
                min(expires_at)
            FROM messages GROUP BY uaid, chid;
        INSERT INTO waiting
            SELECT uaid, x'', sum(messages), sum(bytes), min(expires_at)
            FROM waiting GROUP BY uaid;
        CREATE TRIGGER waiting_inserted AFTER INSERT ON messages BEGIN
            INSERT INTO waiting
            VALUES
                (new.uaid, new.chid, 1,
                    ifnull(octet_length(new.data), 0) + ifnull(octet_length(new.encryption), 0)
                        + ifnull(octet_length(new.crypto_key), 0),
                    new.expires_at),
                (new.uaid, x'', 1,
                    ifnull(octet_length(new.data), 0) + ifnull(octet_length(new.encryption), 0)
                        + ifnull(octet_length(new.crypto_key), 0),
                    new.expires_at)
            ON CONFLICT (uaid, chid) DO UPDATE SET
                messages = messages + 1,
                bytes = bytes + excluded.bytes,
                expires_at = min(expires_at, excluded.expires_at);
        END;
        CREATE TRIGGER waiting_replaced AFTER UPDATE OF expires_at, encryption, crypto_key, data
        ON messages BEGIN
            UPDATE waiting SET
                bytes = bytes
                    + ifnull(octet_length(new.data), 0) + ifnull(octet_length(new.encryption), 0)
                    + ifnull(octet_length(new.crypto_key), 0)
                    - ifnull(octet_length(old.data), 0) - ifnull(octet_length(old.encryption), 0)
                    - ifnull(octet_length(old.crypto_key), 0),
                expires_at = min(expires_at, new.expires_at)
            WHERE uaid = new.uaid AND chid IN (new.chid, x'');
        END;
        CREATE TRIGGER waiting_deleted AFTER DELETE ON messages BEGIN
            UPDATE waiting SET
                messages = messages - 1,
                bytes = bytes
                    - ifnull(octet_length(old.data), 0) - ifnull(octet_length(old.encryption), 0)
                    - ifnull(octet_length(old.crypto_key), 0)
            WHERE uaid = old.uaid AND chid = old.chid;
            UPDATE waiting SET
                messages = messages - 1,
                bytes = bytes
                    - ifnull(octet_length(old.data), 0) - ifnull(octet_length(old.encryption), 0)
                    - ifnull(octet_length(old.crypto_key), 0)
            WHERE uaid = old.uaid AND chid = x'';
            DELETE FROM waiting WHERE uaid = old.uaid AND chid = old.chid AND messages = 0;
            DELETE FROM waiting WHERE uaid = old.uaid AND chid = x'' AND messages = 0;
        END;
    ",
        "ALTER TABLE messages ADD COLUMN receipt TEXT",
    ],
};

impl Schema {
    /// Creates the schema in an empty database with a write-ahead log.
    pub(crate) fn create(&self, conn: &mut Connection, file: &Path) -> Result<(), OpenError> {
        let failed = |error| OpenError::unreadable(file, &error);
        run(conn, &format!("PRAGMA application_id = {}", self.application_id)).map_err(failed)?;
        self.migrate(conn, file)
    }

    /// Refuses a database of another program, and one of a newer version that this program cannot use. Changes nothing.
    /// Returns the schema version.
    pub(crate) fn check(&self, conn: &Connection, file: &Path) -> Result<usize, OpenError> {
        let failed = |error| OpenError::unreadable(file, &error);
        let file = file.to_owned();
        if pragma::<i32>(conn, "application_id").map_err(failed)? != self.application_id {
            return Err(OpenError::Foreign { file });
        }
        let version = pragma::<i64>(conn, "user_version").map_err(failed)?;
        let Some(found) = Versions::of(version) else { return Err(OpenError::Foreign { file }) };
        match self.migrations.len() {
            known if found.oldest > known => {
                Err(OpenError::Newer { file, found: found.written, known })
            }
            _ => Ok(found.written),
        }
    }

    /// Checks a database, and runs the missing migrations in one transaction.
    pub(crate) fn migrate(&self, conn: &mut Connection, file: &Path) -> Result<(), OpenError> {
        let found = self.check(conn, file)?;
        let missing = self.migrations.get(found..).unwrap_or_default();
        if missing.is_empty() {
            return Ok(());
        }
        let newest = Versions { written: self.migrations.len(), oldest: self.oldest };
        apply(conn, missing, newest).map_err(|error| OpenError::unreadable(file, &error))
    }

    /// Checks that no migration is missing.
    pub(crate) fn is_complete(&self, conn: &Connection, file: &Path) -> Result<bool, OpenError> {
        Ok(self.check(conn, file)? >= self.migrations.len())
    }
}

fn apply(conn: &mut Connection, migrations: &[&str], versions: Versions) -> rusqlite::Result<()> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in migrations {
        run(&transaction, migration)?;
    }
    run(&transaction, &format!("PRAGMA user_version = {}", versions.user_version()))?;
    transaction.commit()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test looks at the first row")]
mod tests {
    use storage::sql;

    use super::*;
    use crate::{
        channels, copied_rows, copy_table, feed_rows, inactive_users, messages, notifications,
        read_check, router, row_estimate, waiting_counts,
    };

    const FIRST: Schema =
        Schema { application_id: 7, migrations: &["CREATE TABLE a (x INTEGER) STRICT"], oldest: 1 };
    const SECOND: Schema = Schema {
        migrations: &[
            FIRST.migrations[0],
            "ALTER TABLE a ADD COLUMN y TEXT NOT NULL DEFAULT 'old'",
        ],
        oldest: 2,
        ..FIRST
    };
    const BROKEN: Schema = Schema {
        migrations: &[FIRST.migrations[0], "UPDATE a SET x = 0; UPDATE nowhere SET x = 0"],
        ..FIRST
    };

    fn file() -> &'static Path {
        Path::new("in memory")
    }

    fn database_of_the_first_version() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        FIRST.create(&mut conn, file()).unwrap();
        conn.execute("INSERT INTO a VALUES (1)", []).unwrap();
        conn
    }

    fn version(conn: &Connection) -> i64 {
        pragma(conn, "user_version").unwrap()
    }

    #[test]
    fn a_database_of_an_older_version_is_brought_up_to_date_with_its_rows() {
        let mut conn = database_of_the_first_version();
        SECOND.migrate(&mut conn, file()).unwrap();
        let row = conn.query_row("SELECT x, y FROM a", [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(row, Ok((1, "old".to_owned())));
        assert_eq!(version(&conn), 2);
        SECOND.migrate(&mut conn, file()).expect("nothing is left to migrate");
    }

    #[test]
    fn a_file_names_the_oldest_version_whose_programs_can_use_it() {
        const ADDED: Schema = Schema { oldest: 1, ..SECOND };
        let mut conn = database_of_the_first_version();
        ADDED.migrate(&mut conn, file()).unwrap();
        assert_eq!(version(&conn), 0x1_0002);
        assert_eq!(FIRST.check(&conn, file()).unwrap(), 2);
        assert!(FIRST.is_complete(&conn, file()).unwrap());
        FIRST.migrate(&mut conn, file()).expect("nothing is undone");
        assert_eq!(version(&conn), 0x1_0002);
        conn.execute("INSERT INTO a (x) VALUES (3)", []).expect("what was added is ignored");

        let mut conn = database_of_the_first_version();
        SECOND.migrate(&mut conn, file()).unwrap();
        let refused = FIRST.check(&conn, file()).unwrap_err();
        assert!(matches!(refused, OpenError::Newer { found: 2, known: 1, .. }), "{refused}");
    }

    #[test]
    fn no_schema_is_older_than_its_programs() {
        for schema in [ROUTER, MESSAGES] {
            assert!((1..=schema.migrations.len()).contains(&schema.oldest));
        }
        for user_version in [0, 1, 8, 0x1_0002, 0x7fff_ffff] {
            let versions = Versions::of(user_version).unwrap();
            assert_eq!(versions.user_version() as i64, user_version);
        }
        assert_eq!(Versions::of(-1), None);
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let mut conn = database_of_the_first_version();
        assert!(matches!(BROKEN.migrate(&mut conn, file()), Err(OpenError::Unreadable { .. })));
        assert_eq!(conn.query_row("SELECT x FROM a", [], |row| row.get(0)), Ok(1));
        assert_eq!(version(&conn), 1);
    }

    #[test]
    fn a_database_of_a_newer_version_is_refused() {
        let mut conn = database_of_the_first_version();
        SECOND.migrate(&mut conn, file()).unwrap();
        let refused = FIRST.migrate(&mut conn, file());
        assert!(matches!(refused, Err(OpenError::Newer { found: 2, known: 1, .. })), "{refused:?}");
    }

    const ROUTER_STATEMENTS: &[&str] = &[
        sql::statements::READ_RECORD,
        sql::statements::WRITE_RECORD,
        sql::statements::DROP_RECORD,
        sql::statements::SAVE_NOTIFICATION,
        sql::statements::DELETE_NOTIFICATION,
        sql::copies::PUT_SEQUENCE,
        router::RECORDS,
        sql::inactive_users::FIND,
        row_estimate::RECORDS,
        row_estimate::NOTIFICATIONS,
        notifications::FETCH,
        feed_rows::NUMBERED,
        copied_rows::VERSIONS,
        copied_rows::SEQUENCES,
        copied_rows::KEYS,
        copied_rows::EXPECTED_ROWS,
        read_check::RANDOM_RECORD,
    ];

    const MESSAGE_STATEMENTS: &[&str] = &[
        channels::READ,
        channels::ADD,
        channels::REMOVE,
        channels::FIND,
        messages::STORE,
        messages::INSERT_ROW,
        messages::FETCH,
        messages::DELETE,
        messages::SETTLE,
        messages::OF_TOPIC,
        messages::RECORD_OFFER,
        messages::SWEEP,
        messages::DELETE_ALL,
        messages::DELETE_UP_TO,
        messages::DELETE_EXPIRED,
        waiting_counts::READ,
        waiting_counts::FIND,
        waiting_counts::OF_TOPIC,
        waiting_counts::LIST,
        waiting_counts::UNREGISTERED,
        waiting_counts::DELETE_CHANNEL,
        waiting_counts::DELETE_EXPIRED,
        waiting_counts::SET_EXPIRY,
        inactive_users::DELETE_CHANNELS,
        inactive_users::DELETE_MESSAGES,
        copy_table::ALL_CHANNELS,
        copy_table::ALL_MESSAGES,
        row_estimate::CHANNELS,
        row_estimate::MESSAGES,
        read_check::RANDOM_CHANNELS,
        read_check::RANDOM_MESSAGE,
    ];

    /// The plan names the used index, or has a SCAN.
    #[test]
    fn no_statement_reads_more_than_an_index_leads_it_to() {
        let of_router = [ROUTER_STATEMENTS, &sql::feeds::STATEMENTS].concat();
        for (schema, statements) in [(ROUTER, &*of_router), (MESSAGES, MESSAGE_STATEMENTS)] {
            let mut conn = Connection::open_in_memory().unwrap();
            schema.create(&mut conn, file()).unwrap();
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
        ROUTER.create(&mut conn, file()).unwrap();
        assert!(matches!(MESSAGES.migrate(&mut conn, file()), Err(OpenError::Foreign { .. })));
    }
}
