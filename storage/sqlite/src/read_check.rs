//! What a health check knows about reads: those that failed lately, and one of a random row.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use storage::data_dir::FileKey;
use storage::store::StoreError;

use crate::statements::first_row;

/// For how long a failed read makes the store unhealthy.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The reads of all callers that SQLite could not do.
#[derive(Default)]
pub(crate) struct FailedReads {
    count: AtomicU64,
    last: Mutex<Option<(Instant, String)>>,
}

impl FailedReads {
    pub(crate) fn note(&self, now: Instant, what: String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, what));
    }

    /// Fails if a read failed in the last minute.
    pub(crate) fn check(&self, now: Instant) -> Result<(), StoreError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, what)) if now.saturating_duration_since(*at) < REMEMBERED => {
                Err(StoreError::Failed(format!("a read failed in the last minute: {what}")))
            }
            _ => Ok(()),
        }
    }

    /// Since the store was opened.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Reads the rows of a random user agent whole. It sees the disk only where neither SQLite nor the system has the pages in
/// memory: of a file that fits into memory, none. Uaids are random, so all pages have the same chance.
pub(crate) fn read_random_rows(conn: &Connection, key: FileKey) -> rusqlite::Result<()> {
    let statements = match key {
        FileKey::Router => &[RANDOM_RECORD][..],
        FileKey::Month(_) => &[RANDOM_CHANNELS, RANDOM_MESSAGE][..],
    };
    for statement in statements {
        let mut statement = conn.prepare_cached(statement)?;
        let columns = statement.column_count();
        first_row(&mut statement, [], |row| {
            (0..columns).try_for_each(|column| row.get_ref(column).map(drop))
        })?;
    }
    Ok(())
}

pub(crate) const RANDOM_RECORD: &str = "
    SELECT * FROM router WHERE uaid >= min(randomblob(16), (SELECT max(uaid) FROM router))
    ORDER BY uaid LIMIT 1";

pub(crate) const RANDOM_CHANNELS: &str = "
    SELECT * FROM channels WHERE uaid >= min(randomblob(16), (SELECT max(uaid) FROM channels))
    ORDER BY uaid LIMIT 1";

pub(crate) const RANDOM_MESSAGE: &str = "
    SELECT * FROM messages WHERE uaid >= min(randomblob(16), (SELECT max(uaid) FROM messages))
    ORDER BY uaid LIMIT 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_is_remembered_for_a_minute() {
        let failed = FailedReads::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(failed.check(at(0)), Ok(()));
        failed.note(at(10), "cannot read router.db: disk I/O error".to_owned());
        let text = "a read failed in the last minute: cannot read router.db: disk I/O error";
        assert_eq!(failed.check(at(69)), Err(StoreError::Failed(text.to_owned())));
        assert_eq!(failed.check(at(70)), Ok(()));
        assert_eq!(failed.count(), 1);
    }
}
