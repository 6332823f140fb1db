//! Copies a month to another agent by agent: first the channels, because a message is stored only
//! if its channel is registered, then the messages.

use rusqlite::types::Type;
use rusqlite::{Connection, params};
use state_machine::Uaid;

use super::columns::corrupt;
use super::{channels, messages};
use crate::maintenance::CopyProgress;
use crate::store::Cursor;

/// Rows after which a step reads no further agent.
const ROWS_MAX: u64 = 500;

pub(super) fn copy(
    from: &Connection,
    to: &Connection,
    after: Option<&Cursor>,
) -> rusqlite::Result<CopyProgress> {
    let wrong = || corrupt(0, Type::Text, "not a position in a month");
    let after = after.map(|cursor| cursor.as_str().parse::<Uaid>().map_err(|_| wrong()));
    let after = after.transpose()?;
    let mut agents = from.prepare_cached(AGENTS)?;
    let mut agents = agents.query(params![after.as_ref().map_or(&[][..], |uaid| &uaid.0)])?;
    let mut copied = CopyProgress::default();
    while let Some(agent) = agents.next()? {
        let uaid = Uaid(agent.get(0)?);
        let channels = channels::copy_all(from, to, uaid)?;
        let messages = messages::copy_all(from, to, uaid)?;
        for (seen, written) in [channels, messages] {
            copied.seen += seen;
            copied.written += written;
        }
        if copied.seen >= ROWS_MAX {
            copied.next = Some(Cursor::new(uaid.to_string()));
            break;
        }
    }
    Ok(copied)
}

/// Every agent that has rows: one without channels has the row that marks it as known.
pub(super) const AGENTS: &str = "
    SELECT DISTINCT uaid FROM channels WHERE uaid > ?1 ORDER BY uaid";
