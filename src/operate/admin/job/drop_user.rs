//! `users drop`: closes the connection of one user and drops it with its channels and messages.

use std::time::Duration;

use actors::registry::{ConnectedElsewhere, Lookup};
use state_machine::{Span, Time, Uaid};
use storage::inactive_users;
use storage::maintenance::MarkedUser;
use tokio::time::Instant;

use super::{JobError, Report};
use crate::operate::admin::job_context::Servers;

/// How long a connection may take to close.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The interval of looks whether it has closed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The record is marked first: from then on the agent cannot connect with this uaid. The connection ends before the rows
/// are deleted, so that it writes no further ones.
pub(super) async fn run(uaid: Uaid, report: &Report) -> Result<(), JobError> {
    let store = &report.context.store;
    let marked = report.step(|| store.mark_dropped(uaid, None)).await?;
    if let Some(marked) = &marked {
        close_connection(marked, report).await?;
    }
    let delete_rows = || {
        let store = store.clone();
        async move { inactive_users::delete_rows(&*store, &[uaid]).await }
    };
    let had_rows = report.step(|| Box::pin(delete_rows())).await?;
    match (marked, had_rows) {
        (Some(_), _) => {
            report.step(|| store.drop_user(uaid)).await?;
            report.note(format!("dropped {uaid} with its channels and messages")).await
        }
        (None, true) => {
            report.note(format!("{uaid} has no record: dropped its channels and messages")).await
        }
        (None, false) => Err(JobError::Refused(format!(
            "there is no user {uaid}: it is not known here, or it was dropped before"
        ))),
    }
}

/// Closes the agent's connection to this server, and waits until it is closed.
async fn close_connection(marked: &MarkedUser, report: &Report) -> Result<(), JobError> {
    let MarkedUser { uaid, ref binding } = *marked;
    let Some(registry) = &report.context.registry else {
        return match binding {
            Some(_) if report.context.servers == Servers::Unknown => report.note(STAYS).await,
            _ => Ok(()),
        };
    };
    // Later than every connection that the record has named.
    let connected_at = binding.as_ref().map_or(Time(0), |binding| binding.connected_at);
    let connected_at = connected_at.max(report.context.now()) + Span(1);
    let deadline = Instant::now() + CLOSE_WAIT;
    // An error means that the server ends, and its connections with it.
    let _ = registry.send(ConnectedElsewhere { uaid, connected_at }).await;
    while let Ok(Some(_)) = registry.send(Lookup { uaid }).await {
        if Instant::now() >= deadline {
            let why = "the connection of the agent does not close: run it again to continue";
            return Err(JobError::Refused(why.to_owned()));
        }
        report.wait_until(Instant::now() + LOOK_EVERY).await?;
    }
    Ok(())
}

/// The connection of an agent to another process.
const STAYS: &str = "if the agent is connected, it gets a new id when it connects again; if it subscribes before \
                     that, run this again afterwards";
