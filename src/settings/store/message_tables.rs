//! The message tables of the months, as far as a server needs them.

use std::collections::BTreeSet;

use state_machine::{Month, Span, Time};
use storage::{Store, StoreAdmin, StoreError};

/// How long before a month begins its table is created.
const AHEAD: Span = Span::from_secs(24 * 60 * 60);

#[derive(Debug, Clone)]
pub(crate) struct MonthTables {
    /// The month of all messages, if rotation is off.
    frozen_month: Option<Month>,
    /// Whether this server creates tables.
    makes_tables: bool,
    /// Created or checked by this process. A table in the store's list may be incomplete: its creation
    /// may have failed, or the server that created it was killed.
    whole: BTreeSet<Month>,
    /// Not there, the last time that the store listed its tables.
    missing: BTreeSet<Month>,
}

impl MonthTables {
    pub(crate) fn new(frozen_month: Option<Month>, makes_tables: bool) -> Self {
        Self { frozen_month, makes_tables, whole: BTreeSet::new(), missing: BTreeSet::new() }
    }

    /// Creates the tables of the last and this month and, one day before it begins, of the next month.
    /// Without rotation there is one table.
    pub(crate) async fn make(&mut self, store: &dyn Store, now: Time) -> Result<(), StoreError> {
        let listed = store.months().await?;
        self.missing = missing_months(&listed, now, self.frozen_month, self.makes_tables);
        for month in needed_months(now, self.frozen_month) {
            if !listed.contains(&month) || !self.whole.contains(&month) {
                store.ensure_month(month).await?;
                self.whole.insert(month);
                self.missing.remove(&month);
            }
        }
        Ok(())
    }

    /// The months that had no table after the last [`Self::make`].
    pub(crate) fn missing(&self) -> &BTreeSet<Month> {
        &self.missing
    }
}

/// The months whose tables a server uses.
pub(crate) fn needed_months(now: Time, frozen_month: Option<Month>) -> BTreeSet<Month> {
    let this = Month::of(now);
    match frozen_month {
        None => [this.previous(), this, Month::of(now + AHEAD)].into(),
        Some(month) => [month].into(),
    }
}

/// The months without a table, besides these, that agents are on or change to. Where no server creates tables, that of
/// the next month is missed at once.
pub(crate) fn missing_months(
    there: &[Month],
    now: Time,
    frozen_month: Option<Month>,
    makes_tables: bool,
) -> BTreeSet<Month> {
    let mut needed = needed_months(now, frozen_month);
    if frozen_month.is_none() && !makes_tables {
        needed.insert(Month::of(now).next());
    }
    needed.retain(|month| !there.contains(month));
    needed
}

/// The month of all messages, if rotation is off: the newest whose table has rows, and this month in an empty store.
///
/// An agent has its channels in the table that its record names, so no record names a newer month. The table of the
/// next month, which `tables create` makes ahead, is empty and not in use. All nodes read the same tables, and no agent
/// leaves this month while rotation is off, so that each start finds the same month.
pub(crate) async fn frozen_month(
    store: &dyn StoreAdmin,
    now: Time,
    rotation: bool,
) -> Result<Option<Month>, StoreError> {
    if rotation {
        return Ok(None);
    }
    for month in store.months().await?.into_iter().rev() {
        if store.has_rows(month).await? {
            return Ok(Some(month));
        }
    }
    Ok(Some(Month::of(now)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use state_machine::Uaid;
    use storage::StoreOp;
    use storage_sqlite::{Embedded, EmbeddedOptions};

    use super::*;

    const DAY: Span = Span::from_secs(24 * 60 * 60);

    /// The first of December 2026, at midnight.
    const DECEMBER: Time = Time(20_788 * DAY.0);

    /// The first of January 2027, at midnight.
    const JANUARY: Time = Time(DECEMBER.0 + 31 * DAY.0);

    /// The tables after [`MonthTables::make`] at each of these times.
    async fn months_made(times: &[Time], frozen_month: Option<&str>) -> Vec<String> {
        months_made_beside(&[], times, frozen_month).await
    }

    async fn months_made_beside(
        there: &[&str],
        times: &[Time],
        frozen_month: Option<&str>,
    ) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), &EmbeddedOptions::new(4096)).unwrap();
        for month in there {
            store.ensure_month(month.parse().unwrap()).await.unwrap();
        }
        let mut tables = MonthTables::new(frozen_month.map(|month| month.parse().unwrap()), true);
        for now in times {
            tables.make(&store, *now).await.unwrap();
        }
        let months = store.months().await.unwrap();
        months.iter().map(Month::to_string).collect()
    }

    #[tokio::test]
    async fn the_tables_of_the_last_and_this_month_are_created() {
        assert_eq!(months_made(&[DECEMBER], None).await, ["2026_11", "2026_12"]);
    }

    #[tokio::test]
    async fn the_table_of_the_next_month_is_created_a_day_before_it_begins() {
        let day_before = DECEMBER - DAY;
        let months = months_made(&[day_before - Span(1)], None).await;
        assert_eq!(months, ["2026_10", "2026_11"]);
        let months = months_made(&[day_before - Span(1), day_before], None).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12"]);
        let months = months_made(&[day_before, DECEMBER - Span(1), DECEMBER], None).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12"], "and only once");
    }

    #[tokio::test]
    async fn the_tables_of_a_new_year_are_created() {
        let months = months_made(&[JANUARY - Span(1)], None).await;
        assert_eq!(months, ["2026_11", "2026_12", "2027_01"]);
        assert_eq!(months_made(&[JANUARY], None).await, ["2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn after_two_months_of_sleep_the_missed_tables_are_created() {
        let november = DECEMBER - Span(DAY.0 * 15);
        let months = months_made(&[november, JANUARY + DAY], None).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn without_rotation_there_is_one_table() {
        let made = months_made(&[DECEMBER, JANUARY, JANUARY + DAY], Some("2026_12")).await;
        assert_eq!(made, ["2026_12"]);
        let there = ["2026_10", "2026_11"];
        let times = [DECEMBER, JANUARY];
        assert_eq!(months_made_beside(&there, &times, Some("2026_11")).await, there);
    }

    #[tokio::test]
    async fn when_rotation_is_on_again_the_missing_tables_are_created() {
        let months = months_made_beside(&["2026_10"], &[JANUARY], None).await;
        assert_eq!(months, ["2026_10", "2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn without_rotation_the_newest_month_with_agents_stays_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), &EmbeddedOptions::new(4096)).unwrap();
        let month = |text: &str| text.parse().unwrap();
        let frozen = async |now| frozen_month(&store, now, false).await.unwrap().unwrap();
        assert_eq!(frozen(DECEMBER).await, month("2026_12"), "an empty store");
        for ahead in ["2026_11", "2026_12", "2027_01"] {
            store.ensure_month(month(ahead)).await.unwrap();
        }
        assert_eq!(frozen(DECEMBER).await, month("2026_12"), "no table has agents");
        let (uaid, channels) = (Uaid([1; 16]), BTreeSet::new());
        let enter =
            |month| store.execute(StoreOp::AddChannels { uaid, month, channels: channels.clone() });
        enter(month("2026_11")).await.unwrap();
        for now in [DECEMBER, JANUARY, Time(JANUARY.0 + 400 * DAY.0)] {
            assert_eq!(frozen(now).await, month("2026_11"), "the others are empty");
        }
        enter(month("2026_12")).await.unwrap();
        assert_eq!(frozen(DECEMBER).await, month("2026_12"), "an agent has moved");
        assert_eq!(frozen_month(&store, DECEMBER, true).await, Ok(None));
    }
}
