//! Finds inactive users by the `last_connect` index.

use futures_util::future::try_join_all;
use state_machine::{LastConnect, Uaid};
use storage::maintenance::{InactiveUser, InactiveUsers, MonthRange, USERS_IN_A_BATCH};
use storage::store::Cursor;

use crate::attributes::{UAID, number, text, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::last_connect_index;
use crate::table_schema::{INDEX, INDEX_KEY};

/// Keys that one call queries, two days' at the default spread: bounds a call in an empty month.
const KEYS_MAX: usize = 480;

pub(crate) async fn find(
    client: &DynamoClient,
    seen: MonthRange,
    after: Option<Cursor>,
) -> Result<InactiveUsers, CallError> {
    let (first, mut behind) = match after {
        None => (seen.keys().start, None),
        Some(cursor) => {
            let position = ScanPosition::parse(&cursor).ok_or_else(|| no_position(client))?;
            (position.key, position.behind)
        }
    };
    let keys = last_connect_index::keys(seen, client.options.last_connect_shards);
    let mut keys = keys.skip_while(|key| *key < first).peekable();
    let mut users = Vec::new();
    let at_once = client.options.rows_in_flight_max.clamp(1, KEYS_MAX);
    for _round in 0..KEYS_MAX.div_ceil(at_once) {
        let queries = keys.by_ref().take(at_once).map(|key| query(client, key, behind.take()));
        for KeyPage { key, uaids, last } in try_join_all(queries.collect::<Vec<_>>()).await? {
            let room = USERS_IN_A_BATCH - users.len();
            let behind = uaids.get(room - 1).copied().or(last);
            let found = uaids.into_iter().take(room);
            users.extend(found.map(|uaid| InactiveUser { uaid, last_connect: key }));
            if behind.is_some() {
                let next = Some(ScanPosition { key, behind }.cursor());
                return Ok(InactiveUsers { users, next });
            }
        }
    }
    let next = keys.peek().map(|key| ScanPosition { key: *key, behind: None }.cursor());
    Ok(InactiveUsers { users, next })
}

#[derive(Debug, PartialEq, Eq)]
struct ScanPosition {
    key: LastConnect,
    /// The last user of that key that was returned.
    behind: Option<Uaid>,
}

impl ScanPosition {
    fn cursor(&self) -> Cursor {
        Cursor::new(match self.behind {
            None => self.key.0.to_string(),
            Some(uaid) => format!("{} {uaid}", self.key.0),
        })
    }

    fn parse(cursor: &Cursor) -> Option<Self> {
        let (key, behind) = match cursor.as_str().split_once(' ') {
            None => (cursor.as_str(), None),
            Some((key, uaid)) => (key, Some(uaid.parse().ok()?)),
        };
        Some(Self { key: LastConnect(key.parse().ok()?), behind })
    }
}

fn no_position(client: &DynamoClient) -> CallError {
    CallError::unreadable("Query", &client.names.router, "the cursor of the search is invalid")
}

/// A page of the users of one key.
pub(crate) struct KeyPage {
    key: LastConnect,
    uaids: Vec<Uaid>,
    /// The last user of the page, if there may be more.
    last: Option<Uaid>,
}

pub(crate) async fn query(
    client: &DynamoClient,
    key: LastConnect,
    behind: Option<Uaid>,
) -> Result<KeyPage, CallError> {
    let table = &client.names.router;
    let start = behind.map(|uaid| {
        let uaid = (UAID.to_owned(), text(uaid.to_string()));
        Item::from([uaid, (INDEX_KEY.to_owned(), number(key.0))])
    });
    let request = client
        .sdk
        .query()
        .table_name(table)
        .index_name(INDEX)
        .key_condition_expression("last_connect = :key")
        .expression_attribute_values(":key", number(key.0))
        .set_exclusive_start_key(start)
        .limit(USERS_IN_A_BATCH as i32);
    let page = client.call("Query", table, request.send()).await?;
    let uaid = |item: &Item| text_of(item, UAID).and_then(|uaid| uaid.parse().ok());
    let uaids = page.items().iter().filter_map(uaid).collect();
    Ok(KeyPage { key, uaids, last: page.last_evaluated_key.as_ref().and_then(uaid) })
}
