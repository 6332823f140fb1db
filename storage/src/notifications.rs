//! The legacy table of SimplePush: one version per channel (docs/sources.md#table-functions).

use futures_util::TryFutureExt;
use futures_util::future::try_join_all;
use state_machine::{Chid, Message, MessageKey, Time, Uaid};

use crate::store::{Cursor, Page, PageLimit, SettledMessages, StoreFuture, Stored};

/// The version that waits for a SimplePush user agent on one channel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Notification {
    pub chid: Chid,
    pub version: u64,
    /// The text that was sent with it.
    pub data: Option<String>,
}

/// The table of notifications. Engines create it with the first write, if they may create tables.
pub trait NotificationTable: Send + Sync {
    /// Creates the table ahead of the first write.
    fn ensure_notifications(&self) -> StoreFuture<()>;

    /// At most `limit` notifications of a user agent after `after`, by channel.
    fn fetch_notifications(
        &self,
        uaid: Uaid,
        after: Option<Chid>,
        limit: usize,
    ) -> StoreFuture<Vec<Notification>>;

    /// Stores a version if it is higher than the stored one. Returns whether it was.
    fn save_notification(&self, uaid: Uaid, notification: Notification) -> StoreFuture<bool>;

    /// Deletes the notification of a channel; with a `version`, only if the stored one is not higher.
    /// Returns whether one was deleted.
    fn delete_notification(
        &self,
        uaid: Uaid,
        chid: Chid,
        version: Option<u64>,
    ) -> StoreFuture<bool>;
}

/// SimplePush versions as messages. Engines call these for what the contract says of versions.
impl Notification {
    /// The version that a message carries; none for one of Web Push.
    fn of(message: &Message) -> Option<Self> {
        let data = message.payload.as_ref();
        let data = data.map(|payload| String::from_utf8_lossy(&payload.data).into_owned());
        Some(Self { chid: message.chid, version: message.version()?, data })
    }

    fn into_message(self, now: Time) -> Message {
        Message::of_version(self.chid, self.version, self.data.map(Into::into), now)
    }
}

/// Stores the version that a message carries; none for a message of Web Push.
pub fn store(
    table: &impl NotificationTable,
    uaid: Uaid,
    message: &Message,
) -> Option<StoreFuture<Stored>> {
    let saved = table.save_notification(uaid, Notification::of(message)?);
    // A higher version that is there has replaced it.
    Some(Box::pin(saved.map_ok(|_is_higher| Stored::Done)))
}

/// Reads a page of versions. The first is in it whatever its size.
pub fn fetch_page(
    table: &impl NotificationTable,
    uaid: Uaid,
    after: Option<Cursor>,
    limit: PageLimit,
    now: Time,
) -> StoreFuture<Page> {
    let after = after.and_then(|after| Chid::parse(after.as_str()).ok());
    let fetched = table.fetch_notifications(uaid, after, limit.rows);
    Box::pin(fetched.map_ok(move |there| {
        let (rows, mut bytes, mut messages) = (there.len(), 0, Vec::new());
        for notification in there {
            if !limit.is_reached(messages.len(), bytes) {
                bytes += notification.data.as_ref().map_or(0, String::len);
                messages.push(notification.into_message(now));
            }
        }
        let is_followed = messages.len() < rows || rows >= limit.rows;
        let last = messages.last().filter(|_| is_followed);
        let next = last.map(|last| Cursor::new(last.chid.to_string()));
        Page { messages, next }
    }))
}

/// Deletes the versions among these; none if there is no version.
pub fn delete(
    table: &impl NotificationTable,
    uaid: Uaid,
    messages: &[MessageKey],
) -> Option<StoreFuture<SettledMessages>> {
    let versions = messages.iter().filter_map(|key| Some((key.chid, key.id.version_of(key.chid)?)));
    let deleted: Vec<_> = versions
        .map(|(chid, version)| table.delete_notification(uaid, chid, Some(version)))
        .collect();
    let count = |deleted: Vec<bool>| SettledMessages {
        deleted: deleted.into_iter().filter(|was_there| *was_there).count(),
        subscriptions: Vec::new(),
    };
    (!deleted.is_empty()).then(|| Box::pin(try_join_all(deleted).map_ok(count)) as _)
}
