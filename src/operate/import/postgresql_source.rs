//! Reads the PostgreSQL of autopush-rs, and writes nothing to it (docs/sources.md#postgresql).

use state_machine::Uaid;
use storage_postgresql::{ErrorKind, Row, Snapshot, SqlError, Statement};

use super::records::{SealedMessage, StoredMessage, User, parse_chids};
use super::source::{MESSAGES_AT_ONCE, Page, Source, SourceError, SourceUrl, UserValues};

/// The number of users of one page.
const USERS_AT_ONCE: usize = 2000;

const COUNT: &str = "SELECT count(*) FROM router";

const USERS: &str = "SELECT uaid FROM router WHERE uaid > $1::text ORDER BY uaid LIMIT $2::bigint";

const USER: &str = "
    SELECT connected_at::bigint, router_type::text, router_data::text, last_update::bigint,
        ARRAY(SELECT channel_id::text FROM meta WHERE meta.uaid = router.uaid LIMIT $2::bigint),
        (SELECT count(*) FROM message WHERE message.uaid = router.uaid
            AND message.timestamp <= router.last_update AND coalesce(message.topic, '') = '')
    FROM router WHERE uaid = $1::text";

/// Acks of messages without a topic are known by the second of `last_update`. One with a topic is gone once it is acked.
const MESSAGES: &str = "
    SELECT m.channel_id::text, m.version::text, m.timestamp::bigint, m.ttl::bigint, m.topic::text, m.data::text,
        m.sortkey_timestamp::bigint, m.headers::text, m.chid_message_id::text
    FROM message AS m
    WHERE m.uaid = $1::text AND m.chid_message_id > $2::text
        AND (m.topic <> '' OR m.timestamp > $3::bigint OR m.timestamp IS NULL)
    ORDER BY m.chid_message_id LIMIT $4::bigint";

/// Rows of agents that never came back stay for ever, and may be older than the crypto keys.
const SOME_MESSAGES: &str = "
    SELECT m.channel_id::text, m.version::text, m.timestamp::bigint, m.ttl::bigint, m.topic::text, m.data::text,
        m.sortkey_timestamp::bigint, m.headers::text
    FROM message AS m WHERE m.expiry > extract(epoch FROM now()) LIMIT $1::bigint";

/// A transaction on the database, and its statements.
pub struct PostgresSource {
    snapshot: Snapshot,
    count: Statement,
    users: Statement,
    user: Statement,
    messages: Statement,
    some_messages: Statement,
}

impl PostgresSource {
    pub async fn connect(url: &SourceUrl, schema: Option<&str>) -> Result<Self, SourceError> {
        let snapshot = Snapshot::open(url.as_str(), schema).await?;
        Ok(Self {
            count: snapshot.prepare(COUNT).await?,
            users: snapshot.prepare(USERS).await?,
            user: snapshot.prepare(USER).await?,
            messages: snapshot.prepare(MESSAGES).await?,
            some_messages: snapshot.prepare(SOME_MESSAGES).await?,
            snapshot,
        })
    }
}

impl Source for PostgresSource {
    /// The greatest uaid of the page before.
    type Users = String;
    /// The greatest id of the page before.
    type Messages = String;

    async fn total(&self) -> Result<Option<u64>, SourceError> {
        let rows = self.snapshot.rows(&self.count, &[]).await?;
        Ok(rows.first().map(|row| number(row, 0)).transpose()?.flatten())
    }

    async fn users(&self, after: String) -> Result<Page<Uaid, String>, SourceError> {
        let rows = self.snapshot.rows(&self.users, &[&after, &(USERS_AT_ONCE as i64)]).await?;
        let texts = rows.iter().map(|row| key(row, 0)).collect::<Result<Vec<_>, _>>()?;
        let items: Vec<_> = texts.iter().filter_map(|text| uaid(text)).collect();
        let unreadable = (texts.len() - items.len()) as u64;
        let next = texts.into_iter().nth(USERS_AT_ONCE - 1);
        Ok(Page { items, unreadable, expired: 0, next })
    }

    async fn user(&self, uaid: Uaid, channels_max: usize) -> Result<UserValues, SourceError> {
        let channels_max = i64::try_from(channels_max).unwrap_or(i64::MAX).saturating_add(1);
        let rows = self.snapshot.rows(&self.user, &[&simple(uaid), &channels_max]).await?;
        let row = rows.first().ok_or(SourceError::Unreadable)?;
        let channels: Vec<String> = row.try_get(4).map_err(|_| SourceError::Unreadable)?;
        let (channels, channels_unreadable) = parse_chids(&channels);
        Ok(UserValues {
            record: record(row)?,
            last_contact: None,
            acked: number(row, 3)?.unwrap_or(0),
            channels,
            channels_unreadable,
            acked_messages: number(row, 5)?.unwrap_or(0),
        })
    }

    async fn messages(
        &self,
        uaid: Uaid,
        acked: u64,
        after: String,
    ) -> Result<Page<SealedMessage, String>, SourceError> {
        let (acked, limit) = (i64::try_from(acked).unwrap_or(i64::MAX), MESSAGES_AT_ONCE as i64);
        let uaid = simple(uaid);
        let rows = self.snapshot.rows(&self.messages, &[&uaid, &after, &acked, &limit]).await?;
        let items: Vec<_> = rows.iter().filter_map(message).collect();
        let unreadable = (rows.len() - items.len()) as u64;
        let next = rows.get(MESSAGES_AT_ONCE - 1).map(|row| key(row, 8)).transpose()?;
        Ok(Page { items, unreadable, expired: 0, next })
    }

    async fn some_messages(&self) -> Result<Vec<SealedMessage>, SourceError> {
        let limit = MESSAGES_AT_ONCE as i64;
        let rows = self.snapshot.rows(&self.some_messages, &[&limit]).await?;
        Ok(rows.iter().filter_map(message).collect())
    }
}

/// The only form of a uaid with which autopush-rs finds a row.
fn simple(uaid: Uaid) -> String {
    uuid::Uuid::from_bytes(uaid.0).simple().to_string()
}

fn uaid(text: &str) -> Option<Uaid> {
    Uaid::parse(text).ok().filter(|uaid| simple(*uaid) == text)
}

/// None if autopush-rs could not read the record either.
fn record(row: &Row) -> Result<Option<User>, SourceError> {
    let (connected_at, router_type) = (number(row, 0)?, text(row, 1)?);
    let router_data = text(row, 2)?.map(|data| serde_json::from_str(&data)).transpose();
    let (Some(connected_at), Some(router_type), Ok(router_data)) =
        (connected_at, router_type, router_data)
    else {
        return Ok(None);
    };
    Ok(Some(User { router_type, connected_at, router_data }))
}

/// None if an agent could not decrypt it, or a value has another form.
fn message(row: &Row) -> Option<SealedMessage> {
    let filled = |at| text(row, at).map(|text| text.filter(|text| !text.is_empty()));
    let headers = filled(7).ok()?.map(|headers| serde_json::from_str(&headers)).transpose().ok()?;
    SealedMessage::of(StoredMessage {
        channel_id: text(row, 0).ok()??,
        version: text(row, 1).ok()??,
        timestamp: number(row, 2).ok()??,
        ttl: number(row, 3).ok()?.unwrap_or(0),
        topic: filled(4).ok()?,
        data: filled(5).ok()?,
        sortkey_timestamp: number(row, 6).ok()?,
        headers: headers.flatten(),
    })
}

fn text(row: &Row, at: usize) -> Result<Option<String>, SourceError> {
    row.try_get(at).map_err(|_| SourceError::Unreadable)
}

/// A time or a count, which is not negative.
fn number(row: &Row, at: usize) -> Result<Option<u64>, SourceError> {
    let number: Option<i64> = row.try_get(at).map_err(|_| SourceError::Unreadable)?;
    number.map(|number| u64::try_from(number).map_err(|_| SourceError::Unreadable)).transpose()
}

/// A key, by which the next page is found.
fn key(row: &Row, at: usize) -> Result<String, SourceError> {
    let no_text = "a key of the tables is no text in UTF-8: delete its row in a copy of the tables";
    text(row, at)?.ok_or_else(|| SourceError::Failed(no_text.to_owned()))
}

impl From<SqlError> for SourceError {
    fn from(error: SqlError) -> Self {
        let code = match &error.kind {
            ErrorKind::Refused(code) => code.code(),
            _ => "",
        };
        let remedy = match (&error.kind, code) {
            (_, "28P01" | "28000") => {
                "; write postgresql://USER:PASSWORD@HOST/DATABASE or set PGPASSWORD"
            }
            (_, "3D000") => "; the database is at the end of the URL, as in db_dsn of autopush-rs",
            (_, "42P01") => {
                "; autopush-rs has no tables there: check /DATABASE (db_dsn) and --schema (db_settings)"
            }
            (_, "42703" | "42804" | "42846" | "42883" | "22P02") => {
                "; the tables are not those of autopush-rs: check /DATABASE (db_dsn) and --schema (db_settings)"
            }
            (_, "42501") => "; GRANT SELECT ON router, meta, message to the user of the URL",
            (ErrorKind::Address, _) => "",
            (ErrorKind::Unreachable, _) => "; check HOST, PORT and sslmode",
            _ => "; run the command again to continue",
        };
        Self::Failed(format!("{error}{remedy}"))
    }
}
