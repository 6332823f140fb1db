//! The message tables of the months, as far as a server needs them.

use std::collections::BTreeSet;

use state_machine::{Month, Span, Time};
use storage::{Store, StoreError};

/// How long before a month begins its table is created.
const AHEAD: Span = Span::from_secs(24 * 60 * 60);

#[derive(Debug)]
pub(crate) struct MonthTables {
    rotation: bool,
    /// Created or checked by this process. A table in the store's list may be incomplete: its creation
    /// may have failed, or the server that created it was killed.
    whole: BTreeSet<Month>,
}

impl MonthTables {
    pub(crate) fn new(rotation: bool) -> Self {
        Self { rotation, whole: BTreeSet::new() }
    }

    /// Creates the tables of the last and this month and, one day before it begins, of the next month.
    /// Without rotation there is one table.
    pub(crate) async fn make(&mut self, store: &dyn Store, now: Time) -> Result<(), StoreError> {
        let listed = store.months().await?;
        for month in needed_months(&listed, now, self.rotation) {
            if !listed.contains(&month) || !self.whole.contains(&month) {
                store.ensure_month(month).await?;
                self.whole.insert(month);
            }
        }
        Ok(())
    }
}

/// The months whose tables a server uses; `there` are the months that have one.
pub(crate) fn needed_months(there: &[Month], now: Time, rotation: bool) -> BTreeSet<Month> {
    let this = Month::of(now);
    match rotation {
        true => [this.previous(), this, Month::of(now + AHEAD)].into(),
        false => [there.last().copied().unwrap_or(this)].into(),
    }
}

/// The month of the newest table, if rotation is off: all messages stay in it.
pub(crate) async fn frozen_month(
    store: &dyn Store,
    rotation: bool,
) -> Result<Option<Month>, StoreError> {
    Ok(if rotation { None } else { store.months().await?.last().copied() })
}

#[cfg(test)]
mod tests {
    use storage::{Embedded, EmbeddedOptions, MessageTables};

    use super::*;

    const DAY: Span = Span::from_secs(24 * 60 * 60);

    /// The first of December 2026, at midnight.
    const DECEMBER: Time = Time(20_788 * DAY.0);

    /// The first of January 2027, at midnight.
    const JANUARY: Time = Time(DECEMBER.0 + 31 * DAY.0);

    /// The tables after [`MonthTables::make`] at each of these times.
    async fn months_made(times: &[Time], rotation: bool) -> Vec<String> {
        months_made_beside(&[], times, rotation).await
    }

    async fn months_made_beside(there: &[&str], times: &[Time], rotation: bool) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), &EmbeddedOptions::new(4096)).unwrap();
        for month in there {
            store.ensure_month(month.parse().unwrap()).await.unwrap();
        }
        let mut tables = MonthTables::new(rotation);
        for now in times {
            tables.make(&store, *now).await.unwrap();
        }
        let months = store.months().await.unwrap();
        months.iter().map(Month::to_string).collect()
    }

    #[tokio::test]
    async fn the_tables_of_the_last_and_this_month_are_created() {
        assert_eq!(months_made(&[DECEMBER], true).await, ["2026_11", "2026_12"]);
    }

    #[tokio::test]
    async fn the_table_of_the_next_month_is_created_a_day_before_it_begins() {
        let day_before = DECEMBER - DAY;
        let months = months_made(&[day_before - Span(1)], true).await;
        assert_eq!(months, ["2026_10", "2026_11"]);
        let months = months_made(&[day_before - Span(1), day_before], true).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12"]);
        let months = months_made(&[day_before, DECEMBER - Span(1), DECEMBER], true).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12"], "and only once");
    }

    #[tokio::test]
    async fn the_tables_of_a_new_year_are_created() {
        let months = months_made(&[JANUARY - Span(1)], true).await;
        assert_eq!(months, ["2026_11", "2026_12", "2027_01"]);
        assert_eq!(months_made(&[JANUARY], true).await, ["2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn after_two_months_of_sleep_the_missed_tables_are_created() {
        let november = DECEMBER - Span(DAY.0 * 15);
        let months = months_made(&[november, JANUARY + DAY], true).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn without_rotation_there_is_one_table() {
        assert_eq!(months_made(&[DECEMBER, JANUARY, JANUARY + DAY], false).await, ["2026_12"]);
        let there = ["2026_10", "2026_11"];
        assert_eq!(months_made_beside(&there, &[DECEMBER, JANUARY], false).await, there);
    }

    #[tokio::test]
    async fn when_rotation_is_on_again_the_missing_tables_are_created() {
        let months = months_made_beside(&["2026_10"], &[JANUARY], true).await;
        assert_eq!(months, ["2026_10", "2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn without_rotation_the_newest_table_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), &EmbeddedOptions::new(4096)).unwrap();
        assert_eq!(frozen_month(&store, false).await, Ok(None), "nothing is there to be frozen on");
        for month in ["2026_12", "2026_11"] {
            store.ensure_month(month.parse().unwrap()).await.unwrap();
        }
        assert_eq!(frozen_month(&store, false).await, Ok("2026_12".parse().ok()));
        assert_eq!(frozen_month(&store, true).await, Ok(None));
    }
}
