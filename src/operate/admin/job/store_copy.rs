//! `store copy`: copies all rows of a store to the other engine, and compares both (docs/decisions/0043-copies-of-a-whole-store.md).
//!
//! The target is marked from before the first row until all rows are equal. After an interruption the job begins anew,
//! and writes the same rows again.

use std::collections::BTreeSet;
use std::sync::Arc;

use state_machine::{Message, Span, Time};
use storage::StoreAdmin;
use storage::maintenance::Table;
use storage::rows::Row;

use super::each_row::{each_row, items};
use super::row_digest::RowDigest;
use super::{JobError, Report, store_repair};
use crate::operate::admin::output::{CopiedTable, Output};
use crate::operate::admin::store_command::StoreCopy;
use crate::settings::StoreKind;
use crate::settings::keys::Keys;
use crate::settings::store::copy_marker;
use crate::settings::store::copy_marker::CopyMarkerError;
use crate::settings::store::key_fingerprints;
use crate::settings::store::key_fingerprints::KeyFingerprintsError;

/// Messages that expire sooner are not compared: DynamoDB may delete them between the reads of both stores.
const EXPIRES_SOON: Span = Span::from_secs(60 * 60);

/// How far the time in a message id of this program may be from the time of its push.
const CLOCK_SKEW: Span = Span::from_secs(60 * 60);

pub(super) async fn run(copy: &StoreCopy, report: &Report) -> Result<(), JobError> {
    let source = report.context.copy_source.as_deref().expect("it was opened with the target");
    let job = CopyJob { copy, report, source, target: &*report.context.store };
    let keys =
        Keys::load(&copy.places.data_dir).map_err(|error| JobError::Refused(error.to_string()))?;
    job.check(&keys).await?;
    if !copy.verify_only {
        job.mark(Some(&copy.name_of(copy.from()))).await?;
        if copy.to == StoreKind::DynamoDb {
            key_fingerprints::add_or_refuse(job.target, &keys).await?;
        }
        job.repair_source().await?;
        let newest = job.copy_all().await?;
        job.keep_ids_above(newest).await?;
    }
    let tables = job.compare_all().await?;
    if !copy.verify_only {
        job.mark(None).await?;
    }
    report.emit(Output::Copied(tables)).await?;
    match copy.json {
        true => Ok(()),
        false => report.note("both stores have the same rows").await,
    }
}

struct CopyJob<'a> {
    copy: &'a StoreCopy,
    report: &'a Report,
    source: &'a dyn StoreAdmin,
    target: &'a dyn StoreAdmin,
}

impl CopyJob<'_> {
    /// Refuses what cannot be copied, before anything is changed.
    async fn check(&self, keys: &Keys) -> Result<(), JobError> {
        let (from, to) = (self.copy.from(), self.copy.to);
        for (kind, store) in [(from, self.source), (to, self.target)] {
            if kind == StoreKind::DynamoDb {
                key_fingerprints::compare(store, keys).await?;
            }
        }
        let dir = &self.copy.places.data_dir;
        if let Some(of) = copy_marker::read(from, dir, self.source).await? {
            return Err(JobError::Refused(format!("the source is an unfinished copy of {of}")));
        }
        if self.copy.verify_only {
            return Ok(());
        }
        let (source, target) = (self.copy.name_of(from), self.copy.name_of(to));
        match copy_marker::read(to, dir, self.target).await? {
            Some(begun) if begun == source => Ok(()),
            Some(begun) => Err(JobError::Refused(format!(
                "the target, {target}, is an unfinished copy of {begun}, and not of {source}"
            ))),
            None if self.is_empty().await? => Ok(()),
            None => Err(JobError::Refused(format!(
                "the target, {target}, is not empty and is no unfinished copy: {}",
                match to {
                    StoreKind::Embedded =>
                        "move router.db* and messages_*.db* away, or name another directory that has keys.toml",
                    StoreKind::DynamoDb =>
                        "name other tables with --dynamodb-table-prefix, or delete these",
                }
            ))),
        }
    }

    async fn mark(&self, source: Option<&str>) -> Result<(), JobError> {
        let dir = &self.copy.places.data_dir;
        Ok(copy_marker::set(self.copy.to, dir, self.target, source).await?)
    }

    /// Whether the target has no row of any kind.
    async fn is_empty(&self) -> Result<bool, JobError> {
        for table in self.tables(&[self.target]).await? {
            let mut after = None;
            loop {
                let page = self.report.step(|| self.target.read_rows(table, after.clone())).await?;
                if !page.rows.is_empty() || page.unreadable > 0 {
                    return Ok(false);
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// All tables of these stores. The records are first, because keys are compared in a store that has some.
    async fn tables(&self, stores: &[&dyn StoreAdmin]) -> Result<Vec<Table>, JobError> {
        let mut months = BTreeSet::new();
        for store in stores {
            months.extend(self.report.step(|| store.months()).await?);
        }
        Ok(Table::OF_NO_MONTH.into_iter().chain(months.into_iter().map(Table::Messages)).collect())
    }

    /// Restores what an earlier copy has lost: rows of receipts without a sequence are of no use.
    async fn repair_source(&self) -> Result<(), JobError> {
        let repaired = store_repair::repair_receipts(self.report, self.source).await?;
        for note in repaired.notes().into_iter().filter(|_| !self.copy.json) {
            self.report.note(format!("in the source: {note}")).await?;
        }
        Ok(())
    }

    /// Returns the time of the newest message id.
    async fn copy_all(&self) -> Result<Time, JobError> {
        let mut newest = Time(0);
        for table in self.tables(&[self.source]).await? {
            self.copy(table, &mut newest).await?;
        }
        Ok(newest)
    }

    async fn copy(&self, table: Table, newest: &mut Time) -> Result<(), JobError> {
        if let Table::Messages(month) = table {
            self.report.step(|| self.target.ensure_month(month)).await?;
        }
        let what = format!("copying {}", table_name(table));
        let of = items(self.report, self.source, table).await?;
        let (mut after, mut written, mut unreadable) = (None, 0, 0);
        loop {
            self.report.progress(&what, written, of);
            let page = self.report.step(|| self.source.read_rows(table, after.clone())).await?;
            unreadable += page.unreadable;
            let now = self.report.context.now();
            let mut rows = page.rows;
            rows.retain(|row| lives_at(row, now));
            *newest = rows.iter().filter_map(minted_at).fold(*newest, Time::max);
            if written == 0 && !rows.is_empty() {
                self.ensure(table).await?;
            }
            written += rows.len() as u64;
            let rows = Arc::new(rows);
            self.report.step(|| self.target.write_rows(table, rows.clone())).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if unreadable > 0 && !self.copy.json {
            let name = table_name(table);
            self.report
                .note(format!("left out {unreadable} rows of {name} that no server can read"))
                .await?;
        }
        Ok(())
    }

    /// Creates a table that is not there without rows.
    async fn ensure(&self, table: Table) -> Result<(), JobError> {
        self.report
            .step(|| match table {
                Table::Notifications => self.target.ensure_notifications(),
                Table::Sequences | Table::Feeds => self.target.ensure_feeds(),
                Table::Router | Table::Messages(_) => Box::pin(async { Ok(()) }),
            })
            .await
    }

    /// A server on the target makes no message id below the copied ones.
    async fn keep_ids_above(&self, newest: Time) -> Result<(), JobError> {
        let floor = self.report.step(|| self.source.id_floor()).await?.max(newest + Span(1));
        self.report.step(|| self.target.raise_id_floor(floor)).await
    }

    async fn compare_all(&self) -> Result<Vec<CopiedTable>, JobError> {
        let (mut same, mut different) = (Vec::new(), Vec::new());
        for table in self.tables(&[self.source, self.target]).await? {
            let lives_at = self.report.context.now() + EXPIRES_SOON;
            let there = self.digest("reading", (self.source, table), lives_at).await?;
            let copied = self.digest("verifying", (self.target, table), lives_at).await?;
            if there == copied {
                same.push(CopiedTable { table, rows: there.rows, sha256: there.to_hex() });
            } else {
                let name = table_name(table);
                different.push(format!("{name} ({} rows and {})", there.rows, copied.rows));
            }
        }
        match different.is_empty() {
            true => Ok(same),
            false => Err(JobError::Refused(format!(
                "the target differs from its source in {}: if a server has used one of them meanwhile, empty the target and \
                 copy again",
                different.join(", ")
            ))),
        }
    }

    async fn digest(
        &self,
        doing: &str,
        of: (&dyn StoreAdmin, Table),
        time: Time,
    ) -> Result<RowDigest, JobError> {
        let mut digest = RowDigest::default();
        let add = |row| {
            if lives_at(&row, time) {
                digest.add(&row);
            }
        };
        each_row(self.report, doing, of, add).await?;
        Ok(digest)
    }
}

fn lives_at(row: &Row, time: Time) -> bool {
    !matches!(row, Row::Message(_, message) if message.expires_at() <= time)
}

/// The time in the id of a message. An id of other software may have any, far from that of its push.
fn minted_at(row: &Row) -> Option<Time> {
    let Row::Message(_, Message { id, accepted_at, .. }) = row else { return None };
    id.minted_at().filter(|minted_at| *minted_at <= *accepted_at + CLOCK_SKEW)
}

fn table_name(table: Table) -> String {
    crate::operate::admin::print::table_text(table)
}

impl From<CopyMarkerError> for JobError {
    fn from(error: CopyMarkerError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<KeyFingerprintsError> for JobError {
    fn from(error: KeyFingerprintsError) -> Self {
        match error {
            KeyFingerprintsError::Store(error) => Self::Store(error),
            other => Self::Refused(other.to_string()),
        }
    }
}
