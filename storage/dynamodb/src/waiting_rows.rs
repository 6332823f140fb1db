//! The rows of the messages that wait for a user agent, when they are counted.

use std::collections::BTreeMap;

use state_machine::store::FullScope;
use state_machine::{Chid, Message};
use storage::waiting_limits::{WaitingCounts, WaitingMessage, WaitingSize};

use crate::channels;
use crate::error::CallError;
use crate::message_items::{self, WAITING_KEY};
use crate::month_rows::{MonthRows, RowIdentity};

/// Rows in one request of a count.
const ROWS: i32 = 1000;

/// Requests of one count, each of at most 1 MB. Rows beyond are not counted.
const PAGES_MAX: u32 = 64;

/// All rows of a user agent that count.
#[derive(Default)]
pub(crate) struct WaitingRows {
    rows: Vec<WaitingMessage<RowIdentity>>,
    /// Rows of other software, and the one that the message replaces: they count, and do not give way.
    staying: Vec<(Chid, WaitingSize)>,
    /// The row that the message replaces.
    pub(crate) replaced: WaitingSize,
}

/// The rows that have not expired when the message was accepted.
pub(crate) async fn read(
    rows: &MonthRows<'_>,
    message: &Message,
) -> Result<WaitingRows, CallError> {
    let (own, now) = (message_items::sort_key_of_message(message), message.accepted_at);
    let mut waiting = WaitingRows::default();
    let mut after = WAITING_KEY.to_owned();
    for _page in 0..PAGES_MAX {
        let page = rows.after(&after, ROWS, Some(now)).await?;
        for item in &page.items {
            let Some(row) = message_items::decode(item).filter(|row| row.expires_at() > now) else {
                continue;
            };
            let size = WaitingSize::of(&row);
            let is_own = message_items::sort_key_of(item) == own;
            if is_own {
                waiting.replaced = size;
            }
            if is_own || !message_items::is_ours(item) {
                waiting.staying.push((row.chid, size));
            } else {
                let Message { id, chid, urgency, .. } = row;
                let key = RowIdentity::of(item);
                waiting.rows.push(WaitingMessage { key, id, chid, urgency, bytes: size.bytes });
            }
        }
        let Some(next) = page.next else { break };
        after = next;
    }
    Ok(waiting)
}

impl WaitingRows {
    /// What waits in each channel, the row that is replaced included.
    pub(crate) fn by_channel(&self) -> BTreeMap<Chid, WaitingSize> {
        let rows = self.rows.iter().map(|row| (row.chid, row.size()));
        let mut by_channel = BTreeMap::<Chid, WaitingSize>::new();
        for (chid, size) in rows.chain(self.staying.iter().copied()) {
            let channel = by_channel.entry(chid).or_default();
            *channel = *channel + size;
        }
        by_channel
    }

    pub(crate) fn counts(&self, chid: Chid) -> WaitingCounts {
        let by_channel = self.by_channel();
        let user = by_channel.values().fold(WaitingSize::NOTHING, |sum, channel| sum + *channel);
        WaitingCounts { user, channel: by_channel.get(&chid).copied().unwrap_or_default() }
    }

    /// Deletes the messages of channels that were unregistered since. An agent does so when it reads them.
    ///
    /// The channels are read after the rows: a channel that is missing now was unregistered after the messages of these
    /// rows were accepted, also if the agent registers it again meanwhile.
    pub(crate) async fn delete_unregistered(
        &mut self,
        rows: &MonthRows<'_>,
    ) -> Result<(), CallError> {
        let item = channels::read_item(rows).await?;
        let registered = item.as_ref().map(channels::decode).unwrap_or_default();
        let deleted = self.rows.extract_if(.., |row| !registered.contains(&row.chid));
        let deleted: Vec<_> = deleted.collect();
        let deletes = deleted.iter().map(|row| rows.delete(&row.key));
        rows.client.write_rows(deletes.collect()).await.1
    }

    /// Deletes the rows that give way to a message.
    pub(crate) async fn give_way(
        &mut self,
        rows: &MonthRows<'_>,
        message: &Message,
        counts: WaitingCounts,
    ) -> Result<Result<(), FullScope>, CallError> {
        let candidates = self.rows.iter().enumerate().map(|(at, row)| WaitingMessage {
            key: at,
            id: row.id,
            chid: row.chid,
            urgency: row.urgency,
            bytes: row.bytes,
        });
        let limits = &rows.client.options.waiting;
        let given = match limits.give_way(candidates.collect(), counts, message, self.replaced) {
            Ok(given) => given,
            Err(scope) => return Ok(Err(scope)),
        };
        let deletes = given.iter().map(|at| rows.delete(&self.rows[*at].key));
        let (count, done) = rows.client.write_rows(deletes.collect()).await;
        rows.client.count_gave_way(count);
        done.map_err(|error| error.after_writes(count > 0))?;
        let mut at = 0;
        self.rows.retain(|_row| {
            at += 1;
            !given.contains(&(at - 1))
        });
        Ok(Ok(()))
    }
}
