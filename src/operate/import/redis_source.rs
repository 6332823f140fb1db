//! Reads the Redis of autopush-rs, and writes nothing to it (docs/sources.md#autopush-rs-in-redis).

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo, RedisError, ServerErrorKind, cmd,
    pipe,
};
use state_machine::{Chid, Uaid};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take. A busy Redis answers others first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of keys that Redis looks at for one page of users.
const KEYS_IN_A_PAGE: usize = 2000;

/// The maximum number of messages of a user that are read at once.
pub const MESSAGES_AT_ONCE: usize = 20;

const USER: &str = "autopush/user/";

const MESSAGE: &str = "autopush/msg/";

/// The password, if the URL has none: `redis-cli` reads the same variable.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// The URL of a Redis, which may contain a password. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

/// Redis refused the connection or a command, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the URL is none of a Redis: write redis://HOST:PORT/DATABASE, or rediss:// for TLS")]
    NotAUrl,
    #[error("cannot connect to Redis: {}", explain(.0))]
    Unreachable(RedisError),
    #[error("Redis failed: {}; run the command again to continue", explain(.0))]
    Failed(#[from] RedisError),
}

impl SourceError {
    /// Whether a value has another form than autopush-rs gives it, so that only its user is concerned.
    pub fn is_of_a_value(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        match error.kind() {
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => true,
            ErrorKind::Extension => error.to_string().contains("WRONGTYPE"),
            _ => false,
        }
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

/// A part of the users. Redis may repeat a user on another page.
#[derive(Debug)]
pub struct UserPage {
    pub users: Vec<Uaid>,
    /// Keys that name no user.
    pub unreadable: u64,
    /// The cursor of the next page; 0 if there is none.
    pub next: u64,
}

/// The values of a user, except its messages.
#[derive(Debug)]
pub struct UserValues {
    /// The JSON of the record; none if it has expired meanwhile.
    pub record: Option<String>,
    /// When the server last heard of the user, in milliseconds.
    pub last_contact: Option<u64>,
    /// The second of the last message that the agent has acked.
    pub acked: u64,
    pub channels: BTreeSet<Chid>,
    /// The number of listed messages that the agent has acked.
    pub acked_messages: u64,
}

impl FromStr for RedisUrl {
    type Err = Infallible;

    /// Accepts any text: the error of a command line would print it.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisUrl(redacted)")
    }
}

impl RedisSource {
    pub async fn connect(url: &RedisUrl) -> Result<Self, SourceError> {
        let info = url.0.as_str().into_connection_info().map_err(|_| SourceError::NotAUrl)?;
        let settings = info.redis_settings().clone();
        let info = match (settings.password(), std::env::var(PASSWORD_VARIABLE)) {
            (None, Ok(password)) => info.set_redis_settings(settings.set_password(password)),
            _ => info,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let client = Client::open(info).map_err(SourceError::Unreachable)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.map(Self).map_err(SourceError::Unreachable)
    }

    /// The page of users at a cursor, first 0.
    pub async fn users(&self, cursor: u64) -> Result<UserPage, SourceError> {
        let (next, keys) = self.keys(USER, cursor).await?;
        let uaid =
            |key: &Vec<u8>| Uaid::parse(std::str::from_utf8(key).ok()?.strip_prefix(USER)?).ok();
        let users: Vec<_> = keys.iter().filter_map(uaid).collect();
        Ok(UserPage { unreadable: (keys.len() - users.len()) as u64, users, next })
    }

    /// At most [`MESSAGES_AT_ONCE`] messages of any users, to try the crypto keys on them. None only if no message waits.
    pub async fn some_messages(&self) -> Result<Vec<Option<String>>, SourceError> {
        let mut cursor = 0;
        loop {
            let (next, mut keys) = self.keys(MESSAGE, cursor).await?;
            if !keys.is_empty() || next == 0 {
                keys.truncate(MESSAGES_AT_ONCE);
                return self.values(&keys).await;
            }
            cursor = next;
        }
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

    pub async fn user(&self, uaid: Uaid) -> Result<UserValues, SourceError> {
        let key = |kind: &str| format!("autopush/{kind}/{}", hyphenated(uaid));
        let mut values = pipe();
        for kind in ["user", "co", "timestamp"] {
            values.cmd("GET").arg(key(kind));
        }
        values.cmd("LRANGE").arg(key("channels")).arg(0).arg(-1);
        let (record, last_contact, acked, channels): (_, _, Option<u64>, Vec<String>) =
            values.query_async(&mut self.0.clone()).await?;
        let acked = acked.unwrap_or(0);
        let mut count = cmd("ZCOUNT");
        count.arg(key("msgs")).arg("-inf").arg(acked);
        let acked_messages = count.query_async(&mut self.0.clone()).await?;
        let channels = channels.iter().filter_map(|chid| Chid::parse(chid).ok()).collect();
        Ok(UserValues { record, last_contact, acked, channels, acked_messages })
    }

    /// At most [`MESSAGES_AT_ONCE`] messages that were stored after the second `acked`, without the first `skip` of
    /// them: the JSON of each, none if it has expired.
    pub async fn messages(
        &self,
        uaid: Uaid,
        acked: u64,
        skip: usize,
    ) -> Result<Vec<Option<String>>, SourceError> {
        let uaid = hyphenated(uaid);
        let mut list = cmd("ZRANGEBYSCORE");
        list.arg(format!("autopush/msgs/{uaid}")).arg(format!("({acked}")).arg("+inf");
        list.arg("LIMIT").arg(skip).arg(MESSAGES_AT_ONCE);
        let ids: Vec<Vec<u8>> = list.query_async(&mut self.0.clone()).await?;
        let prefix = format!("{MESSAGE}{uaid}/").into_bytes();
        let keys: Vec<_> = ids.iter().map(|id| [&*prefix, id].concat()).collect();
        self.values(&keys).await
    }
}

/// The form of a uaid in the keys.
fn hyphenated(uaid: Uaid) -> uuid::fmt::Hyphenated {
    uuid::Uuid::from_bytes(uaid.0).hyphenated()
}
