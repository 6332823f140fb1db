//! Rows that agents acked to autopush.
//!
//! Autopush keeps acked rows without a topic until they expire. The item of the channels has in `current_timestamp` up to
//! which of them the agent has acked (docs/sources.md#acked-rows).

use crate::attributes::number_of;
use crate::channels;
use crate::error::{CallError, Item};
use crate::message_items::{self, PLAIN};
use crate::messages::delete_rows;
use crate::month_rows::{ItemPage, MonthRows, RowIdentity};

pub(crate) const CURRENT_TIMESTAMP: &str = "current_timestamp";

/// The last sort key that an agent has acked to autopush.
#[derive(Debug, Default)]
pub(crate) struct LastAcked(Option<String>);

impl LastAcked {
    /// Reads it, if one of the rows may be acked: rows of this program never are.
    pub(crate) async fn of(rows: &MonthRows<'_>, items: &[Item]) -> Result<Self, CallError> {
        if !items.iter().any(is_timestamped) {
            return Ok(Self::default());
        }
        let channels = channels::read_item(rows).await?;
        let timestamp = channels.and_then(|item| number_of(&item, CURRENT_TIMESTAMP));
        // All sort keys of the timestamp are less: `z` is greater than every hex digit.
        Ok(Self(timestamp.map(|timestamp| format!("{PLAIN}{timestamp}:z"))))
    }

    /// Whether the agent has acked the message of a row.
    pub(crate) fn includes(&self, item: &Item) -> bool {
        let is_behind = |last: &String| message_items::sort_key_of(item) <= last.as_str();
        is_timestamped(item) && self.0.as_ref().is_some_and(is_behind)
    }
}

fn is_timestamped(item: &Item) -> bool {
    !message_items::is_ours(item) && message_items::sort_key_of(item).starts_with(PLAIN)
}

/// Removes acked rows from a page and from the table. A row that cannot be deleted is found by the next fetch.
pub(crate) async fn without_acked(
    rows: &MonthRows<'_>,
    page: ItemPage,
) -> Result<ItemPage, CallError> {
    let last = LastAcked::of(rows, &page.items).await?;
    let (acked, items): (Vec<_>, Vec<_>) =
        page.items.into_iter().partition(|item| last.includes(item));
    let acked: Vec<_> = acked.iter().map(RowIdentity::of).collect();
    if !acked.is_empty() {
        let _ = delete_rows(rows, &acked).await;
    }
    Ok(ItemPage { items, next: page.next })
}
