//! `store copy`: copies all rows of a store to the other engine, and compares both (docs/decisions/0043-copies-of-a-whole-store.md).
//!
//! The target is marked from before the first row until all rows are equal. After an interruption the job begins anew,
//! and writes the same rows again.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::Args;
use hyper::http::Extensions;
use serde::{Deserialize, Serialize};
use serde_json::json;

use state_machine::{Message, Span, Time};
use storage::StoreAdmin;
use storage::copied_rows::CopiedRow;
use storage::data_dir::has_databases;
use storage::maintenance::Table;

use super::each_row::{each_row, items};
use super::receipts::repair_receipts;
use super::row_digest::RowDigest;
use crate::command::backend;
use crate::command::text::columns;
use crate::command::{
    Backend, CommandError, Context, Job as AnyJob, JobError, Report, StoreCommand,
};
use crate::operate::exclusive::SERVERS_UNKNOWN;
use crate::operate::tables::table_text::{table_text, with_months};
use crate::settings::keys::{KEYS_FILE, Keys};
use crate::settings::store::copy_marker;
use crate::settings::store::copy_marker::CopyMarkerError;
use crate::settings::store::key_fingerprints;
use crate::settings::store::key_fingerprints::KeyFingerprintsError;
use crate::settings::value::Value as _;
use crate::settings::{Settings, StoreKind};
use crate::system::printable::count;

/// Messages that expire sooner are not compared: DynamoDB may delete them between the reads of both stores.
const EXPIRES_SOON: Span = Span::from_secs(60 * 60);

/// How far the time in a message id of this program may be from the time of its push.
const CLOCK_SKEW: Span = Span::from_secs(60 * 60);

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct StoreCopy {
    /// The store to copy to
    #[arg(long, value_name = "STORE", value_parser = StoreKind::parse)]
    #[serde(skip)]
    pub to: StoreKind,
    /// The store to copy from [default: that of the setting `store`, or else embedded or dynamodb]
    #[arg(long, value_name = "STORE", value_parser = StoreKind::parse)]
    #[serde(skip)]
    pub from: Option<StoreKind>,
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
    /// Compare both stores, and copy nothing
    #[arg(long)]
    pub verify_only: bool,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// The tables that are equal in both stores of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    tables: Vec<CopiedTable>,
}

/// A table of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedTable {
    #[serde(flatten)]
    pub table: Table,
    pub rows: u64,
    /// Of all rows, in any order. Another build may compute another one.
    pub sha256: String,
}

impl Report for Copied {
    fn text(&self, _is_first: bool) -> String {
        let rows = self.tables.iter().map(|copied| {
            let CopiedTable { table, rows, sha256 } = copied;
            [table_text(*table), rows.to_string(), sha256.clone()]
        });
        columns(Some(["TABLE", "ROWS", "SHA-256"]), rows)
    }

    fn json(&self) -> String {
        with_months(json!(self))
    }
}

type Job = AnyJob<Copied>;

/// The store that is copied, in the parts of a context whose store is the target.
#[derive(Clone)]
struct Source(StoreKind, Arc<dyn StoreAdmin>);

impl StoreCommand for StoreCopy {
    const NAME: &'static str = "store copy";
    const ABOUT: &'static str =
        "Copy everything from one store to another, and compare both, while no server is running";
    const HELP: &'static str = "\
A store is `embedded` (SQLite), `dynamodb` or `postgresql`. Stop every server of both stores first. The data
directory holds the SQLite store, or will, and keys.toml, which opens the endpoints of all subscriptions: copy it to
every node. The settings dynamodb_... and postgresql_... name the tables. The target must be empty, or a copy from the same source that was interrupted: run the command
again, and it writes all rows again. No server starts on an unfinished copy.

In the end all rows are read from both stores and compared, except messages that expire within an hour.
The source is not changed, unless it has lost receipt subscriptions: these are restored first, as by
`kalends store repair`. The exit code is 1 if a table differs, and standard error names it.

Examples:
  kalends store copy --to dynamodb --server-stopped --dynamodb-region eu-central-1 --data-dir /var/lib/kalends
  kalends store copy --to postgresql --server-stopped --postgresql-url postgresql://kalends@db/push
  kalends store copy --from dynamodb --to postgresql --server-stopped --config /etc/kalends/kalends.toml
  kalends store copy --to embedded --server-stopped --config /etc/kalends/kalends.toml
  kalends store copy --to dynamodb --server-stopped --verify-only --json --config /etc/kalends/kalends.toml";
    type Report = Copied;

    fn is_json(&self) -> bool {
        self.json
    }

    /// Opens both stores, and creates the target or its router table. The source is opened first.
    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        let dir = &settings.data_dir;
        if !dir.join(KEYS_FILE).exists() {
            return Err(CommandError::NoKeysOfStore { dir: dir.clone() });
        }
        if !self.server_stopped {
            return Err(CommandError::Job(SERVERS_UNKNOWN.to_owned()));
        }
        let from = self.source(settings)?;
        let source = open(from, settings, from, false).await?;
        if from.is_shared() {
            // A target with foreign keys stays as it is.
            let keys = Keys::load(dir).map_err(|error| CommandError::Job(error.to_string()))?;
            let compared = key_fingerprints::compare(&*source.store, &keys).await;
            compared.map_err(CopyMarkerError::from)?;
        }
        let target = open(self.to, settings, from, !self.verify_only).await?;
        let mut parts = Extensions::new();
        parts.insert(Source(from, source.store));
        let settings = Arc::new(settings.clone());
        Ok(Backend::Own(Context { settings, parts: parts.into(), ..target }))
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let Source(from, source) = job.context.part().expect("it was opened with the target");
        let copied = copy(&self, (*from, &**source), job).await;
        source.close().await?;
        copied
    }
}

impl StoreCopy {
    /// The store that is copied. That of the settings, if it is not the target.
    fn source(&self, settings: &Settings) -> Result<StoreKind, CommandError> {
        let other = match self.to {
            StoreKind::Embedded => StoreKind::DynamoDb,
            StoreKind::DynamoDb | StoreKind::PostgreSql => StoreKind::Embedded,
        };
        let of_settings = Some(settings.store).filter(|store| *store != self.to);
        let from = self.from.or(of_settings).unwrap_or(other);
        match from == self.to {
            true => Err(CommandError::Job("--from and --to name the same store".to_owned())),
            false => Ok(from),
        }
    }
}

/// One store of a copy. A directory of SQLite that is created is marked before it has a store.
async fn open(
    kind: StoreKind,
    settings: &Settings,
    from: StoreKind,
    creates: bool,
) -> Result<Context, CommandError> {
    let dir = &settings.data_dir;
    let settings = Settings { store: kind, ..settings.clone() };
    if kind.is_shared() {
        let create_tables = settings.create_tables && creates;
        return backend::open_shared(&settings, create_tables);
    }
    if creates && !has_databases(dir) {
        copy_marker::mark_new(dir, &name_of(from, &settings))?;
    }
    match backend::wait_for_embedded(&settings, creates).await? {
        Backend::Own(files) => Ok(files),
        Backend::Server(_) => Err(CommandError::ServerUses { dir: dir.clone() }),
    }
}

/// The name of a store, which does not change between two runs.
fn name_of(kind: StoreKind, settings: &Settings) -> String {
    match kind {
        StoreKind::Embedded => {
            let dir = &settings.data_dir;
            dir.canonicalize().unwrap_or_else(|_| dir.clone()).display().to_string()
        }
        StoreKind::DynamoDb => {
            let server = match (&settings.dynamodb_endpoint_url, &settings.dynamodb_region) {
                (Some(url), _) => url.as_str(),
                (None, Some(region)) => region.as_str(),
                (None, None) => "AWS",
            };
            let prefix = settings.dynamodb_table_prefix.as_str();
            format!("the tables {prefix}router, {prefix}storage and others at {server}")
        }
        StoreKind::PostgreSql => {
            let schema = settings.postgresql_schema.as_str();
            format!("the schema {schema} at {}", settings.postgresql_url.show())
        }
    }
}

async fn copy(
    copy: &StoreCopy,
    (from, source): (StoreKind, &dyn StoreAdmin),
    job: &Job,
) -> Result<(), JobError> {
    let (target, settings) = (&*job.context.store, &*job.context.settings);
    let whole = CopyJob { copy, from, job, source, target, settings };
    let keys = Keys::load(&settings.data_dir);
    let keys = keys.map_err(|error| JobError::Refused(error.to_string()))?;
    whole.check(&keys).await?;
    if !copy.verify_only {
        whole.mark(Some(&name_of(from, settings))).await?;
        if copy.to.is_shared() {
            key_fingerprints::add_or_refuse(whole.target, &keys).await?;
        }
        whole.repair_source().await?;
        let newest = whole.copy_all().await?;
        whole.keep_ids_above(newest).await?;
    }
    let tables = whole.compare_all().await?;
    if !copy.verify_only {
        whole.mark(None).await?;
    }
    job.report(Copied { tables }).await?;
    match copy.json {
        true => Ok(()),
        false => job.note("both stores have the same rows").await,
    }
}

struct CopyJob<'a> {
    copy: &'a StoreCopy,
    from: StoreKind,
    job: &'a Job,
    source: &'a dyn StoreAdmin,
    target: &'a dyn StoreAdmin,
    settings: &'a Settings,
}

impl CopyJob<'_> {
    /// Refuses what cannot be copied, before anything is changed.
    async fn check(&self, keys: &Keys) -> Result<(), JobError> {
        let (from, to) = (self.from, self.copy.to);
        for (kind, store) in [(from, self.source), (to, self.target)] {
            if kind.is_shared() {
                key_fingerprints::compare(store, keys).await?;
            }
        }
        let dir = &self.settings.data_dir;
        if let Some(of) = copy_marker::read(from, dir, self.source).await? {
            return Err(JobError::Refused(format!("the source is an unfinished copy of {of}")));
        }
        if self.copy.verify_only {
            return Ok(());
        }
        let (source, target) = (name_of(from, self.settings), name_of(to, self.settings));
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
                    StoreKind::PostgreSql =>
                        "name another schema with --postgresql-schema, or drop this one",
                }
            ))),
        }
    }

    async fn mark(&self, source: Option<&str>) -> Result<(), JobError> {
        let dir = &self.settings.data_dir;
        Ok(copy_marker::set(self.copy.to, dir, self.target, source).await?)
    }

    /// Whether the target has no row of any kind.
    async fn is_empty(&self) -> Result<bool, JobError> {
        for table in self.tables(&[self.target]).await? {
            let mut after = None;
            loop {
                let page = self.job.step(|| self.target.read_rows(table, after.clone())).await?;
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
            months.extend(self.job.step(|| store.months()).await?);
        }
        Ok(Table::OF_NO_MONTH.into_iter().chain(months.into_iter().map(Table::Messages)).collect())
    }

    /// Restores what an earlier copy has lost: rows of receipts without a sequence are of no use.
    async fn repair_source(&self) -> Result<(), JobError> {
        let repaired = repair_receipts(self.job, self.source).await?;
        for note in repaired.notes().into_iter().filter(|_| !self.copy.json) {
            self.job.note(format!("in the source: {note}")).await?;
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
            self.job.step(|| self.target.ensure_month(month)).await?;
        }
        let what = format!("copying {}", table_text(table));
        let of = items(self.job, self.source, table).await?;
        let (mut after, mut written, mut unreadable) = (None, 0, 0);
        loop {
            self.job.progress(&what, written, of);
            let page = self.job.step(|| self.source.read_rows(table, after.clone())).await?;
            unreadable += page.unreadable;
            let now = self.job.context.now();
            let mut rows = page.rows;
            rows.retain(|row| lives_at(row, now));
            *newest = rows.iter().filter_map(minted_at).fold(*newest, Time::max);
            if written == 0 && !rows.is_empty() {
                self.ensure(table).await?;
            }
            written += rows.len() as u64;
            let rows = Arc::new(rows);
            self.job.step(|| self.target.write_rows(table, rows.clone())).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if unreadable > 0 && !self.copy.json {
            let name = table_text(table);
            self.job
                .note(format!(
                    "left out {} of {name} that no server can read",
                    count(unreadable, "row")
                ))
                .await?;
        }
        Ok(())
    }

    /// Creates a table that is not there without rows.
    async fn ensure(&self, table: Table) -> Result<(), JobError> {
        self.job
            .step(|| match table {
                Table::Notifications => self.target.ensure_notifications(),
                Table::Sequences | Table::Feeds => self.target.ensure_feeds(),
                Table::Router | Table::Messages(_) => Box::pin(async { Ok(()) }),
            })
            .await
    }

    /// A server on the target makes no message id below the copied ones.
    async fn keep_ids_above(&self, newest: Time) -> Result<(), JobError> {
        let floor = self.job.step(|| self.source.id_floor()).await?.max(newest + Span(1));
        self.job.step(|| self.target.raise_id_floor(floor)).await
    }

    async fn compare_all(&self) -> Result<Vec<CopiedTable>, JobError> {
        let (mut same, mut different) = (Vec::new(), Vec::new());
        for table in self.tables(&[self.source, self.target]).await? {
            let lives_at = self.job.context.now() + EXPIRES_SOON;
            let there = self.digest("reading", (self.source, table), lives_at).await?;
            let copied = self.digest("verifying", (self.target, table), lives_at).await?;
            if there == copied {
                same.push(CopiedTable { table, rows: there.rows, sha256: there.to_hex() });
            } else {
                let name = table_text(table);
                different.push(format!(
                    "{name} ({} and {})",
                    count(there.rows, "row"),
                    copied.rows
                ));
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
        each_row(self.job, doing, of, add).await?;
        Ok(digest)
    }
}

fn lives_at(row: &CopiedRow, time: Time) -> bool {
    !matches!(row, CopiedRow::Message(_, message) if message.expires_at() <= time)
}

/// The time in the id of a message. An id of other software may have any, far from that of its push.
fn minted_at(row: &CopiedRow) -> Option<Time> {
    let CopiedRow::Message(_, Message { id, accepted_at, .. }) = row else { return None };
    id.minted_at().filter(|minted_at| *minted_at <= *accepted_at + CLOCK_SKEW)
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

#[cfg(test)]
mod tests;
