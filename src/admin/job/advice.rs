//! The advice of `tables status`, in sentences.

use std::collections::BTreeSet;

use state_machine::{Month, Time};
use storage::maintenance::{Table, TableStatus};

use super::census::Clients;
use super::drop_old::old_months;
use crate::admin::commands::INACTIVE_MONTHS_MIN;
use crate::admin::job_context::months_before;
use crate::store::message_tables;

/// The state of a table that can be used.
const ACTIVE: &str = "active";

/// Months before the present one whose tables are in ordinary use.
const KEPT: u32 = 1;

/// What the advice is drawn from.
pub(super) struct StoreState<'a> {
    pub(super) now: Time,
    pub(super) rotation: bool,
    pub(super) makes_tables: bool,
    pub(super) tables: &'a [TableStatus],
    pub(super) clients: &'a Clients,
}

impl StoreState<'_> {
    /// The months that `tables drop-old` drops.
    pub(super) fn droppable(&self) -> Vec<Month> {
        let mut old = self.old();
        old.retain(|month| self.clients.naming(*month) == 0);
        old
    }

    fn old(&self) -> Vec<Month> {
        match self.rotation {
            true => old_months(&self.months(), self.this_month(), KEPT),
            false => Vec::new(),
        }
    }

    fn this_month(&self) -> Month {
        Month::of(self.now)
    }

    fn months(&self) -> Vec<Month> {
        let month = |table: &TableStatus| match table.table {
            Table::Messages(month) => Some(month),
            Table::Router | Table::Notifications | Table::Sequences | Table::Feeds => None,
        };
        self.tables.iter().filter_map(month).collect()
    }
}

/// What to do, what will be done by itself, or that all is well.
pub(super) fn advice(state: &StoreState<'_>) -> Vec<String> {
    let mut advice = Vec::new();
    advice.extend(not_active(state));
    advice.extend(ahead(state));
    advice.extend(missing(state));
    advice.extend(unreadable(state));
    advice.extend(clients_without_table(state));
    advice.extend(clients_behind(state));
    advice.extend(unfinished(state));
    advice.extend(droppable(state));
    advice.extend(forgotten(state));
    advice.extend(frozen(state));
    if advice.is_empty() {
        advice.push("all is well, there is nothing to do".to_owned());
    }
    advice
}

fn not_active(state: &StoreState<'_>) -> Vec<String> {
    let idle = state.tables.iter().filter(|table| !table.state.eq_ignore_ascii_case(ACTIVE));
    idle.map(|table| format!("{} is {} and cannot be used yet", table.name, table.state)).collect()
}

/// Months that have not begun. Next month's table may exist long before. Clients are on a month once it has begun; with
/// rotation off, once they are moved to the newest table.
fn ahead(state: &StoreState<'_>) -> Option<String> {
    let this = state.this_month();
    let latest = if state.rotation { this } else { this.next() };
    let tables = state.months().into_iter().filter(|month| *month > this.next());
    let clients = state.clients.on.keys().copied().filter(|month| *month > latest);
    let months: BTreeSet<_> = tables.chain(clients).collect();
    let text = || {
        format!(
            "tables or clients are on {}, and it is {this} by the clock here: is a clock wrong?",
            list(months.iter())
        )
    };
    (!months.is_empty()).then(text)
}

fn missing(state: &StoreState<'_>) -> Vec<String> {
    let there = state.months();
    let mut needed = message_tables::needed_months(&there, state.now, state.rotation);
    if state.rotation && !state.makes_tables {
        // A server that may create tables creates this one in time.
        needed.insert(state.this_month().next());
    }
    let missing = needed.into_iter().filter(|month| !there.contains(month));
    let by_itself = if state.makes_tables { ", and so does a running server" } else { "" };
    let text = |month| format!("{month} has no table: `kalends tables create` makes it{by_itself}");
    missing.map(text).collect()
}

/// Records most likely of another installation.
fn unreadable(state: &StoreState<'_>) -> Option<String> {
    let count = state.clients.unreadable;
    let text = || {
        format!(
            "{count} records name a month that is no message table here and are not served: is \
             dynamodb_message_prefix right?"
        )
    };
    (count > 0).then(text)
}

/// Clients whose channels were dropped with their table.
fn clients_without_table(state: &StoreState<'_>) -> Vec<String> {
    let there = state.months();
    let last = months_before(state.this_month(), INACTIVE_MONTHS_MIN);
    let lost = state.clients.on.iter().filter(|(month, _)| !there.contains(month));
    let text = |(month, count): (&Month, &u64)| {
        let lost = format!(
            "{} on {month}, which has no table: they get a new id when they connect",
            are(*count)
        );
        match *month <= last {
            true => format!(
                "{lost}; `kalends users drop-inactive --since {month}` drops those last seen from \
                 {month} to {last}"
            ),
            false => lost,
        }
    };
    lost.map(text).collect()
}

fn clients_behind(state: &StoreState<'_>) -> Vec<String> {
    let (this, there) = (state.this_month(), state.months());
    let used = if state.rotation { Some(this) } else { there.last().copied() };
    let old = state.old();
    let behind = state
        .clients
        .on
        .iter()
        .filter(|(month, _)| used.is_some_and(|used| **month < used) && there.contains(month));
    let text = |(month, count): (&Month, &u64)| match old.contains(month) {
        true => format!(
            "{} still on {month}: they move when they connect; `kalends users drop-inactive` drops \
             those that stay away, then `kalends tables drop-old` drops the table",
            are(*count)
        ),
        false => format!("{} still on {month}: they move when they connect", are(*count)),
    };
    behind.map(text).collect()
}

fn unfinished(state: &StoreState<'_>) -> Vec<String> {
    let text = |(month, count): (&Month, &u64)| {
        let moves = if *count == 1 { "1 client has" } else { &format!("{count} clients have") };
        format!("{moves} an unfinished move from {month}: it continues when they connect")
    };
    state.clients.moving_from.iter().map(text).collect()
}

fn droppable(state: &StoreState<'_>) -> Option<String> {
    let months = state.droppable();
    let text = || {
        format!(
            "no client is on {} any more: `kalends tables drop-old` drops it",
            list(months.iter())
        )
    };
    (!months.is_empty()).then(text)
}

/// Tables left after a copy. With rotation off, `tables drop-old` drops none.
fn forgotten(state: &StoreState<'_>) -> Vec<String> {
    let mut months = state.months();
    months.pop();
    months.retain(|month| !state.rotation && state.clients.naming(*month) == 0);
    let text = |month| {
        format!("no client is on {month} any more: `kalends tables drop {month} --yes` drops it")
    };
    months.into_iter().map(text).collect()
}

fn frozen(state: &StoreState<'_>) -> Option<String> {
    let newest = state.months().last().copied()?;
    (!state.rotation).then(|| format!("rotation is off: {newest} stays in use"))
}

fn list<'a>(months: impl Iterator<Item = &'a Month>) -> String {
    months.map(Month::to_string).collect::<Vec<_>>().join(", ")
}

fn are(count: u64) -> String {
    match count {
        1 => "1 client is".to_owned(),
        _ => format!("{count} clients are"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use state_machine::Span;
    use storage::maintenance::Capacity;

    use super::*;

    /// A day in 2026_11.
    const NOW: Time = Time(20_770 * 24 * 60 * 60 * 1000);

    fn month(text: &str) -> Month {
        text.parse().unwrap()
    }

    fn tables(months: &[&str]) -> Vec<TableStatus> {
        let tables = months.iter().map(|text| Table::Messages(month(text)));
        [Table::Router].into_iter().chain(tables).map(table).collect()
    }

    fn table(table: Table) -> TableStatus {
        let (name, state) = (format!("{table:?}"), "active".to_owned());
        TableStatus { table, name, state, items: 0, bytes: 0, capacity: Capacity::OnDemand }
    }

    fn counts(counts: &[(&str, u64)]) -> BTreeMap<Month, u64> {
        counts.iter().map(|(text, count)| (month(text), *count)).collect()
    }

    fn advise(rotation: bool, tables: &[TableStatus], on: &[(&str, u64)]) -> Vec<String> {
        let clients = Clients { on: counts(on), ..Clients::default() };
        advice(&state(rotation, tables, &clients))
    }

    fn state<'a>(
        rotation: bool,
        tables: &'a [TableStatus],
        clients: &'a Clients,
    ) -> StoreState<'a> {
        StoreState { now: NOW, rotation, makes_tables: true, tables, clients }
    }

    #[test]
    fn a_complete_store_needs_nothing() {
        let tables = tables(&["2026_10", "2026_11", "2026_12"]);
        assert_eq!(
            advise(true, &tables, &[("2026_11", 9)]),
            ["all is well, there is nothing to do"]
        );
    }

    #[test]
    fn unreadable_records_are_reported_with_the_setting_to_check() {
        let clients = Clients { unreadable: 2, ..Clients::default() };
        let lines = advice(&state(true, &tables(&["2026_10", "2026_11"]), &clients));
        assert!(lines.len() == 1 && lines[0].starts_with("2 records name a month"), "{lines:?}");
    }

    #[test]
    fn clients_on_past_months_are_reported_by_month_with_what_moves_them() {
        let tables = tables(&["2026_08", "2026_09", "2026_10", "2026_11", "2026_12"]);
        let lines = advise(true, &tables, &[("2026_09", 3), ("2026_10", 1), ("2026_11", 9)]);
        assert_eq!(
            lines,
            [
                "3 clients are still on 2026_09: they move when they connect; `kalends users \
                 drop-inactive` drops those that stay away, then `kalends tables drop-old` drops the table",
                "1 client is still on 2026_10: they move when they connect",
                "no client is on 2026_08 any more: `kalends tables drop-old` drops it",
            ]
        );
    }

    #[test]
    fn clients_of_a_dropped_table_are_reported() {
        let tables = tables(&["2026_10", "2026_11", "2026_12"]);
        let lines = advise(true, &tables, &[("2026_05", 2)]);
        let expected = "2 clients are on 2026_05, which has no table: they get a new id when they \
                        connect; `kalends users drop-inactive --since 2026_05` drops those last seen \
                        from 2026_05 to 2026_09";
        assert_eq!(lines, [expected]);
    }

    #[test]
    fn a_search_is_advised_only_from_a_month_that_it_accepts() {
        let tables = tables(&["2026_11", "2026_12"]);
        let lines = advise(true, &tables, &[("2026_10", 1)]);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[1],
            "1 client is on 2026_10, which has no table: they get a new id when they connect"
        );
    }

    #[test]
    fn missing_tables_and_those_being_created_are_reported() {
        let mut tables = tables(&["2026_11", "2026_12"]);
        tables[2].state = "CREATING".into();
        let lines = advise(true, &tables, &[]);
        assert_eq!(
            lines,
            [
                "Messages(2026_12) is CREATING and cannot be used yet",
                "2026_10 has no table: `kalends tables create` makes it, and so does a running server",
            ]
        );
    }

    #[test]
    fn next_months_table_is_needed_a_day_before_or_at_once_where_servers_create_none() {
        let (tables, clients) = (tables(&["2026_10", "2026_11"]), Clients::default());
        let day_before = Time(20_787 * 24 * 60 * 60 * 1000);
        let advise_at = |now, makes_tables| {
            advice(&StoreState { now, makes_tables, ..state(true, &tables, &clients) })
        };
        let well = ["all is well, there is nothing to do"];
        assert_eq!(advise_at(NOW, true), well);
        assert_eq!(advise_at(day_before - Span(1), true), well);
        let by_hand = "2026_12 has no table: `kalends tables create` makes it";
        assert_eq!(
            advise_at(day_before, true),
            [format!("{by_hand}, and so does a running server")]
        );
        assert_eq!(advise_at(NOW, false), [by_hand]);
    }

    #[test]
    fn future_months_question_the_clock() {
        let tables = tables(&["2026_10", "2026_11", "2026_12", "2027_02"]);
        let lines = advise(true, &tables, &[("2026_12", 1), ("2027_03", 1)]);
        assert_eq!(
            lines[0],
            "tables or clients are on 2026_12, 2027_02, 2027_03, and it is 2026_11 by the clock \
             here: is a clock wrong?"
        );
        assert!(!lines[1].contains("--since"), "{lines:?}");
        let lines = advise(false, &tables[..4], &[("2026_10", 1), ("2026_11", 1), ("2026_12", 1)]);
        assert!(!lines.iter().any(|line| line.contains("clock")), "{lines:?}");
    }

    #[test]
    fn unfinished_moves_keep_their_table() {
        let tables = tables(&["2026_09", "2026_10", "2026_11", "2026_12"]);
        let clients = Clients { moving_from: counts(&[("2026_09", 1)]), ..Clients::default() };
        let state = state(true, &tables, &clients);
        assert_eq!(state.droppable(), []);
        let expected =
            "1 client has an unfinished move from 2026_09: it continues when they connect";
        assert_eq!(advice(&state), [expected]);
    }

    #[test]
    fn with_rotation_off_the_newest_table_is_reported_and_none_is_old() {
        let tables = tables(&["2026_03", "2026_05"]);
        let lines = advise(false, &tables, &[("2026_03", 2), ("2026_05", 2)]);
        assert_eq!(
            lines,
            [
                "2 clients are still on 2026_03: they move when they connect",
                "rotation is off: 2026_05 stays in use",
            ]
        );
    }

    #[test]
    fn with_rotation_off_a_table_left_after_a_copy_is_reported() {
        let lines = advise(false, &tables(&["2026_03", "2026_11"]), &[("2026_11", 2)]);
        assert_eq!(
            lines,
            [
                "no client is on 2026_03 any more: `kalends tables drop 2026_03 --yes` drops it",
                "rotation is off: 2026_11 stays in use",
            ]
        );
        let lines = advise(false, &tables(&["2026_11"]), &[]);
        assert_eq!(lines, ["rotation is off: 2026_11 stays in use"], "the newest is in use");
    }
}
