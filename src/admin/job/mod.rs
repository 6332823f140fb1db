//! The jobs: what each command does to the store, in steps.

mod advice;
mod census;
mod copy;
mod create;
mod drop_inactive;
mod drop_old;
mod feed;
#[cfg(test)]
mod feed_tests;
mod look;
mod report;
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
    Store(#[from] StoreError),
    /// The reason, and what to do.
    #[error("{0}")]
    Refused(String),
}

/// Runs a request. The last output is its completion. The job stops between two steps when `stop` turns true or
/// nothing reads its output.
pub async fn perform(
    request: Request,
    context: &JobContext,
    outputs: mpsc::Sender<Output>,
    stop: watch::Receiver<bool>,
) -> Completion {
    let mut report = Report::new(outputs.clone(), stop);
    let end = match run(request, context, &mut report).await {
        Ok(end) => end,
        Err(JobError::Stopped) => Completion::Stopped,
        Err(error) => Completion::Failed(error.to_string()),
    };
    // The reader of the output may be gone.
    let _ = outputs.send(Output::End(end.clone())).await;
    end
}

async fn run(
    request: Request,
    context: &JobContext,
    report: &mut Report,
) -> Result<Completion, JobError> {
    match request {
        Request::Preflight => return look::preflight(context, report).await,
        Request::List(_) => look::list(context, report).await?,
        Request::Status(_) => look::status(context, report).await?,
        Request::Create(create) => create::run(&create, context, report).await?,
        Request::DropOld(drop_old) => drop_old::run(&drop_old, context, report).await?,
        Request::Drop(drop) => drop_old::drop_one(&drop, context, report).await?,
        Request::Copy(copy) => copy::run(&copy, context, report).await?,
        Request::DropInactive(inactive) => drop_inactive::run(&inactive, context, report).await?,
        Request::FeedPut(put) => feed::put(put, context, report).await?,
        Request::FeedDelete(key) => feed::delete(key, context, report).await?,
        Request::FeedRepublish(key) => feed::republish(key, context, report).await?,
        Request::FeedList(_) => feed::list(context, report).await?,
        Request::FeedTail(tail) => tail::run(tail, context, report).await?,
        Request::BroadcastList(_) => feed::broadcasts(context, report).await?,
    }
    Ok(Completion::Done)
}
