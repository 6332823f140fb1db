//! `kalends preflight`: whether a server can use its store, its `keys.toml` and its `bridges_file`.
//!
//! A server does not start without `keys.toml` if users depend on it, nor with other keys than the nodes that share its
//! tables.

use std::collections::BTreeSet;
use std::io::stdout;

use actors::Clock;
use clap::Args;
use serde::{Deserialize, Serialize};
use slog::{Discard, Logger, o};
use storage::data_dir::has_databases;
use storage::maintenance::PreflightCheck;
use storage::{DiskSpace, StoreAdmin};
use tokio::runtime::Builder;

use crate::command::printer::Printer;
use crate::command::store_command::{run_on, succeed};
use crate::command::{
    Backend, CommandError, Completion, Failure, Job as AnyJob, JobError, Output, Report,
    StoreCommand,
};
use crate::push::bridges::Bridges;
use crate::settings::Settings;
use crate::settings::keys::{Keys, KeysError};
use crate::settings::store::{is_empty_store, key_fingerprints, message_tables};
use crate::system::clock;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preflight {}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check(pub PreflightCheck);

impl Report for Check {
    fn text(&self, _is_first: bool) -> String {
        let PreflightCheck { what, outcome } = &self.0;
        match outcome {
            Ok(()) => format!("ok      {what}\n"),
            Err(problem) => format!("FAILED  {what}: {problem}\n"),
        }
    }
}

type Job = AnyJob<Check>;

impl StoreCommand for Preflight {
    const NAME: &'static str = "preflight";
    const ABOUT: &'static str = "Check whether a server can use its store";
    const HELP: &'static str = "\
Tries each operation of a server on the store that the settings name, and leaves nothing behind.
The exit code is 1 if a check fails.

Examples:
  kalends preflight --config /etc/kalends/kalends.toml
  kalends preflight --data-dir /var/lib/kalends    also while a server runs";
    type Report = Check;

    /// The files are those of this process, also if a server holds the store.
    fn main(self, settings: &Settings) -> Result<(), Failure> {
        let mut printer = Printer::new(stdout().lock(), false);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let end = runtime.block_on(async {
            let backend = self.reach(settings).await;
            let tables = match &backend {
                Ok(Backend::Own(context)) => Some(&*context.store),
                Ok(Backend::Server(_)) | Err(_) => None,
            };
            let mut is_well = true;
            let keys = check_keys(settings, tables).await;
            for check in keys.into_iter().chain(check_bridges(settings)) {
                is_well &= check.outcome.is_ok();
                printer.print(Output::Report(Check(check)))?;
            }
            match run_on(backend?, self, &mut |output| printer.print(output)).await? {
                Completion::Done if !is_well => Ok(Completion::Unwell),
                end => Ok::<_, CommandError>(end),
            }
        });
        Ok(succeed(end?)?)
    }

    /// Tries each operation of a server.
    async fn run(self, job: &Job) -> Result<(), JobError> {
        let there = job.step(|| job.context.store.months()).await?;
        let needed = message_tables::needed_months(job.context.now(), job.frozen_month().await?);
        let (usable, missing): (BTreeSet<_>, BTreeSet<_>) =
            needed.into_iter().partition(|month| there.contains(month));
        let mut checks = job.step(|| job.context.store.preflight(usable.clone())).await?;
        if !job.context.settings.makes_tables() {
            // They fail the start of a server that may not create them. The store here may not create them either.
            for month in missing {
                let made = job.context.store.ensure_month(month).await;
                let outcome = made.map_err(|error| error.to_string());
                checks.push(PreflightCheck { what: format!("table of {month}"), outcome });
            }
        }
        checks.extend(job.context.store.state().disk.map(compare_space));
        let is_well = checks.iter().all(|check| check.outcome.is_ok());
        for check in checks {
            job.report(Check(check)).await?;
        }
        for risk in job.step(|| job.context.store.risks()).await? {
            job.note(format!("warning: {risk}")).await?;
        }
        if is_well { Ok(()) } else { Err(JobError::Unwell) }
    }
}

/// A server on a disk with less free space starts, and refuses messages.
fn compare_space(disk: DiskSpace) -> PreflightCheck {
    let (free, min) = (disk.free_bytes, disk.free_bytes_min);
    let outcome = match disk.is_low() {
        false => Ok(()),
        true => Err(format!(
            "{free} bytes are free, and messages are refused with less than {min}: free some space, or lower \
             disk_free_min"
        )),
    };
    PreflightCheck { what: "room on the disk".to_owned(), outcome }
}

/// Checks `bridges_file`, if there is one. Must be called in a runtime.
fn check_bridges(settings: &Settings) -> Option<PreflightCheck> {
    settings.bridges_file.as_ref()?;
    let bridges = Bridges::load(
        settings,
        Clock::starting_at(clock::unix_now()),
        &Logger::root(Discard, o!()),
    );
    let (what, outcome) = match bridges {
        Ok(bridges) => (format!("bridges_file ({})", bridges.names()), Ok(())),
        Err(error) => ("bridges_file".to_owned(), Err(error.to_string())),
    };
    Some(PreflightCheck { what, outcome })
}

/// The name of the check of the file.
const KEYS: &str = "keys.toml";

/// Its name in a new installation.
const NONE_YET: &str = "keys.toml (none yet, the server makes them)";

/// The name of the check against other nodes.
const SHARED: &str = "keys.toml, as the other nodes have it";

/// Checks the keys. With shared tables, only they show whether keys should exist and which: without `tables` that is
/// not checked.
async fn check_keys(settings: &Settings, tables: Option<&dyn StoreAdmin>) -> Vec<PreflightCheck> {
    let check = |what: &str, outcome| PreflightCheck { what: what.to_owned(), outcome };
    let is_shared = settings.store.is_shared();
    let error = match (Keys::load(&settings.data_dir), tables) {
        (Ok(keys), Some(tables)) if is_shared => {
            let compared = key_fingerprints::compare(tables, &keys).await;
            let compared = compared.map_err(|error| error.to_string());
            return vec![check(KEYS, Ok(())), check(SHARED, compared)];
        }
        (Ok(_), _) => return vec![check(KEYS, Ok(()))],
        (Err(error), _) => error,
    };
    let outcome = match (&error, tables) {
        (KeysError::Missing { .. }, None) if is_shared => return Vec::new(),
        (KeysError::Missing { .. }, Some(tables)) if is_shared => {
            match is_empty_store(tables).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!(
                    "no keys.toml in {}, but users are registered: is data_dir right? else restore it from \
                     a backup",
                    settings.data_dir.display()
                )),
                Err(error) => Err(format!(
                    "it does not exist, and whether users are registered cannot be read: {error}"
                )),
            }
        }
        (KeysError::Missing { .. }, _) if !has_databases(&settings.data_dir) => Ok(()),
        _ => Err(error.to_string()),
    };
    let what = if outcome.is_ok() { NONE_YET } else { KEYS };
    vec![check(what, outcome)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_nearly_full_is_reported_with_the_free_and_the_needed_space() {
        let disk = |free_bytes| DiskSpace {
            free_bytes,
            free_bytes_min: 32 << 20,
            messages_refused: 0,
            subscriptions_refused: 0,
        };
        assert_eq!(compare_space(disk(32 << 20)).outcome, Ok(()));
        let error = compare_space(disk((32 << 20) - 1)).outcome.unwrap_err();
        assert!(
            error.starts_with(
                "33554431 bytes are free, and messages are refused with less than 33554432:"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_check_begins_with_its_outcome() {
        let check =
            |outcome| Check(PreflightCheck { what: "read router".into(), outcome }).text(false);
        assert_eq!(check(Ok(())), "ok      read router\n");
        assert_eq!(check(Err("allow it".into())), "FAILED  read router: allow it\n");
    }
}
