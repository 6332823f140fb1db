//! Moves a user agent's messages from one month to another.

use state_machine::{Month, Uaid};
use storage::data_dir::FileKey;
use storage::rules::{finished, receipts};

use crate::error::WriterError;
use crate::messages;
use crate::router_file::RouterFile;
use crate::write_connections::WriteConnections;
use crate::writer::Progress;

/// Moves a page of messages. Commits the copies before it deletes the originals.
pub(crate) fn page(
    files: &mut WriteConnections,
    uaid: Uaid,
    from: Month,
    to: Month,
) -> Result<Progress<()>, WriterError> {
    if from == to || !files.months.contains(from) {
        return Ok(Progress::Done(()));
    }
    let mut replaced = Vec::new();
    let last = files
        .copy_between(from, to, |from, to| messages::copy_page(from, to, uaid, &mut replaced))?;
    if !replaced.is_empty() {
        let cancel = |conn: &_| {
            replaced
                .iter()
                .try_for_each(|replaced| finished(receipts::cancel(&RouterFile(conn), replaced)))
        };
        files.write(FileKey::Router, cancel)?;
        files.commit(FileKey::Router)?;
    }
    files.commit(FileKey::Month(to))?;
    files.write(FileKey::Month(from), |conn| match last {
        Some(last) => messages::delete_up_to(conn, uaid, last).map(|()| Progress::Page),
        None => messages::delete_all(conn, uaid).map(Progress::Done),
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test looks at the first row")]
mod tests {
    use std::sync::Arc;

    use state_machine::{Chid, Message, MessageId, Span, Time, Urgency};
    use storage::upgrade::UpgradeWatch;

    use super::*;
    use crate::channels;
    use crate::connection::ConnectionRole;
    use crate::files::DataDir;
    use crate::readers::Readers;

    const UAID: Uaid = Uaid([1; 16]);
    const CHID: Chid = Chid([2; 16]);

    fn message() -> Message {
        Message {
            id: MessageId::from_uuid_v7(4, false),
            chid: CHID,
            topic: None,
            urgency: Urgency::Normal,
            accepted_at: Time(0),
            ttl: Span(1),
            offers: 0,
            receipt: None,
            payload: None,
        }
    }

    fn rows_on_disk(dir: &DataDir, month: Month) -> i64 {
        let conn = dir.connect(FileKey::Month(month), ConnectionRole::Reader).unwrap();
        conn.query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn moved_messages_are_on_disk_before_the_originals_are_deleted() {
        let home = tempfile::tempdir().unwrap();
        let (dir, _lock, months) = DataDir::open(home.path(), None, UpgradeWatch::NONE).unwrap();
        let (dir, months) = (Arc::new(dir), Arc::new(months));
        let readers = Arc::new(Readers::new(dir.clone(), months.clone(), 1, 1));
        let mut files = WriteConnections::new(dir.clone(), months, readers, 2, Arc::default());
        let (from, to) = ("2026_10".parse().unwrap(), "2026_11".parse().unwrap());
        for month in [from, to] {
            files.make_month(month).unwrap();
            let add = |conn: &_| channels::add(conn, UAID, &[CHID].into());
            files.write(FileKey::Month(month), add).unwrap();
        }
        let store = |conn: &_| messages::insert(conn, UAID, &message());
        files.write(FileKey::Month(from), store).unwrap();
        files.commit_all();
        assert_eq!(page(&mut files, UAID, from, to).unwrap(), Progress::Done(()));
        assert_eq!((rows_on_disk(&dir, from), rows_on_disk(&dir, to)), (1, 1));
        files.commit_all();
        assert_eq!((rows_on_disk(&dir, from), rows_on_disk(&dir, to)), (0, 1));
    }
}
