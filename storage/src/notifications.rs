//! The legacy table of SimplePush: one version per channel (docs/sources.md#table-functions).

use state_machine::{Chid, Uaid};

use crate::store::StoreFuture;

/// The version that waits for a SimplePush user agent on one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notification {
    pub chid: Chid,
    pub version: u64,
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

    /// Deletes the notification of a channel; with a `version`, only if that is the stored one.
    /// Returns whether one was deleted.
    fn delete_notification(
        &self,
        uaid: Uaid,
        chid: Chid,
        version: Option<u64>,
    ) -> StoreFuture<bool>;
}
