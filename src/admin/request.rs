//! What can be asked for, and how it is written on the socket.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use state_machine::Month;
use storage::maintenance::Throughput;

use super::feed::{FeedPut, FeedTail, KeyArgs};

/// The version of command and server, which must be the same: nothing else says what a field means.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Months before this one that can be kept.
pub const KEEP_MONTHS: RangeInclusive<i64> = 1..=600;

/// After how many months users can count as stale. No connection lives as long as the least: whoever
/// was last seen then is not connected now.
pub const INACTIVE_MONTHS: RangeInclusive<i64> = INACTIVE_MONTHS_MIN as i64..=600;

/// The least of them, and what is meant where none is said.
pub const INACTIVE_MONTHS_MIN: u32 = 2;

/// How many users can be dropped a second.
pub const USERS_A_SECOND: RangeInclusive<i64> = 1..=100_000;

/// A request as it stands on the socket, on one line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope<R> {
    /// Of the command.
    pub version: String,
    /// What is asked for; looked at only where the version is right.
    pub request: R,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Try out everything that a node does with the store.
    Preflight,
    /// Say which tables there are.
    List,
    /// Say how the store stands and what there is to do.
    Status,
    /// Make the tables that are needed soon.
    Create(Create),
    /// Drop the tables that are no longer needed.
    DropOld(DropOld),
    /// Drop one table.
    Drop(Drop),
    /// Copy one month to another.
    Copy(Copy),
    /// Drop the users that stayed away.
    DropInactive(DropInactive),
    /// Set a key of a feed.
    FeedPut(FeedPut),
    /// Delete a key of a feed.
    FeedDelete(KeyArgs),
    /// Publish a key of a feed again as it is.
    FeedRepublish(KeyArgs),
    /// Say which feeds there are.
    FeedList,
    /// Tell a feed's updates.
    FeedTail(FeedTail),
    /// Say which broadcasts there are.
    BroadcastList,
}

/// Make the tables that are needed soon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// What last month's table is lowered to.
    pub lower_prior: Option<Units>,
}

/// Drop the tables that are no longer needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropOld {
    /// Months before this one that are kept.
    pub keep: u32,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Also those that clients are still on.
    pub force: bool,
}

/// Drop one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drop {
    /// Which.
    pub month: MonthName,
    /// Whether that is really meant.
    pub yes: bool,
    /// Also where clients are still on it.
    pub force: bool,
}

/// Copy one month to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// From here.
    pub from: MonthName,
    /// To there.
    pub to: MonthName,
    /// The operator says that no server is running.
    pub server_stopped: bool,
}

/// Drop the users that stayed away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropInactive {
    /// Those last seen so many months ago, or earlier.
    pub months: u32,
    /// Users a second.
    pub rate: u32,
    /// Only say how many.
    pub dry_run: bool,
    /// The month to look from.
    pub since: Option<MonthName>,
}

/// A month as a request names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MonthName(pub Month);

/// Throughput as a request names it: `READ:WRITE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// Reads of 4 KiB a second.
    pub read: u32,
    /// Writes of 1 KiB a second.
    pub write: u32,
}

impl Request {
    /// The line that asks for it.
    pub fn to_line(&self) -> String {
        let envelope = Envelope { version: VERSION.to_owned(), request: self };
        let mut line = serde_json::to_string(&envelope).expect("a request has only text as keys");
        line.push('\n');
        line
    }

    /// Reads a line. The error is for the one who wrote it.
    pub fn from_line(line: &[u8]) -> Result<Self, String> {
        let envelope: Envelope<serde_json::Value> = serde_json::from_slice(line)
            .map_err(|error| format!("that is no request of a kalends command: {error}"))?;
        if envelope.version != VERSION {
            return Err(format!(
                "this command is version {} and the server is version {VERSION}: use the same program",
                envelope.version
            ));
        }
        let request = serde_json::from_value::<Self>(envelope.request)
            .map_err(|error| format!("the server does not know this request: {error}"))?;
        match request.is_within_bounds() {
            true => Ok(request),
            false => Err("the request has a number that is out of bounds".to_owned()),
        }
    }

    /// The command line keeps to them, but anybody can write to a socket.
    fn is_within_bounds(&self) -> bool {
        match self {
            Self::DropOld(DropOld { keep, .. }) => KEEP_MONTHS.contains(&i64::from(*keep)),
            Self::DropInactive(DropInactive { months, rate, .. }) => {
                INACTIVE_MONTHS.contains(&i64::from(*months))
                    && USERS_A_SECOND.contains(&i64::from(*rate))
            }
            Self::Create(Create { lower_prior }) => {
                lower_prior.is_none_or(|units| units.read > 0 && units.write > 0)
            }
            Self::Preflight | Self::List | Self::Status | Self::Drop(_) | Self::Copy(_) => true,
            // What is in them cannot be made otherwise.
            Self::FeedPut(_) | Self::FeedDelete(_) | Self::FeedRepublish(_) => true,
            Self::FeedList | Self::FeedTail(_) | Self::BroadcastList => true,
        }
    }
}

impl TryFrom<String> for MonthName {
    type Error = state_machine::month::MonthError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl From<MonthName> for String {
    fn from(month: MonthName) -> Self {
        month.0.to_string()
    }
}

impl From<Units> for Throughput {
    fn from(Units { read, write }: Units) -> Self {
        Self { read, write }
    }
}

#[cfg(test)]
mod tests {
    use state_machine::feed::{FeedKey, FeedName, FeedValue};

    use super::*;
    use crate::admin::feed::{Key, Name, Value};

    fn month(text: &str) -> MonthName {
        MonthName(text.parse().unwrap())
    }

    fn name() -> Name {
        Name(FeedName::broadcasts())
    }

    fn key() -> Key {
        Key(FeedKey::parse("a/b").unwrap())
    }

    #[test]
    fn every_request_is_read_as_it_was_written() {
        for request in [
            Request::Preflight,
            Request::List,
            Request::Status,
            Request::Create(Create { lower_prior: Some(Units { read: 1, write: 2 }) }),
            Request::DropOld(DropOld { keep: 1, dry_run: true, force: false }),
            Request::Drop(Drop { month: month("2026_09"), yes: true, force: true }),
            Request::Copy(Copy {
                from: month("2026_09"),
                to: month("2026_11"),
                server_stopped: true,
            }),
            Request::DropInactive(DropInactive {
                months: 2,
                rate: 100,
                dry_run: false,
                since: Some(month("2025_12")),
            }),
            Request::FeedPut(FeedPut {
                feed: name(),
                key: key(),
                value: Value(FeedValue::parse("a\nb").unwrap()),
            }),
            Request::FeedDelete(KeyArgs { feed: name(), key: key() }),
            Request::FeedRepublish(KeyArgs { feed: name(), key: key() }),
            Request::FeedList,
            Request::FeedTail(FeedTail { feed: name(), after: 7, count: Some(1), once: true }),
            Request::BroadcastList,
        ] {
            let line = request.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Request::from_line(line.as_bytes()), Ok(request));
        }
    }

    #[test]
    fn a_request_of_another_version_is_refused_with_both_before_it_is_looked_at() {
        let line = r#"{"version": "9.9.9", "request": {"unheard_of": 1}}"#;
        let error = Request::from_line(line.as_bytes()).unwrap_err();
        assert!(error.contains("version 9.9.9") && error.contains(VERSION), "{error}");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let with = |request: &str| format!(r#"{{"version": "{VERSION}", "request": {request}}}"#);
        for wrong in [
            String::new(),
            "hello".into(),
            "[]".into(),
            with("null"),
            with(r#""unheard_of""#),
            with(r#"{"drop": {"month": "2026_13", "yes": true, "force": false}}"#),
            with(r#"{"drop_old": {"keep": -1, "dry_run": true, "force": false}}"#),
            with(r#"{"drop_old": {"keep": 1, "dry_run": true, "force": false, "more": 1}}"#),
            with(r#"{"drop_old": {"keep": 4000000000, "dry_run": true, "force": false}}"#),
            with(r#"{"drop_inactive": {"months": 0, "rate": 1, "dry_run": true, "since": null}}"#),
            with(r#"{"drop_inactive": {"months": 2, "rate": 0, "dry_run": true, "since": null}}"#),
            with(r#"{"create": {"lower_prior": {"read": 0, "write": 1}}}"#),
            with(r#"{"feed_delete": {"feed": "A", "key": "k"}}"#),
            with(r#"{"feed_delete": {"feed": "a", "key": ""}}"#),
            with(r#"{"feed_tail": {"feed": "a", "after": -1, "count": null, "once": true}}"#),
        ] {
            assert!(Request::from_line(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
