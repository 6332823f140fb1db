//! Names of tables, and how a router record names a month.

use state_machine::Month;

use super::options::DynamoOptions;

/// The names of all tables (seed 001, `autopush.db`; seed 002, "Message Table Rotation").
#[derive(Debug, Clone)]
pub(super) struct Names {
    prefix: String,
    message_prefix: String,
    router: String,
    legacy: String,
    sequences: String,
    feeds: String,
}

impl Names {
    pub(super) fn new(options: &DynamoOptions) -> Self {
        let prefix = options.table_prefix.clone();
        Self {
            router: format!("{prefix}router"),
            legacy: format!("{prefix}storage"),
            sequences: format!("{prefix}sequences"),
            feeds: format!("{prefix}feeds"),
            message_prefix: options.message_prefix.clone(),
            prefix,
        }
    }

    /// The router table.
    pub(super) fn router(&self) -> &str {
        &self.router
    }

    /// The table of SimplePush notifications.
    pub(super) fn legacy(&self) -> &str {
        &self.legacy
    }

    /// The table of the feeds' sequences.
    pub(super) fn sequences(&self) -> &str {
        &self.sequences
    }

    /// The table of the feeds' keys.
    pub(super) fn feeds(&self) -> &str {
        &self.feeds
    }

    /// The message table of a month.
    pub(super) fn messages(&self, month: Month) -> String {
        format!("{}{}_{month}", self.prefix, self.message_prefix)
    }

    /// The month whose message table has this name.
    pub(super) fn month_of_table(&self, table: &str) -> Option<Month> {
        self.month_of_value(table.strip_prefix(&self.prefix)?)
    }

    /// What a router record says for a month: the name of its table, without the prefix of all tables.
    pub(super) fn value(&self, month: Month) -> String {
        format!("{}_{month}", self.message_prefix)
    }

    /// The month of which a router record says this: a table's name with or without the prefix of
    /// all tables, or only the month.
    pub(super) fn month_of_record(&self, value: &str) -> Option<Month> {
        let bare = || value.parse().ok();
        self.month_of_value(value).or_else(|| self.month_of_table(value)).or_else(bare)
    }

    /// All that a router record may say for a month.
    pub(super) fn record_forms(&self, month: Month) -> [String; 3] {
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
        let table_prefix = "test-".to_owned();
        Names::new(&DynamoOptions { table_prefix, ..DynamoOptions::default() })
    }

    fn november() -> Month {
        "2026_11".parse().unwrap()
    }

    #[test]
    fn every_table_has_the_prefix_and_a_record_leaves_it_out() {
        let names = names();
        assert_eq!((names.router(), names.legacy()), ("test-router", "test-storage"));
        assert_eq!((names.sequences(), names.feeds()), ("test-sequences", "test-feeds"));
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
