//! The rule of a message that takes the row of another one of its topic, in a store whose nodes write rows at any time.

use state_machine::MessageId;
use state_machine::store::Stored;

use super::feed_rows::FeedRows;
use super::receipts;
use crate::receipts::ExpectedReceipt;

/// Attempts to write a row of a topic whose row changes meanwhile.
const ATTEMPTS_MAX: u32 = 8;

/// The row of one message in one month, which is that of its topic if it has one.
#[expect(
    async_fn_in_trait,
    reason = "whether a rule is Send depends on its engine, and callers see it"
)]
pub trait MessageRow {
    type Error;
    /// What the engine knows of the row that was there.
    type Replaced;

    /// Writes the message. None if a row is there that it must not replace.
    async fn put(&self, replaces: Replaces) -> Result<Option<Self::Replaced>, Self::Error>;

    /// None also if other software wrote the row: each message may replace it.
    async fn there(&self) -> Result<Option<RowThere>, Self::Error>;

    /// The error of a row that changes all the time.
    fn contended(&self) -> Self::Error;
}

/// The row that a message may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Replaces {
    /// Any: the key of the row is the message's own.
    Any,
    /// None, one of a message with a lesser id that wants no receipt, or one of other software.
    OlderWithoutReceipt,
    /// That of this message.
    Message(MessageId),
}

/// What waits in the row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowThere {
    pub id: MessageId,
    pub expected: Option<ExpectedReceipt>,
}

/// Writes the row of a message, unless one of its topic has a greater id. A message with a receipt is replaced once the
/// receipt is not expected any more. Calls `put`; for each row that is not replaced `there`, and what
/// [`cancel`](receipts::cancel) calls. Returns what it has replaced, if it wrote the row.
pub async fn put<R: FeedRows, M: MessageRow<Error = R::Error>>(
    rows: &R,
    row: &M,
    id: MessageId,
    has_topic: bool,
) -> Result<(Stored, Option<M::Replaced>), R::Error> {
    let mut replaces = if has_topic { Replaces::OlderWithoutReceipt } else { Replaces::Any };
    for _attempt in 0..ATTEMPTS_MAX {
        if let Some(replaced) = row.put(replaces).await? {
            return Ok((Stored::Done, Some(replaced)));
        }
        replaces = match row.there().await? {
            Some(there) if there.id > id => return Ok((Stored::Outranked(there.id), None)),
            // An attempt whose answer was lost.
            Some(there) if there.id == id => return Ok((Stored::Done, None)),
            // Another message that takes its place before this one may have a receipt that is expected.
            Some(RowThere { id: older, expected }) => {
                if let Some(expected) = expected {
                    receipts::cancel(rows, &expected).await?;
                }
                Replaces::Message(older)
            }
            // It was deleted since, or other software has replaced it.
            None => Replaces::OlderWithoutReceipt,
        };
    }
    Err(row.contended())
}
