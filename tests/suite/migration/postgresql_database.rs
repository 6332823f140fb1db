//! The tables of an autopush-rs in a schema of their own, and what its PostgreSQL engine writes to them
//! (docs/sources.md#postgresql).

use std::sync::atomic::{AtomicU32, Ordering};

use postgres_server::{PostgresServer, shared};
use uuid::Uuid;

use super::autopush::{Database, StoredMessage, User};

pub(crate) struct PostgresDatabase<'a> {
    server: &'a PostgresServer,
    pub(crate) schema: String,
}

impl<'a> PostgresDatabase<'a> {
    pub(crate) fn on(server: &'a PostgresServer) -> Self {
        static SCHEMAS: AtomicU32 = AtomicU32::new(0);
        let schema = format!("autopush{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let database = Self { server, schema };
        database.server.sql(&format!("CREATE SCHEMA {}", database.schema));
        database.sql(TABLES);
        database
    }

    /// Executes a statement on the tables.
    pub(crate) fn sql(&self, statements: &str) {
        self.server.sql(&format!("SET search_path TO {}; {statements}", self.schema));
    }
}

impl Database for PostgresDatabase<'static> {
    async fn start() -> Self {
        Self::on(shared())
    }

    fn import(&self) -> Vec<String> {
        let schema = format!("--schema={}", self.schema);
        vec!["autopush-postgresql".to_owned(), self.server.url.clone(), schema]
    }

    fn add_user(&mut self, user: &User<'_>) {
        let User { uaid, connected_ms, router_type, router_data, channels } = *user;
        let (uaid, version) = (uaid.simple(), Uuid::new_v4().simple());
        let expiry = connected_ms / 1000 + 5_184_000;
        let mut statements = format!(
            "INSERT INTO router (uaid, connected_at, router_type, router_data, node_id, record_version, version,
                priv_channels, expiry)
             VALUES ('{uaid}', {connected_ms}, '{router_type}', '{router_data}', 'http://10.0.0.1:8081', 1, '{version}',
                '{{}}', {expiry});"
        );
        for channel in channels {
            let channel = channel.simple();
            statements +=
                &format!("INSERT INTO meta (uaid, channel_id) VALUES ('{uaid}', '{channel}');");
        }
        self.sql(&statements);
    }

    fn save_message(&mut self, uaid: Uuid, message: &StoredMessage<'_>) {
        let StoredMessage { id, channel, version, stored_s, stored_ms, ttl_s, topic, data } =
            message;
        let (uaid, channel, expiry) = (uaid.simple(), channel.simple(), stored_s + ttl_s);
        let (topic, sortkey) = match topic {
            Some(topic) => (format!("'{topic}'"), "NULL".to_owned()),
            None => ("NULL".to_owned(), stored_ms.to_string()),
        };
        self.sql(&format!(
            r#"INSERT INTO message (uaid, channel_id, chid_message_id, version, ttl, expiry, topic, timestamp, data,
                sortkey_timestamp, headers)
             VALUES ('{uaid}', '{channel}', '{id}', '{version}', {ttl_s}, {expiry}, {topic}, {stored_s}, '{data}',
                {sortkey}, '{{"encoding":"aes128gcm"}}')"#
        ));
    }

    /// Deletes what is older. What was stored in that second stays.
    fn increment_storage(&mut self, uaid: Uuid, second: u64) {
        let uaid = uaid.simple();
        self.sql(&format!(
            "DELETE FROM message WHERE uaid = '{uaid}' AND timestamp < {second};
             UPDATE router SET last_update = {second} WHERE uaid = '{uaid}'"
        ));
    }

    fn add_unreadable(&mut self, odd: [Uuid; 3]) {
        let no_record = Uuid::new_v4().simple();
        self.sql(&format!(
            "INSERT INTO router (uaid, connected_at, router_type, router_data)
             VALUES ('{no_record}', 1, 'webpush', 'no record'), ('no-uaid', 1, 'webpush', 'null')"
        ));
        let values =
            ["connected_at = -5", "last_update = -1", "connected_at = -5, last_update = -1"];
        for (uaid, values) in odd.into_iter().zip(values) {
            self.sql(&format!("UPDATE router SET {values} WHERE uaid = '{}'", uaid.simple()));
        }
    }

    fn contents(&mut self) -> Vec<String> {
        let rows = |table: &str| {
            let table = format!("{}.{table}", self.schema);
            self.server.rows(&format!("SELECT it::text FROM {table} AS it ORDER BY 1"))
        };
        ["router", "meta", "message"].into_iter().flat_map(rows).flatten().collect()
    }
}

/// The columns and keys of 1.83.1. It makes no others that matter to an import.
const TABLES: &str = "
    CREATE TABLE router (uaid varchar(40) PRIMARY KEY, connected_at bigint, router_type varchar(100), router_data text,
        last_connect bigint, node_id varchar(100), record_version bigint, version text, last_update bigint,
        expiry bigint, priv_channels varchar(40)[]);
    CREATE TABLE meta (channel_id varchar(40), uaid varchar(40) REFERENCES router ON DELETE CASCADE,
        PRIMARY KEY (uaid, channel_id));
    CREATE TABLE message (uaid varchar(40) REFERENCES router ON DELETE CASCADE, channel_id varchar(40),
        chid_message_id varchar(100) UNIQUE, version text, ttl bigint, expiry bigint, topic varchar, timestamp bigint,
        data text, sortkey_timestamp bigint, headers text, PRIMARY KEY (uaid, chid_message_id))";
