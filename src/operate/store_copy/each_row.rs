//! A reading of all rows of a table.

use storage::StoreAdmin;
use storage::copied_rows::{CopiedPage, CopiedRow};
use storage::maintenance::Table;

use crate::command::{Job, JobError};
use crate::operate::tables::table_text::table_text;

/// Passes each row of a table to `take`.
///
/// Fails if the store counts more rows than the reading has seen: two stores would be equal without them, and a sequence
/// that is passed over would be made anew. DynamoDB may delete expired rows between the two.
pub async fn each_row<R>(
    job: &Job<R>,
    doing: &str,
    (store, table): (&dyn StoreAdmin, Table),
    mut take: impl FnMut(CopiedRow),
) -> Result<(), JobError> {
    let what = format!("{doing} {}", table_text(table));
    let of = items(job, store, table).await?;
    let (mut seen, mut after) = (0, None);
    loop {
        job.progress(&what, seen, of);
        let page: CopiedPage = job.step(|| store.read_rows(table, after.clone())).await?;
        seen += page.seen();
        page.rows.into_iter().for_each(&mut take);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let counted = job.step(|| store.count_rows(table)).await?;
    match counted > seen {
        true => Err(JobError::Refused(format!(
            "{what} has found {seen} rows, and the store has {counted}: this is a bug of kalends, please report it"
        ))),
        false => Ok(()),
    }
}

/// About how many rows a table has.
pub async fn items<R>(
    job: &Job<R>,
    store: &dyn StoreAdmin,
    table: Table,
) -> Result<Option<u64>, JobError> {
    let tables = job.step(|| store.tables()).await?;
    Ok(tables.iter().find(|status| status.table == table).map(|status| status.items))
}
