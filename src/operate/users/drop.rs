//! `users drop`: closes the connection of one user and drops it with its channels and messages.

use std::time::Duration;

use actors::registry::{ConnectedElsewhere, Lookup};
use actors::{BoundedAddr, RegistryActor};
use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::{Span, Time, Uaid};
use storage::inactive_users;
use storage::maintenance::MarkedUser;
use tokio::time::Instant;

use crate::command::{Job, JobError, NoReport, Servers, StoreCommand};

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropUser {
    /// The uaid of the user: 32 hex digits, with dashes or without
    pub uaid: Uaid,
}

impl StoreCommand for DropUser {
    const NAME: &'static str = "users drop";
    const ABOUT: &'static str = "Drop one user with its channels and messages";
    const HELP: &'static str = "\
Deletes the record, and the channels and messages in every table. Senders get 410 from then on. A
server on this machine closes the agent's connection; the agent gets a new uaid when it connects
again, and subscribes anew. With DynamoDB its connection stays until it ends by itself.

The exit code is 1 if there is no such user. After an interruption, repeat the command.

Examples:
  kalends users drop 0190a4a3b00070008000000000000001 --data-dir /var/lib/kalends
  kalends users drop 0190a4a3-b000-7000-8000-000000000001 --config /etc/kalends/kalends.toml";
    type Report = NoReport;

    /// The record is marked first: from then on the agent cannot connect with this uaid. The connection ends before the rows
    /// are deleted, so that it writes no further ones.
    async fn run(self, job: &Job) -> Result<(), JobError> {
        let Self { uaid } = self;
        let store = &job.context.store;
        let marked = job.step(|| store.mark_dropped(uaid, None)).await?;
        if let Some(marked) = &marked {
            close_connection(marked, job).await?;
        }
        let delete_rows = || {
            let store = store.clone();
            async move { inactive_users::delete_rows(&*store, &[uaid]).await }
        };
        let had_rows = job.step(|| Box::pin(delete_rows())).await?;
        match (marked, had_rows) {
            (Some(_), _) => {
                job.step(|| store.delete_uaids(vec![uaid])).await?;
                job.note(format!("dropped {uaid} with its channels and messages")).await
            }
            (None, true) => {
                job.note(format!("{uaid} has no record: dropped its channels and messages")).await
            }
            (None, false) => Err(JobError::Refused(format!(
                "there is no user {uaid}: it is not known here, or it was dropped before"
            ))),
        }
    }
}

/// How long a connection may take to close.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The interval of looks whether it has closed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Closes the agent's connection to this server, and waits until it is closed.
async fn close_connection(marked: &MarkedUser, job: &Job) -> Result<(), JobError> {
    let MarkedUser { uaid, ref binding } = *marked;
    let Some(registry) = job.context.part::<BoundedAddr<RegistryActor>>() else {
        return match binding {
            Some(_) if job.context.servers == Servers::Unknown => job.note(STAYS).await,
            _ => Ok(()),
        };
    };
    // Later than every connection that the record has named.
    let connected_at = binding.as_ref().map_or(Time(0), |binding| binding.connected_at);
    let connected_at = connected_at.max(job.context.now()) + Span(1);
    let deadline = Instant::now() + CLOSE_WAIT;
    // An error means that the server ends, and its connections with it.
    let _ = registry.send(ConnectedElsewhere { uaid, connected_at }).await;
    while let Ok(Some(_)) = registry.send(Lookup { uaid }).await {
        if Instant::now() >= deadline {
            let why = "the connection of the agent does not close: run it again to continue";
            return Err(JobError::Refused(why.to_owned()));
        }
        job.wait_until(Instant::now() + LOOK_EVERY).await?;
    }
    Ok(())
}

/// The connection of an agent to another process.
const STAYS: &str = "if the agent is connected, it gets a new id when it connects again; if it subscribes before \
                     that, run this again afterwards";
