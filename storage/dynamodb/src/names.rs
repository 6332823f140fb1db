//! Names of tables, and how a router record names a month.

use state_machine::Month;
use storage::maintenance::Table;

/// The table in the error of a request on no single table.
pub(crate) const ALL_TABLES: &str = "*";

/// The names of all tables (docs/sources.md#message-table-rotation).
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
    message_prefix: String,
    pub(crate) router: String,
    /// The table of SimplePush notifications.
    pub(crate) legacy: String,
    pub(crate) sequences: String,
    pub(crate) feeds: String,
}

impl Names {
    pub(crate) fn new(prefix: &str, message_prefix: &str) -> Self {
        Self {
            router: format!("{prefix}router"),
            legacy: format!("{prefix}storage"),
            sequences: format!("{prefix}sequences"),
            feeds: format!("{prefix}feeds"),
            message_prefix: message_prefix.to_owned(),
            prefix: prefix.to_owned(),
        }
    }

    pub(crate) fn table(&self, table: Table) -> String {
        match table {
            Table::Router => self.router.clone(),
            Table::Notifications => self.legacy.clone(),
            Table::Sequences => self.sequences.clone(),
            Table::Feeds => self.feeds.clone(),
            Table::Messages(month) => self.messages(month),
        }
    }

    pub(crate) fn messages(&self, month: Month) -> String {
        format!("{}{}_{month}", self.prefix, self.message_prefix)
    }

    pub(crate) fn month_of_table(&self, table: &str) -> Option<Month> {
        self.month_of_value(table.strip_prefix(&self.prefix)?)
    }

    /// The form of a month in a router record: the name of its table without the prefix of all
    /// tables.
    pub(crate) fn value(&self, month: Month) -> String {
        format!("{}_{month}", self.message_prefix)
    }

    /// The month of a value in a router record: a table's name with or without the prefix of all
    /// tables, or the month alone.
    pub(crate) fn month_of_record(&self, value: &str) -> Option<Month> {
        let bare = || value.parse().ok();
        self.month_of_value(value).or_else(|| self.month_of_table(value)).or_else(bare)
    }

    /// All forms of a month in a router record.
    pub(crate) fn record_forms(&self, month: Month) -> [String; 3] {
        [self.value(month), self.messages(month), month.to_string()]
    }

    fn month_of_value(&self, value: &str) -> Option<Month> {
        value.strip_prefix(&self.message_prefix)?.strip_prefix('_')?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("test-", "message")
    }

    fn november() -> Month {
        "2026_11".parse().unwrap()
    }

    #[test]
    fn every_table_has_the_prefix_and_a_record_leaves_it_out() {
        let names = names();
        assert_eq!((&*names.router, &*names.legacy), ("test-router", "test-storage"));
        assert_eq!((&*names.sequences, &*names.feeds), ("test-sequences", "test-feeds"));
        assert_eq!(names.messages(november()), "test-message_2026_11");
        assert_eq!(names.value(november()), "message_2026_11");
    }

    #[test]
    fn a_record_may_name_its_month_in_three_ways() {
        for value in ["message_2026_11", "test-message_2026_11", "2026_11"] {
            assert_eq!(names().month_of_record(value), Some(november()), "{value}");
        }
        for value in ["", "messages_2026_11", "message_2026", "message2026_11", "test-2026_11"] {
            assert_eq!(names().month_of_record(value), None, "{value}");
        }
    }

    #[test]
    fn every_form_of_a_month_is_read_again() {
        for form in names().record_forms(november()) {
            assert_eq!(names().month_of_record(&form), Some(november()), "{form}");
        }
    }

    #[test]
    fn only_a_table_with_both_prefixes_is_a_months() {
        assert_eq!(names().month_of_table("test-message_2026_11"), Some(november()));
        for table in ["message_2026_11", "test-router", "test-message_2026_13", "test-2026_11"] {
            assert_eq!(names().month_of_table(table), None, "{table}");
        }
    }
}
