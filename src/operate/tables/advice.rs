//! The advice of `tables status`, in sentences.

use std::collections::BTreeSet;
use std::time::Duration;

use indicatif::HumanDuration;
use state_machine::{Month, Time};
use storage::maintenance::{RecordsByMonth, TableStatus};

use super::census::{agents_are, naming};
use super::old::old_months;
use crate::command::context::months_before;
use crate::operate::users::{self, INACTIVE_MONTHS};
use crate::settings::store::message_tables::missing_months;
use crate::system::printable;

/// The state of a table that can be used.
const ACTIVE: &str = "active";

/// Months before the present one whose tables are in ordinary use.
const KEPT: u32 = 1;

/// What the advice is drawn from.
pub struct StoreState<'a> {
    pub now: Time,
    /// The month of all messages, if rotation is off.
    pub frozen_month: Option<Month>,
    pub makes_tables: bool,
    pub tables: &'a [TableStatus],
    pub agents: &'a RecordsByMonth,
}

impl StoreState<'_> {
    /// What to do, what will be done by itself, or that all is well.
    pub fn advice(&self) -> Vec<String> {
        let advice = [self.on_tables(), self.on_agents(), self.on_unused_tables()].concat();
        match advice.is_empty() {
            true => vec!["all is well, there is nothing to do".to_owned()],
            false => advice,
        }
    }

    /// The months that `tables drop-old` drops.
    pub fn droppable(&self) -> Vec<Month> {
        let mut old = self.old();
        old.retain(|month| naming(self.agents, *month) == 0);
        old
    }

    fn old(&self) -> Vec<Month> {
        match self.frozen_month {
            None => old_months(&self.months(), self.this_month(), KEPT),
            Some(_) => Vec::new(),
        }
    }

    fn this_month(&self) -> Month {
        Month::of(self.now)
    }

    fn months(&self) -> Vec<Month> {
        self.tables.iter().filter_map(|table| table.table.month()).collect()
    }

    fn on_tables(&self) -> Vec<String> {
        let (this, there) = (self.this_month(), self.months());
        let mut advice = Vec::new();
        for TableStatus { name, state, .. } in self.tables {
            if !state.eq_ignore_ascii_case(ACTIVE) {
                advice.push(format!("{name} is {state} and cannot be used yet"));
            }
        }
        // Next month's table may exist long before. Agents are on a month once it has begun; with rotation off, an
        // earlier version may have moved them to the newest table.
        let latest = if self.frozen_month.is_none() { this } else { this.next() };
        let tables = there.iter().filter(|month| **month > this.next());
        let agents = self.agents.curmonth.keys().filter(|month| **month > latest);
        let ahead: BTreeSet<_> = tables.chain(agents).collect();
        if !ahead.is_empty() {
            advice.push(format!(
                "tables or agents are on {}, and it is {this} by the clock here: is a clock wrong?",
                list(ahead)
            ));
        }
        let by_itself = if self.makes_tables { ", and so does a running server" } else { "" };
        for month in missing_months(&there, self.now, self.frozen_month, self.makes_tables) {
            advice
                .push(format!("{month} has no table: `kalends tables create` makes it{by_itself}"));
        }
        advice
    }

    fn on_agents(&self) -> Vec<String> {
        let (this, there, old) = (self.this_month(), self.months(), self.old());
        let RecordsByMonth { curmonth, oldmonth, unreadable, .. } = self.agents;
        let mut advice = self.on_records_without_agents();
        if *unreadable > 0 {
            // Records most likely of another installation.
            advice.push(format!(
                "records that name a month without a message table here and are not served: {unreadable}; is \
                 dynamodb_message_prefix right?"
            ));
        }
        let last = months_before(this, INACTIVE_MONTHS);
        for (month, count) in curmonth.iter().filter(|(month, _)| !there.contains(month)) {
            let are = agents_are(*count);
            let lost = format!(
                "{are} on {month}, which has no table: they get a new id when they connect"
            );
            advice.push(match *month <= last {
                true => format!(
                    "{lost}; `kalends users drop-inactive --since {month}` drops those last seen from \
                     {month} to {last}"
                ),
                false => lost,
            });
        }
        let used = self.frozen_month.unwrap_or(this);
        let is_behind = |month| month < used && there.contains(&month);
        for (month, count) in curmonth.iter().filter(|(month, _)| is_behind(**month)) {
            let are = agents_are(*count);
            let drop = match old.contains(month) {
                true => format!(
                    "; `kalends users drop-inactive` drops those that stay away for {INACTIVE_MONTHS} months, then \
                     `kalends tables drop-old` drops the table"
                ),
                false => String::new(),
            };
            advice.push(format!("{are} still on {month}: they move when they connect{drop}"));
        }
        for (month, count) in oldmonth {
            let have = if *count == 1 { "1 agent has" } else { &format!("{count} agents have") };
            advice.push(format!(
                "{have} an unfinished move from {month}: it continues when they connect"
            ));
        }
        advice
    }

    fn on_records_without_agents(&self) -> Vec<String> {
        let RecordsByMonth { other_types, dropped, latest, .. } = *self.agents;
        let mut advice = Vec::new();
        if let Some(latest) = latest.filter(|at| *at > users::latest(self.now)) {
            let ahead = Duration::from_millis(latest.since(self.now).0);
            advice.push(format!(
                "a record is of a connection {} in the future: the clock of a server was ahead, or this one is behind; \
                 correct it, then `kalends users repair` sets such records to now",
                HumanDuration(ahead)
            ));
        }
        if other_types > 0 {
            advice.push(format!(
                "records with a router type or router data that is not served: {other_types}; their agents get \
                 a new id when they connect; `kalends users drop-inactive` drops those that stay away"
            ));
        }
        if dropped > 0 {
            let users = printable::count(dropped, "user");
            advice.push(format!(
                "the drop of {users} was interrupted or is under way: repeat the command, or \
                 `kalends users drop-inactive` completes it in {INACTIVE_MONTHS} months"
            ));
        }
        advice
    }

    fn on_unused_tables(&self) -> Vec<String> {
        let droppable = self.droppable();
        let mut advice = Vec::new();
        if !droppable.is_empty() {
            advice.push(format!(
                "no agent is on {} any more: `kalends tables drop-old` drops it",
                list(&droppable)
            ));
        }
        if let Some(used) = self.frozen_month {
            // Tables left after a copy or made ahead, of which `tables drop-old` drops none.
            let is_unused = |month: &Month| *month != used && naming(self.agents, *month) == 0;
            for month in self.months().into_iter().filter(is_unused) {
                advice.push(format!(
                    "no agent is on {month}: `kalends tables drop {month} --yes` drops it"
                ));
            }
            advice.push(format!("rotation is off: {used} stays in use"));
        }
        advice
    }
}

fn list<'a>(months: impl IntoIterator<Item = &'a Month>) -> String {
    months.into_iter().map(Month::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use state_machine::Span;
    use storage::maintenance::{Capacity, Table};

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

    fn advise(tables: &[TableStatus], on: &[(&str, u64)]) -> Vec<String> {
        let agents = RecordsByMonth { curmonth: counts(on), ..RecordsByMonth::default() };
        state(tables, &agents).advice()
    }

    fn advise_frozen(used: &str, tables: &[TableStatus], on: &[(&str, u64)]) -> Vec<String> {
        let agents = RecordsByMonth { curmonth: counts(on), ..RecordsByMonth::default() };
        StoreState { frozen_month: Some(month(used)), ..state(tables, &agents) }.advice()
    }

    fn state<'a>(tables: &'a [TableStatus], agents: &'a RecordsByMonth) -> StoreState<'a> {
        StoreState { now: NOW, frozen_month: None, makes_tables: true, tables, agents }
    }

    #[test]
    fn a_complete_store_needs_nothing() {
        let tables = tables(&["2026_10", "2026_11", "2026_12"]);
        assert_eq!(advise(&tables, &[("2026_11", 9)]), ["all is well, there is nothing to do"]);
    }

    #[test]
    fn unreadable_records_are_reported_with_the_setting_to_check() {
        let agents = RecordsByMonth { unreadable: 2, ..RecordsByMonth::default() };
        let lines = state(&tables(&["2026_10", "2026_11"]), &agents).advice();
        assert!(
            lines.len() == 1 && lines[0].starts_with("records that name a month without"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_record_of_the_future_is_reported_with_its_repair() {
        let tables = tables(&["2026_10", "2026_11"]);
        let advise = |ahead| {
            let agents = RecordsByMonth { latest: Some(NOW + ahead), ..RecordsByMonth::default() };
            state(&tables, &agents).advice()
        };
        assert_eq!(advise(Span::from_secs(60)), ["all is well, there is nothing to do"]);
        let lines = advise(Span::from_secs(3 * 3600));
        assert!(
            lines[0].starts_with("a record is of a connection 3 hours in the future"),
            "{lines:?}"
        );
        assert!(lines[0].contains("`kalends users repair`"), "{lines:?}");
    }

    #[test]
    fn records_that_count_as_none_are_reported() {
        let agents = RecordsByMonth { other_types: 3, dropped: 2, ..RecordsByMonth::default() };
        let lines = state(&tables(&["2026_10", "2026_11"]), &agents).advice();
        assert!(
            lines[0]
                .starts_with("records with a router type or router data that is not served: 3; "),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("the drop of 2 users was interrupted"), "{lines:?}");
    }

    #[test]
    fn agents_on_past_months_are_reported_by_month_with_what_moves_them() {
        let tables = tables(&["2026_08", "2026_09", "2026_10", "2026_11", "2026_12"]);
        let lines = advise(&tables, &[("2026_09", 3), ("2026_10", 1), ("2026_11", 9)]);
        assert_eq!(
            lines,
            [
                "3 agents are still on 2026_09: they move when they connect; `kalends users \
                 drop-inactive` drops those that stay away for 12 months, then `kalends tables drop-old` drops the \
                 table",
                "1 agent is still on 2026_10: they move when they connect",
                "no agent is on 2026_08 any more: `kalends tables drop-old` drops it",
            ]
        );
    }

    #[test]
    fn agents_of_a_dropped_table_are_reported() {
        let tables = tables(&["2026_10", "2026_11", "2026_12"]);
        let lines = advise(&tables, &[("2025_05", 2)]);
        let expected = "2 agents are on 2025_05, which has no table: they get a new id when they \
                        connect; `kalends users drop-inactive --since 2025_05` drops those last seen \
                        from 2025_05 to 2025_11";
        assert_eq!(lines, [expected]);
    }

    #[test]
    fn a_search_is_advised_only_from_a_month_that_it_accepts() {
        let tables = tables(&["2026_11", "2026_12"]);
        let lines = advise(&tables, &[("2026_10", 1)]);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[1],
            "1 agent is on 2026_10, which has no table: they get a new id when they connect"
        );
    }

    #[test]
    fn missing_tables_and_those_being_created_are_reported() {
        let mut tables = tables(&["2026_11", "2026_12"]);
        tables[2].state = "CREATING".into();
        let lines = advise(&tables, &[]);
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
        let (tables, agents) = (tables(&["2026_10", "2026_11"]), RecordsByMonth::default());
        let day_before = Time(20_787 * 24 * 60 * 60 * 1000);
        let advise_at = |now, makes_tables| {
            StoreState { now, makes_tables, ..state(&tables, &agents) }.advice()
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
        let lines = advise(&tables, &[("2026_12", 1), ("2027_03", 1)]);
        assert_eq!(
            lines[0],
            "tables or agents are on 2026_12, 2027_02, 2027_03, and it is 2026_11 by the clock \
             here: is a clock wrong?"
        );
        assert!(!lines[1].contains("--since"), "{lines:?}");
        let lines = advise_frozen(
            "2026_12",
            &tables[..4],
            &[("2026_10", 1), ("2026_11", 1), ("2026_12", 1)],
        );
        assert!(!lines.iter().any(|line| line.contains("clock")), "{lines:?}");
    }

    #[test]
    fn unfinished_moves_keep_their_table() {
        let tables = tables(&["2026_09", "2026_10", "2026_11", "2026_12"]);
        let agents =
            RecordsByMonth { oldmonth: counts(&[("2026_09", 1)]), ..RecordsByMonth::default() };
        let state = state(&tables, &agents);
        assert_eq!(state.droppable(), []);
        let expected =
            "1 agent has an unfinished move from 2026_09: it continues when they connect";
        assert_eq!(state.advice(), [expected]);
    }

    #[test]
    fn with_rotation_off_the_newest_table_is_reported_and_none_is_old() {
        let tables = tables(&["2026_03", "2026_05"]);
        let lines = advise_frozen("2026_05", &tables, &[("2026_03", 2), ("2026_05", 2)]);
        assert_eq!(
            lines,
            [
                "2 agents are still on 2026_03: they move when they connect",
                "rotation is off: 2026_05 stays in use",
            ]
        );
    }

    #[test]
    fn with_rotation_off_a_table_left_after_a_copy_is_reported() {
        let lines = advise_frozen(
            "2026_11",
            &tables(&["2026_03", "2026_11", "2026_12"]),
            &[("2026_11", 2)],
        );
        assert_eq!(
            lines,
            [
                "no agent is on 2026_03: `kalends tables drop 2026_03 --yes` drops it",
                "no agent is on 2026_12: `kalends tables drop 2026_12 --yes` drops it",
                "rotation is off: 2026_11 stays in use",
            ]
        );
        let lines = advise_frozen("2026_11", &tables(&["2026_11"]), &[]);
        assert_eq!(lines, ["rotation is off: 2026_11 stays in use"]);
    }
}
