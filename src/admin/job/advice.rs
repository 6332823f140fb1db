//! What `tables status` says there is to do, in plain sentences.

use state_machine::{Month, Time};
use storage::upkeep::{Table, TableStatus};

use super::census::Clients;
use super::drop_old::old_months;

/// The store's word for a table that can be used.
const ACTIVE: &str = "active";

/// Months before this one whose tables are in ordinary use.
const KEPT: u32 = 1;

/// How things stand.
pub(super) struct Standing<'a> {
    pub(super) now: Time,
    pub(super) rotation: bool,
    pub(super) tables: &'a [TableStatus],
    pub(super) clients: &'a Clients,
}

impl Standing<'_> {
    /// The months that `tables drop-old` drops.
    pub(super) fn droppable(&self) -> Vec<Month> {
        let mut old = self.old();
        old.retain(|month| self.clients.naming(*month) == 0);
        old
    }

    fn old(&self) -> Vec<Month> {
        match self.rotation {
            true => old_months(&self.months(), Month::of(self.now), KEPT),
            false => Vec::new(),
        }
    }

    fn months(&self) -> Vec<Month> {
        let month = |table: &TableStatus| match table.table {
            Table::Messages(month) => Some(month),
            Table::Router | Table::Notifications => None,
        };
        self.tables.iter().filter_map(month).collect()
    }
}

/// What there is to do, what will come right by itself, or that all is well.
pub(super) fn advice(standing: &Standing<'_>) -> Vec<String> {
    let mut advice = Vec::new();
    advice.extend(not_active(standing));
    advice.extend(missing(standing));
    advice.extend(clients_without_table(standing));
    advice.extend(clients_behind(standing));
    advice.extend(unfinished(standing));
    advice.extend(droppable(standing));
    advice.extend(frozen(standing));
    if advice.is_empty() {
        advice.push("all is well, there is nothing to do".to_owned());
    }
    advice
}

fn not_active(standing: &Standing<'_>) -> Vec<String> {
    let idle = standing.tables.iter().filter(|table| !table.state.eq_ignore_ascii_case(ACTIVE));
    idle.map(|table| format!("{} is {} and cannot be used yet", table.name, table.state)).collect()
}

fn missing(standing: &Standing<'_>) -> Vec<String> {
    let (this, there) = (Month::of(standing.now), standing.months());
    let needed = match standing.rotation {
        true => vec![this.previous(), this, this.next()],
        false if there.is_empty() => vec![this],
        false => Vec::new(),
    };
    let missing = needed.into_iter().filter(|month| !there.contains(month));
    missing.map(|month| format!("{month} has no table: `kalends tables ensure` makes it")).collect()
}

/// Clients whose channels are gone.
fn clients_without_table(standing: &Standing<'_>) -> Vec<String> {
    let there = standing.months();
    let lost = standing.clients.on.iter().filter(|(month, _)| !there.contains(month));
    let say = |(month, count): (&Month, &u64)| {
        format!(
            "{} on {month}, which has no table any more: they get a new id when they connect; \
             `kalends users drop-stale --since {month}` drops those that stay away",
            are(*count)
        )
    };
    lost.map(say).collect()
}

fn clients_behind(standing: &Standing<'_>) -> Vec<String> {
    let (this, there) = (Month::of(standing.now), standing.months());
    let used = if standing.rotation { Some(this) } else { there.last().copied() };
    let old = standing.old();
    let behind = standing
        .clients
        .on
        .iter()
        .filter(|(month, _)| used.is_some_and(|used| **month < used) && there.contains(month));
    let say = |(month, count): (&Month, &u64)| match old.contains(month) {
        true => format!(
            "{} still on {month} and did not connect since: `kalends users drop-stale --months 2` \
             drops them, then `kalends tables drop-old` the table",
            are(*count)
        ),
        false => format!("{} still on {month}: they move when they connect", are(*count)),
    };
    behind.map(say).collect()
}

fn unfinished(standing: &Standing<'_>) -> Vec<String> {
    let say = |(month, count): (&Month, &u64)| {
        let moves = if *count == 1 { "1 client has" } else { &format!("{count} clients have") };
        format!("{moves} an unfinished move from {month}: it goes on when they connect")
    };
    standing.clients.moving_from.iter().map(say).collect()
}

fn droppable(standing: &Standing<'_>) -> Option<String> {
    let months: Vec<_> = standing.droppable().iter().map(Month::to_string).collect();
    let say = || {
        format!("nobody is on {} any more: `kalends tables drop-old` drops it", months.join(", "))
    };
    (!months.is_empty()).then(say)
}

fn frozen(standing: &Standing<'_>) -> Option<String> {
    let newest = standing.months().last().copied()?;
    (!standing.rotation).then(|| format!("rotation is off: {newest} stays in use"))
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

    use storage::upkeep::Capacity;

    use super::*;

    /// In 2026_11.
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

    fn say(rotation: bool, tables: &[TableStatus], on: &[(&str, u64)]) -> Vec<String> {
        let clients = Clients { on: counts(on), ..Clients::default() };
        advice(&Standing { now: NOW, rotation, tables, clients: &clients })
    }

    #[test]
    fn where_all_is_well_there_is_nothing_to_do() {
        let tables = tables(&["2026_10", "2026_11", "2026_12"]);
        assert_eq!(say(true, &tables, &[("2026_11", 9)]), ["all is well, there is nothing to do"]);
    }

    #[test]
    fn clients_behind_are_told_by_month_with_what_becomes_of_them() {
        let tables = tables(&["2026_08", "2026_09", "2026_10", "2026_11", "2026_12"]);
        let said = say(true, &tables, &[("2026_09", 3), ("2026_10", 1), ("2026_11", 9)]);
        assert_eq!(
            said,
            [
                "3 clients are still on 2026_09 and did not connect since: `kalends users drop-stale \
                 --months 2` drops them, then `kalends tables drop-old` the table",
                "1 client is still on 2026_10: they move when they connect",
                "nobody is on 2026_08 any more: `kalends tables drop-old` drops it",
            ]
        );
    }

    #[test]
    fn clients_of_a_table_that_is_gone_are_told() {
        let tables = tables(&["2026_10", "2026_11", "2026_12"]);
        let said = say(true, &tables, &[("2026_05", 2)]);
        assert!(said[0].starts_with("2 clients are on 2026_05, which has no table"), "{said:?}");
        assert_eq!(said.len(), 1);
    }

    #[test]
    fn missing_tables_and_those_in_the_making_are_told() {
        let mut tables = tables(&["2026_11", "2026_12"]);
        tables[2].state = "CREATING".into();
        let said = say(true, &tables, &[]);
        assert_eq!(
            said,
            [
                "Messages(2026_12) is CREATING and cannot be used yet",
                "2026_10 has no table: `kalends tables ensure` makes it",
            ]
        );
    }

    #[test]
    fn unfinished_moves_keep_their_table() {
        let tables = tables(&["2026_09", "2026_10", "2026_11", "2026_12"]);
        let clients = Clients { moving_from: counts(&[("2026_09", 1)]), ..Clients::default() };
        let standing = Standing { now: NOW, rotation: true, tables: &tables, clients: &clients };
        assert_eq!(standing.droppable(), []);
        let expected = "1 client has an unfinished move from 2026_09: it goes on when they connect";
        assert_eq!(advice(&standing), [expected]);
    }

    #[test]
    fn a_frozen_table_is_told_and_nothing_is_old() {
        let tables = tables(&["2026_03", "2026_05"]);
        let said = say(false, &tables, &[("2026_03", 2), ("2026_05", 2)]);
        assert_eq!(
            said,
            [
                "2 clients are still on 2026_03: they move when they connect",
                "rotation is off: 2026_05 stays in use",
            ]
        );
    }
}
