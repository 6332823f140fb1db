//! The versions of the tables.

/// What makes a version of the tables from the one before. Nodes of that one go on, so that it only adds, and nothing that
/// they leave out is required. `{s}` stands for the schema and `{m}` for a month.
#[derive(Debug)]
pub struct Migration {
    /// Statements on the tables that are no month's.
    pub tables: &'static str,
    /// Statements on those of each month.
    pub month: &'static str,
    /// The oldest version whose programs can use these tables.
    pub oldest: u64,
}

/// The second version and those after it.
pub const MIGRATIONS: &[Migration] =
    &[Migration { tables: "", month: include_str!("month_2.sql"), oldest: 1 }];
