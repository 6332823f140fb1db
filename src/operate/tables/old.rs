//! Tables that are no longer needed, and those that agents are still on.
//!
//! A table that agents are still on is kept unless `--force` is given. Its messages would be lost,
//! and its agents would get a new id and subscribe anew. `users drop-inactive` drops absent agents
//! first.

use state_machine::Month;

use super::census::agents_are;
use crate::command::context::months_before;
use crate::command::{Job, JobError};
use crate::system::printable;

/// What `--force` does to the agents of a table.
const FATE: &str = "they get a new id when they connect, and subscribe anew";

/// The months whose tables are dropped: those before the kept ones, but never the newest.
pub fn old_months(months: &[Month], this: Month, keep: u32) -> Vec<Month> {
    let (first_kept, newest) = (months_before(this, keep), months.iter().max());
    let is_old = |month: &&Month| **month < first_kept && Some(*month) != newest;
    months.iter().filter(is_old).copied().collect()
}

pub async fn drop_month(month: Month, count: u64, job: &Job) -> Result<(), JobError> {
    let was_there = job.step(|| job.context.store.drop_month(month)).await?;
    job.note(match was_there {
        true => format!("dropped {}", with(month, count)),
        false => format!("{month} was gone already"),
    })
    .await
}

pub fn with(month: Month, count: u64) -> String {
    match count {
        0 => format!("{month}, which no agent is on"),
        _ => format!("{month} with {} on it: {FATE}", printable::count(count, "agent")),
    }
}

pub fn kept(month: Month, count: u64) -> String {
    let are = agents_are(count);
    format!(
        "kept {month}: {are} still on it; `kalends users drop-inactive` drops agents that stay away, \
         --force drops the table all the same ({FATE})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn months(texts: &[&str]) -> Vec<Month> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn months_before_the_kept_ones_are_old() {
        let there = months(&["2025_12", "2026_09", "2026_10", "2026_11", "2026_12"]);
        let this = there[3];
        assert_eq!(old_months(&there, this, 1), months(&["2025_12", "2026_09"]));
        assert_eq!(old_months(&there, this, 2), months(&["2025_12"]));
        assert_eq!(old_months(&there, this, 11), months(&[]));
        assert_eq!(old_months(&there, this, 10), months(&["2025_12"]));
    }

    #[test]
    fn the_change_of_year_is_an_ordinary_month() {
        let there = months(&["2026_11", "2026_12", "2027_01"]);
        assert_eq!(old_months(&there, there[2], 1), months(&["2026_11"]));
    }

    #[test]
    fn the_newest_table_is_kept_at_any_age() {
        let there = months(&["2024_01", "2024_02"]);
        assert_eq!(old_months(&there, "2026_11".parse().unwrap(), 1), months(&["2024_01"]));
        assert_eq!(old_months(&there[..1], "2026_11".parse().unwrap(), 1), months(&[]));
        assert_eq!(old_months(&[], "2026_11".parse().unwrap(), 1), months(&[]));
    }
}
