//! What a server does by itself: tables ahead of the month, and a clock that stays right.

use std::collections::BTreeSet;
use std::time::Duration;

use actix::spawn;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::{Month, Span, Time};
use storage::{Store, StoreError};
use tokio::time::sleep;

use super::message_id_floor::IdFloor;
use super::system_clock::SystemClock;
use crate::http::app::{AppState, SharedState};

/// How often.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// How long before a month its table is made.
const AHEAD: Span = Span::from_secs(24 * 60 * 60);

/// Corrections of the machine's clock that are followed.
const CORRECTION_MIN: Span = Span::from_secs(1);

/// Goes on as long as the process.
pub(super) fn start(
    node: AppState,
    machine: SystemClock,
    id_floor: Option<IdFloor>,
    mut tables: Tables,
) {
    spawn(async move {
        let SharedState { store, clock, log, .. } = &**node.common;
        loop {
            if let (Some(endpoints), Some(id_floor)) = (&node.endpoints, &id_floor) {
                id_floor.reserve(endpoints.ids.time(clock.now()), log);
            }
            sleep(EVERY).await;
            follow(clock, machine.now(), log);
            if let Err(error) = tables.make(&**store, clock.now()).await {
                warn!(log, "cannot make the message tables, will try again"; "error" => %error);
            }
        }
    });
}

/// Makes the tables that a server needs.
#[derive(Debug)]
pub(super) struct Tables {
    rotation: bool,
    /// Made or looked at by this process. A table that is listed may be half made, by a server that was
    /// killed or a request that failed.
    whole: BTreeSet<Month>,
}

impl Tables {
    pub(super) fn new(rotation: bool) -> Self {
        Self { rotation, whole: BTreeSet::new() }
    }

    /// Makes those of the last, this and, a day before it turns, the next month. Where rotation is off,
    /// one table is enough.
    pub(super) async fn make(&mut self, store: &dyn Store, now: Time) -> Result<(), StoreError> {
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

/// The months that a server uses the tables of; `there` are those that have one.
pub(crate) fn needed_months(there: &[Month], now: Time, rotation: bool) -> BTreeSet<Month> {
    let this = Month::of(now);
    match rotation {
        true => [this.previous(), this, Month::of(now + AHEAD)].into(),
        false => [there.last().copied().unwrap_or(this)].into(),
    }
}

/// Where rotation is off: the newest table, which stays in use.
pub(super) async fn frozen_month(
    store: &dyn Store,
    rotation: bool,
) -> Result<Option<Month>, StoreError> {
    Ok(if rotation { None } else { store.months().await?.last().copied() })
}

/// The clock runs by itself; when the machine's was set, it is set too.
fn follow(clock: &Clock, unix_now: Time, log: &Logger) {
    let shown = clock.now();
    let off = shown.since(unix_now).max(unix_now.since(shown));
    if off > CORRECTION_MIN {
        info!(log, "the machine's clock was set, following"; "off_ms" => off.0);
        clock.set(unix_now);
    }
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

    /// The tables that are there after [`Tables::make`] at each of these times.
    async fn months_made(times: &[Time], rotation: bool) -> Vec<String> {
        months_made_beside(&[], times, rotation).await
    }

    async fn months_made_beside(there: &[&str], times: &[Time], rotation: bool) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), &EmbeddedOptions::new(4096)).unwrap();
        for month in there {
            store.ensure_month(month.parse().unwrap()).await.unwrap();
        }
        let mut tables = Tables::new(rotation);
        for now in times {
            tables.make(&store, *now).await.unwrap();
        }
        let months = store.months().await.unwrap();
        months.iter().map(Month::to_string).collect()
    }

    #[tokio::test]
    async fn the_tables_of_the_last_and_this_month_are_made() {
        assert_eq!(months_made(&[DECEMBER], true).await, ["2026_11", "2026_12"]);
    }

    #[tokio::test]
    async fn the_table_of_the_next_month_is_made_a_day_before_it_begins() {
        let day_before = DECEMBER - DAY;
        let months = months_made(&[day_before - Span(1)], true).await;
        assert_eq!(months, ["2026_10", "2026_11"]);
        let months = months_made(&[day_before - Span(1), day_before], true).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12"]);
        let months = months_made(&[day_before, DECEMBER - Span(1), DECEMBER], true).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12"], "and only once");
    }

    #[tokio::test]
    async fn the_tables_of_a_new_year_are_made_as_any() {
        let months = months_made(&[JANUARY - Span(1)], true).await;
        assert_eq!(months, ["2026_11", "2026_12", "2027_01"]);
        assert_eq!(months_made(&[JANUARY], true).await, ["2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn a_server_that_slept_for_two_months_makes_the_tables_it_missed() {
        let november = DECEMBER - Span(DAY.0 * 15);
        let months = months_made(&[november, JANUARY + DAY], true).await;
        assert_eq!(months, ["2026_10", "2026_11", "2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn where_rotation_is_off_one_table_is_made_and_none_is_added() {
        assert_eq!(months_made(&[DECEMBER, JANUARY, JANUARY + DAY], false).await, ["2026_12"]);
        let there = ["2026_10", "2026_11"];
        assert_eq!(months_made_beside(&there, &[DECEMBER, JANUARY], false).await, there);
    }

    #[tokio::test]
    async fn where_rotation_is_on_again_the_tables_that_are_missing_are_made() {
        let months = months_made_beside(&["2026_10"], &[JANUARY], true).await;
        assert_eq!(months, ["2026_10", "2026_12", "2027_01"]);
    }

    #[tokio::test]
    async fn where_rotation_is_off_the_newest_table_is_the_one_in_use() {
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
