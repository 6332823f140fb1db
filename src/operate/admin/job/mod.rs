//! The jobs: what each command does to the store, in steps.

mod access;
mod advice;
mod census;
mod copy;
mod create;
mod drop_inactive;
mod drop_old;
mod drop_user;
mod each_row;
mod feed;
#[cfg(test)]
mod feed_tests;
mod import;
mod inspect;
mod look;
mod nodes;
mod repair_users;
mod report;
mod row_digest;
mod snapshot;
mod store_copy;
mod store_repair;
mod tail;
#[cfg(test)]
mod tests;

use storage::StoreError;
use tokio::sync::{mpsc, watch};

use super::commands::Request;
use super::job_context::JobContext;
use super::output::{Completion, Output};
pub use report::{OUTPUTS_MAX, Report};

/// Why a job ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The command was interrupted, or its process ended.
    #[error("stopped")]
    Stopped,
    #[error("the store failed, and completed steps remain: {0}")]
    Store(StoreError),
    /// The reason, and what to do.
    #[error("{0}")]
    Refused(String),
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unsupported(why) => Self::Refused(why.to_owned()),
            error => Self::Store(error),
        }
    }
}

/// Runs a request. The last output is its completion. The job stops between two steps when `stop` turns true or
/// nothing reads its output.
pub async fn perform(
    request: Request,
    context: &JobContext,
    outputs: mpsc::Sender<Output>,
    stop: watch::Receiver<bool>,
) -> Completion {
    let report = Report::new(context.clone(), outputs.clone(), stop);
    let end = match run(request, &report).await {
        Ok(end) => end,
        Err(JobError::Stopped) => Completion::Stopped,
        Err(error) => Completion::Failed(error.to_string()),
    };
    // The reader of the output may be gone.
    let _ = outputs.send(Output::End(end.clone())).await;
    end
}

async fn run(request: Request, report: &Report) -> Result<Completion, JobError> {
    match request {
        Request::Preflight => return look::preflight(report).await,
        Request::List(_) => look::list(report).await?,
        Request::Status(_) => look::status(report).await?,
        Request::Create(create) => create::run(&create, report).await?,
        Request::DropOld(drop_old) => drop_old::run(&drop_old, report).await?,
        Request::Drop(drop) => drop_old::drop_one(&drop, report).await?,
        Request::Copy(copy) => copy::run(&copy, report).await?,
        Request::DropInactive(inactive) => drop_inactive::run(&inactive, report).await?,
        Request::DropUser(user) => drop_user::run(user.uaid, report).await?,
        Request::RepairUsers(repair) => repair_users::run(&repair, report).await?,
        Request::Inspect(inspect) => inspect::run(&inspect, report).await?,
        Request::Nodes(_) => nodes::run(report).await?,
        Request::FeedPut(put) => feed::put(put, report).await?,
        Request::FeedDelete(key) => feed::delete(key, report).await?,
        Request::FeedRepublish(key) => feed::republish(key, report).await?,
        Request::FeedList(_) => feed::list(report).await?,
        Request::FeedTail(tail) => tail::run(tail, &report.context, report).await?,
        Request::BroadcastList(_) => feed::broadcasts(report).await?,
        Request::AccessAdd(add) => access::add(add, report).await?,
        Request::AccessList(_) => access::list(report).await?,
        Request::AccessRotate(rotate) => access::rotate(rotate, report).await?,
        Request::AccessRevoke(revoke) => access::revoke(revoke, report).await?,
        Request::Snapshot => snapshot::run(report).await?,
        Request::StoreCopy(copy) => store_copy::run(&copy, report).await?,
        Request::StoreRepair(repair) => store_repair::run(&repair, report).await?,
        Request::ImportRedis(redis) => return import::run(&redis, report).await,
    }
    Ok(Completion::Done)
}
