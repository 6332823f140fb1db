//! The feed tables (docs/sources.md#feed-sequences-note): many feeds in two tables.
//!
//! ```text
//! sequences  name              value, version, keys, settled; horizon, forgotten, mark, marked_at
//! feeds      feed, k:{key}     version; number, unless the key waits for one
//!            feed, p:{key}     version, value: the key waits to be published
//!            .expected.NN, {deadline}:{feed}:{key}  a receipt that is expected, see `expected_receipts`
//!            feed, n:{number}  key, version, value: a published update, its number in 20 digits
//! ```
//!
//! Every change of a key is one transaction on its rows, on the condition that the version in its
//! `k` row is unchanged. A publication is one transaction, on the condition that the versions of
//! the sequence and of each key are unchanged.
//!
//! **A reader may see a transaction in part**: DynamoDB does not isolate several reads, even
//! consistent ones. A reader that saw a new `value` before the rows that were written with it would
//! skip them for ever. So readers use `settled`: a publisher raises it once its transaction was
//! answered, and no publication begins before the last one is settled. If a publisher dies between
//! the two, the next one settles its publication: it reads the numbers in a transaction, which
//! waits for an unfinished one (`feed_rows`).
//!
//! Architecture Invariant: only publications change `value` and `version`, only the first write of
//! a key and its removal change `keys`, only a publisher changes `settled`, and only what forgets or marks
//! entries the others.

pub(super) mod expected_receipts;
pub(super) mod feed_items;
mod feed_rows;
mod list;
pub(super) mod transaction;

use storage::feeds::{FeedKey, FeedName, Version};
use storage::rules::feeds::{self as rules, Rewrite};

pub(crate) use self::list::{list, mark};
use crate::client::DynamoClient;
use crate::error::{CallError, if_table};

pub(crate) async fn rewrite(
    client: &DynamoClient,
    feed: &FeedName,
    key: &FeedKey,
    rewrite: Rewrite,
) -> Result<Option<Version>, CallError> {
    Ok(if_table(rules::rewrite(client, feed, key, rewrite).await)?.flatten())
}
