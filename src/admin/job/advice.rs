//! What `tables status` says there is to do, in plain sentences.

use std::collections::BTreeSet;

use state_machine::{Month, Time};
use storage::maintenance::{Table, TableStatus};

use super::census::Clients;
use super::drop_old::old_months;
use crate::admin::job_context::months_before;
use crate::admin::request::INACTIVE_MONTHS_MIN;
use crate::server::maintenance;

/// The store's word for a table that can be used.
const ACTIVE: &str = "active";

/// Months before this one whose tables are in ordinary use.
const KEPT: u32 = 1;

/// How things stand.
pub(super) struct Standing<'a> {
    pub(super) now: Time,
    pub(super) rotation: bool,
    pub(super) makes_tables: bool,
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

/// What there is to do, what will come right by itself, or that all is well.
pub(super) fn advice(standing: &Standing<'_>) -> Vec<String> {
    let mut advice = Vec::new();
    advice.extend(not_active(standing));
    advice.extend(ahead(standing));
    advice.extend(missing(standing));
    advice.extend(unreadable(standing));
    advice.extend(clients_without_table(standing));
    advice.extend(clients_behind(standing));
    advice.extend(unfinished(standing));
    advice.extend(droppable(standing));
    advice.extend(forgotten(standing));
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

/// Next month's table may be there long before; clients come to be on a month when it has begun,
/// but with rotation off when they are moved to the newest table.
fn ahead(standing: &Standing<'_>) -> Option<String> {
    let this = standing.this_month();
    let latest = if standing.rotation { this } else { this.next() };
    let tables = standing.months().into_iter().filter(|month| *month > this.next());
    let clients = standing.clients.on.keys().copied().filter(|month| *month > latest);
    let months: BTreeSet<_> = tables.chain(clients).collect();
    let say = || {
        format!(
            "tables or clients are on {}, and it is {this} by the clock here: is a clock wrong?",
            list(months.iter())
        )
    };
    (!months.is_empty()).then(say)
}

fn missing(standing: &Standing<'_>) -> Vec<String> {
    let there = standing.months();
    let mut needed = maintenance::needed_months(&there, standing.now, standing.rotation);
    if standing.rotation && !standing.makes_tables {
        // A server that makes tables makes this one in time.
        needed.insert(standing.this_month().next());
    }
    let missing = needed.into_iter().filter(|month| !there.contains(month));
    let by_itself = if standing.makes_tables { ", and so does a running server" } else { "" };
    let say = |month| format!("{month} has no table: `kalends tables create` makes it{by_itself}");
    missing.map(say).collect()
}

/// Records of another installation, most likely.
fn unreadable(standing: &Standing<'_>) -> Option<String> {
    let count = standing.clients.unreadable;
    let say = || {
        format!(
            "{count} records name a month that is no message table here and are not served: is \
             dynamodb_message_prefix right?"
        )
    };
    (count > 0).then(say)
}

/// Clients whose channels are gone.
fn clients_without_table(standing: &Standing<'_>) -> Vec<String> {
    let there = standing.months();
    let last = months_before(standing.this_month(), INACTIVE_MONTHS_MIN);
    let lost = standing.clients.on.iter().filter(|(month, _)| !there.contains(month));
    let say = |(month, count): (&Month, &u64)| {
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
    lost.map(say).collect()
}

fn clients_behind(standing: &Standing<'_>) -> Vec<String> {
    let (this, there) = (standing.this_month(), standing.months());
    let used = if standing.rotation { Some(this) } else { there.last().copied() };
    let old = standing.old();
    let behind = standing
        .clients
        .on
        .iter()
        .filter(|(month, _)| used.is_some_and(|used| **month < used) && there.contains(month));
    let say = |(month, count): (&Month, &u64)| match old.contains(month) {
        true => format!(
            "{} still on {month}: they move when they connect; `kalends users drop-inactive` drops \
             those that stay away, then `kalends tables drop-old` drops the table",
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
    let months = standing.droppable();
    let say = || {
        format!("nobody is on {} any more: `kalends tables drop-old` drops it", list(months.iter()))
    };
    (!months.is_empty()).then(say)
}

/// With rotation off nothing is dropped for its age, nor what was left after a copy.
fn forgotten(standing: &Standing<'_>) -> Vec<String> {
    let mut months = standing.months();
    months.pop();
    months.retain(|month| !standing.rotation && standing.clients.naming(*month) == 0);
    let say = |month| {
        format!("nobody is on {month} any more: `kalends tables drop {month} --yes` drops it")
    };
    months.into_iter().map(say).collect()
}

fn frozen(standing: &Standing<'_>) -> Option<String> {
    let newest = standing.months().last().copied()?;
    (!standing.rotation).then(|| format!("rotation is off: {newest} stays in use"))
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
        advice(&standing(rotation, tables, &clients))
    }

    fn standing<'a>(
        rotation: bool,
        tables: &'a [TableStatus],
        clients: &'a Clients,
    ) -> Standing<'a> {
        Standing { now: NOW, rotation, makes_tables: true, tables, clients }
    }

    #[test]
    fn where_all_is_well_there_is_nothing_to_do() {
        let tables = tables(&["2026_10", "2026_11", "2026_12"]);
        assert_eq!(say(true, &tables, &[("2026_11", 9)]), ["all is well, there is nothing to do"]);
    }

    #[test]
    fn records_that_no_server_can_read_are_told_with_where_to_look() {
        let clients = Clients { unreadable: 2, ..Clients::default() };
        let said = advice(&standing(true, &tables(&["2026_10", "2026_11"]), &clients));
        assert!(said.len() == 1 && said[0].starts_with("2 records name a month"), "{said:?}");
    }

    #[test]
    fn clients_behind_are_told_by_month_with_what_becomes_of_them() {
        let tables = tables(&["2026_08", "2026_09", "2026_10", "2026_11", "2026_12"]);
        let said = say(true, &tables, &[("2026_09", 3), ("2026_10", 1), ("2026_11", 9)]);
        assert_eq!(
            said,
            [
                "3 clients are still on 2026_09: they move when they connect; `kalends users \
                 drop-inactive` drops those that stay away, then `kalends tables drop-old` drops the table",
                "1 client is still on 2026_10: they move when they connect",
                "nobody is on 2026_08 any more: `kalends tables drop-old` drops it",
            ]
        );
    }

    #[test]
    fn clients_of_a_table_that_is_gone_are_told() {
        let tables = tables(&["2026_10", "2026_11", "2026_12"]);
        let said = say(true, &tables, &[("2026_05", 2)]);
        let expected = "2 clients are on 2026_05, which has no table: they get a new id when they \
                        connect; `kalends users drop-inactive --since 2026_05` drops those last seen \
                        from 2026_05 to 2026_09";
        assert_eq!(said, [expected]);
    }

    #[test]
    fn a_search_is_advised_only_from_a_month_that_it_can_begin_with() {
        let tables = tables(&["2026_11", "2026_12"]);
        let said = say(true, &tables, &[("2026_10", 1)]);
        assert_eq!(said.len(), 2);
        assert_eq!(
            said[1],
            "1 client is on 2026_10, which has no table: they get a new id when they connect"
        );
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
                "2026_10 has no table: `kalends tables create` makes it, and so does a running server",
            ]
        );
    }

    #[test]
    fn next_months_table_is_missed_on_the_day_before_or_at_once_where_servers_make_none() {
        let (tables, clients) = (tables(&["2026_10", "2026_11"]), Clients::default());
        let day_before = Time(20_787 * 24 * 60 * 60 * 1000);
        let said = |now, makes_tables| {
            advice(&Standing { now, makes_tables, ..standing(true, &tables, &clients) })
        };
        let well = ["all is well, there is nothing to do"];
        assert_eq!(said(NOW, true), well);
        assert_eq!(said(day_before - Span(1), true), well);
        let by_hand = "2026_12 has no table: `kalends tables create` makes it";
        assert_eq!(said(day_before, true), [format!("{by_hand}, and so does a running server")]);
        assert_eq!(said(NOW, false), [by_hand]);
    }

    #[test]
    fn months_that_are_yet_to_come_make_a_clock_doubtful() {
        let tables = tables(&["2026_10", "2026_11", "2026_12", "2027_02"]);
        let said = say(true, &tables, &[("2026_12", 1), ("2027_03", 1)]);
        assert_eq!(
            said[0],
            "tables or clients are on 2026_12, 2027_02, 2027_03, and it is 2026_11 by the clock \
             here: is a clock wrong?"
        );
        assert!(!said[1].contains("--since"), "{said:?}");
        let said = say(false, &tables[..4], &[("2026_10", 1), ("2026_11", 1), ("2026_12", 1)]);
        assert!(!said.iter().any(|line| line.contains("clock")), "{said:?}");
    }

    #[test]
    fn unfinished_moves_keep_their_table() {
        let tables = tables(&["2026_09", "2026_10", "2026_11", "2026_12"]);
        let clients = Clients { moving_from: counts(&[("2026_09", 1)]), ..Clients::default() };
        let standing = standing(true, &tables, &clients);
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

    #[test]
    fn with_rotation_off_a_table_that_was_left_after_a_copy_is_told() {
        let said = say(false, &tables(&["2026_03", "2026_11"]), &[("2026_11", 2)]);
        assert_eq!(
            said,
            [
                "nobody is on 2026_03 any more: `kalends tables drop 2026_03 --yes` drops it",
                "rotation is off: 2026_11 stays in use",
            ]
        );
        let said = say(false, &tables(&["2026_11"]), &[]);
        assert_eq!(said, ["rotation is off: 2026_11 stays in use"], "the newest is in use");
    }
}
