//! A reading of all rows of a table.

use storage::StoreAdmin;
use storage::maintenance::Table;
use storage::rows::{Row, RowPage};

use super::{JobError, Report};
use crate::operate::admin::print::table_text;

/// Passes each row of a table to `take`.
///
/// Fails if the store counts more rows than the reading has seen: two stores would be equal without them, and a sequence
/// that is passed over would be made anew. DynamoDB may delete expired rows between the two.
pub(super) async fn each_row(
    report: &Report,
    doing: &str,
    (store, table): (&dyn StoreAdmin, Table),
    mut take: impl FnMut(Row),
) -> Result<(), JobError> {
    let what = format!("{doing} {}", table_text(table));
    let of = items(report, store, table).await?;
    let (mut seen, mut after) = (0, None);
    loop {
        report.progress(&what, seen, of);
        let page: RowPage = report.step(|| store.read_rows(table, after.clone())).await?;
        seen += page.seen();
        page.rows.into_iter().for_each(&mut take);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let counted = report.step(|| store.count_rows(table)).await?;
    match counted > seen {
        true => Err(JobError::Refused(format!(
            "{what} has found {seen} rows, and the store has {counted}: this is a bug of kalends, please report it"
        ))),
        false => Ok(()),
    }
}

/// About how many rows a table has.
pub(super) async fn items(
    report: &Report,
    store: &dyn StoreAdmin,
    table: Table,
) -> Result<Option<u64>, JobError> {
    let tables = report.step(|| store.tables()).await?;
    Ok(tables.iter().find(|status| status.table == table).map(|status| status.items))
}
