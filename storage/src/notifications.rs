//! The legacy table of SimplePush: one version a channel (seed 001, `create_storage_table` and `Storage`).

use state_machine::{Chid, Uaid};

use crate::store::StoreFuture;

/// What waits for a SimplePush user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notification {
    /// The channel.
    pub chid: Chid,
    /// Its last version.
    pub version: u64,
}

/// The table of notifications. Engines make it when it is first written to, where they may make tables.
pub trait NotificationTable: Send + Sync {
    /// Makes the table if it is not there, ahead of time.
    fn ensure_notifications(&self) -> StoreFuture<()>;

    /// At most `limit` notifications of a user agent, by channel, those after `after`.
    fn fetch_notifications(
        &self,
        uaid: Uaid,
        after: Option<Chid>,
        limit: usize,
    ) -> StoreFuture<Vec<Notification>>;

    /// Keeps a version, if it is higher than the one that is there. Answers whether it was.
    fn save_notification(&self, uaid: Uaid, notification: Notification) -> StoreFuture<bool>;

    /// Deletes the notification of a channel, if a version is given only that one: a higher one
    /// that came meanwhile stays. Answers whether one was deleted.
    fn delete_notification(
        &self,
        uaid: Uaid,
        chid: Chid,
        version: Option<u64>,
    ) -> StoreFuture<bool>;
}
