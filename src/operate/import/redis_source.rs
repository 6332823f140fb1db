//! Reads the Redis of autopush-rs, and writes nothing to it (docs/sources.md#redis).

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo, RedisError, ServerErrorKind, cmd,
    pipe,
};
use state_machine::Uaid;

use super::records::{SealedMessage, User, parse_chids};
use super::source::{MESSAGES_AT_ONCE, Page, Source, SourceError, SourceUrl, UserValues};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take. A busy Redis answers others first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of keys that Redis looks at for one page of users.
const KEYS_IN_A_PAGE: usize = 2000;

const USER: &str = "autopush/user/";

const MESSAGE: &str = "autopush/msg/";

/// The password, if the URL has none: `redis-cli` reads the same variable.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

const NOT_A_URL: &str =
    "the URL is none of a Redis: write redis://HOST:PORT/DATABASE, or rediss:// for TLS";

impl From<RedisError> for SourceError {
    fn from(error: RedisError) -> Self {
        let why = explain(&error);
        Self::Failed(format!("Redis failed: {why}; run the command again to continue"))
    }
}

fn unreachable(error: &RedisError) -> SourceError {
    SourceError::Failed(format!("cannot connect to Redis: {}", explain(error)))
}

/// The error of a command that reads values of one user.
fn of_user(error: RedisError) -> SourceError {
    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => SourceError::Unreadable,
        ErrorKind::Extension if error.to_string().contains("WRONGTYPE") => SourceError::Unreadable,
        _ => error.into(),
    }
}

/// The error without values of the store.
fn explain(error: &RedisError) -> String {
    let text = match (error.kind(), error.code()) {
        (_, Some("NOAUTH" | "WRONGPASS")) | (ErrorKind::AuthenticationFailed, _) => {
            "it wants a password: set REDISCLI_AUTH or write redis://:PASSWORD@HOST"
        }
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) => {
            "its user may not read the keys: allow +@read on ~autopush/*"
        }
        (ErrorKind::Parse | ErrorKind::UnexpectedReturnType, _) => {
            "the answer is not one of Redis: check the port"
        }
        _ if error.is_timeout() => {
            "no answer in time: check HOST, PORT and redis:// or rediss:// (is it TLS?)"
        }
        _ => return error.to_string(),
    };
    text.to_owned()
}

/// A connection to the Redis. Its clones share it.
#[derive(Clone)]
pub struct RedisSource(MultiplexedConnection);

impl RedisSource {
    pub async fn connect(url: &SourceUrl) -> Result<Self, SourceError> {
        let info = url.as_str().into_connection_info();
        let info = info.map_err(|_| SourceError::Failed(NOT_A_URL.to_owned()))?;
        let settings = info.redis_settings().clone();
        let info = match (settings.password(), std::env::var(PASSWORD_VARIABLE)) {
            (None, Ok(password)) => info.set_redis_settings(settings.set_password(password)),
            _ => info,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let client = Client::open(info).map_err(|error| unreachable(&error))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.map(Self).map_err(|error| unreachable(&error))
    }

    /// Keys with a prefix, and the next cursor.
    async fn keys(&self, prefix: &str, cursor: u64) -> Result<(u64, Vec<Vec<u8>>), SourceError> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{prefix}*")).arg("COUNT").arg(KEYS_IN_A_PAGE);
        Ok(scan.query_async(&mut self.0.clone()).await?)
    }

    /// Values as text; none where there is no value. What is no UTF-8 becomes no message.
    async fn values(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<String>>, SourceError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let values: Vec<Option<Vec<u8>>> =
            cmd("MGET").arg(keys).query_async(&mut self.0.clone()).await?;
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        Ok(values.into_iter().map(|value| value.map(text)).collect())
    }
}

impl Source for RedisSource {
    type Users = u64;
    type Messages = usize;

    async fn total(&self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    async fn users(&self, cursor: u64) -> Result<Page<Uaid, u64>, SourceError> {
        let (next, keys) = self.keys(USER, cursor).await?;
        let uaid =
            |key: &Vec<u8>| Uaid::parse(std::str::from_utf8(key).ok()?.strip_prefix(USER)?).ok();
        let items: Vec<_> = keys.iter().filter_map(uaid).collect();
        let unreadable = (keys.len() - items.len()) as u64;
        Ok(Page { items, unreadable, expired: 0, next: (next != 0).then_some(next) })
    }

    async fn user(&self, uaid: Uaid, _channels_max: usize) -> Result<UserValues, SourceError> {
        let key = |kind: &str| format!("autopush/{kind}/{}", hyphenated(uaid));
        let mut values = pipe();
        for kind in ["user", "co", "timestamp"] {
            values.cmd("GET").arg(key(kind));
        }
        values.cmd("LRANGE").arg(key("channels")).arg(0).arg(-1);
        let (record, last_contact, acked, channels): (Option<String>, _, Option<u64>, Vec<String>) =
            values.query_async(&mut self.0.clone()).await.map_err(of_user)?;
        let acked = acked.unwrap_or(0);
        let mut count = cmd("ZCOUNT");
        count.arg(key("msgs")).arg("-inf").arg(acked);
        let acked_messages = count.query_async(&mut self.0.clone()).await.map_err(of_user)?;
        let (channels, channels_unreadable) = parse_chids(&channels);
        let record = record.as_deref().and_then(User::parse);
        Ok(UserValues {
            record,
            last_contact,
            acked,
            channels,
            channels_unreadable,
            acked_messages,
        })
    }

    async fn messages(
        &self,
        uaid: Uaid,
        acked: u64,
        skip: usize,
    ) -> Result<Page<SealedMessage, usize>, SourceError> {
        let uaid = hyphenated(uaid);
        let mut list = cmd("ZRANGEBYSCORE");
        list.arg(format!("autopush/msgs/{uaid}")).arg(format!("({acked}")).arg("+inf");
        list.arg("LIMIT").arg(skip).arg(MESSAGES_AT_ONCE);
        let ids: Vec<Vec<u8>> = list.query_async(&mut self.0.clone()).await?;
        let prefix = format!("{MESSAGE}{uaid}/").into_bytes();
        let keys: Vec<_> = ids.iter().map(|id| [&*prefix, id].concat()).collect();
        let values = self.values(&keys).await?;
        let there: Vec<_> = values.iter().flatten().collect();
        let items: Vec<_> = there.iter().filter_map(|text| SealedMessage::parse(text)).collect();
        Ok(Page {
            unreadable: (there.len() - items.len()) as u64,
            expired: (keys.len() - there.len()) as u64,
            next: (keys.len() == MESSAGES_AT_ONCE).then_some(skip + keys.len()),
            items,
        })
    }

    async fn some_messages(&self) -> Result<Vec<SealedMessage>, SourceError> {
        let mut cursor = 0;
        loop {
            let (next, mut keys) = self.keys(MESSAGE, cursor).await?;
            if !keys.is_empty() || next == 0 {
                keys.truncate(MESSAGES_AT_ONCE);
                let values = self.values(&keys).await?;
                let there = values.iter().flatten();
                return Ok(there.filter_map(|text| SealedMessage::parse(text)).collect());
            }
            cursor = next;
        }
    }
}

/// The form of a uaid in the keys.
fn hyphenated(uaid: Uaid) -> uuid::fmt::Hyphenated {
    uuid::Uuid::from_bytes(uaid.0).hyphenated()
}
