//! The number of rows in a table, in bounded time.

use rusqlite::{Connection, params};

/// Rows that are counted. The number of more rows is estimated from the uaid that the counted ones
/// reach: uaids are random, so that the error is about a third of a percent.
const COUNTED_MAX: u64 = 100_000;

/// Counts the rows of a statement that selects their uaids in order up to a limit.
pub(crate) fn rows(conn: &Connection, statement: &str) -> rusqlite::Result<u64> {
    rows_up_to(conn, statement, COUNTED_MAX)
}

pub(crate) fn rows_up_to(
    conn: &Connection,
    statement: &str,
    counted_max: u64,
) -> rusqlite::Result<u64> {
    let mut statement = conn.prepare_cached(statement)?;
    let mut rows = statement.query(params![counted_max as i64])?;
    let (mut counted, mut last) = (0, [0; 16]);
    while let Some(row) = rows.next()? {
        (counted, last) = (counted + 1, row.get(0)?);
    }
    Ok(if counted < counted_max { counted } else { estimate(counted, last) })
}

/// The estimate when `counted` rows reach the uaid `last`.
fn estimate(counted: u64, last: [u8; 16]) -> u64 {
    let reached = (u128::from_be_bytes(last) >> 64) + 1;
    u64::try_from((u128::from(counted) << 64) / reached).unwrap_or(u64::MAX)
}

pub(crate) const RECORDS: &str = "SELECT uaid FROM router WHERE uaid > x'' ORDER BY uaid LIMIT ?1";

pub(crate) const NOTIFICATIONS: &str =
    "SELECT uaid FROM notifications WHERE uaid > x'' ORDER BY uaid LIMIT ?1";

pub(crate) const CHANNELS: &str =
    "SELECT uaid FROM channels WHERE uaid > x'' ORDER BY uaid LIMIT ?1";

pub(crate) const MESSAGES: &str =
    "SELECT uaid FROM messages WHERE uaid > x'' ORDER BY uaid LIMIT ?1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    /// A notification for each of `count` uaids that are spread evenly.
    fn database(count: u64) -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        schema::ROUTER.create(&mut conn, "in memory".as_ref()).unwrap();
        for number in 1..=count {
            let uaid = u128::from(number * (u64::MAX / (count + 1))) << 64;
            let insert = "INSERT INTO notifications VALUES (?1, x'01', x'00', NULL)";
            conn.execute(insert, params![uaid.to_be_bytes()]).unwrap();
        }
        conn
    }

    #[test]
    fn few_rows_are_counted() {
        assert_eq!(rows(&database(0), NOTIFICATIONS), Ok(0));
        assert_eq!(rows(&database(7), NOTIFICATIONS), Ok(7));
    }

    #[test]
    fn many_rows_are_estimated_from_those_that_were_counted() {
        let estimate = rows_up_to(&database(1000), NOTIFICATIONS, 100).unwrap();
        assert!((990..=1010).contains(&estimate), "{estimate}");
    }
}
