//! What commands share that change many rows, while no server uses the store.

use storage::StoreFuture;
use storage::maintenance::{CopyProgress, Cursor};

use crate::command::{Job, JobError, Servers};

/// The refusal of a command that no server may run beside, on DynamoDB.
pub const SERVERS_UNKNOWN: &str = "this is safe only while no server uses the tables: stop all of them, then add --server-stopped";

const SERVER_RUNS: &str = "a server is running on this store: stop it first, because its connections rely on its \
                           rows";

/// Refuses a repair beside a server.
pub fn refuse_servers(job: &Job, server_stopped: bool) -> Result<(), JobError> {
    match job.context.servers {
        Servers::ThisOne => Err(JobError::Refused(SERVER_RUNS.to_owned())),
        Servers::Unknown if !server_stopped => Err(JobError::Refused(SERVERS_UNKNOWN.to_owned())),
        Servers::Unknown | Servers::Stopped => Ok(()),
    }
}

/// Runs a step for each page. Returns what all of them have seen and written.
pub async fn all_pages(
    what: &str,
    of: Option<u64>,
    step: impl Fn(Option<Cursor>) -> StoreFuture<CopyProgress>,
    job: &Job,
) -> Result<CopyProgress, JobError> {
    let mut all = CopyProgress::default();
    loop {
        job.progress(what, all.seen, of);
        let page = job.step(|| step(all.next.clone())).await?;
        all.seen += page.seen;
        all.written += page.written;
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}
