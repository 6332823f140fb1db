//! What a command does to the store, in steps.

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
mod pace;
mod report;
mod tail;
#[cfg(test)]
mod tests;

use storage::StoreError;
use tokio::sync::{mpsc, watch};

use super::job_context::JobContext;
use super::output::{Completion, Output};
use super::request::Request;
pub use pace::Pace;
pub use report::{LINES_MAX, Report};
pub use tail::{from_the_future, no_such_feed};

/// Why a job did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Whoever asked for it does not want it any more.
    #[error("stopped")]
    Stopped,
    /// The store failed.
    #[error("the store failed, what was done until then is done: {0}")]
    Store(#[from] StoreError),
    /// It cannot be done like this. Says what to do.
    #[error("{0}")]
    Refused(String),
}

/// Does what is asked for; the last of its lines says how it ended. Stops between two steps when `stop`
/// turns true.
pub async fn perform(
    request: Request,
    context: &JobContext,
    lines: mpsc::Sender<Output>,
    stop: watch::Receiver<bool>,
) -> Completion {
    let mut report = Report::new(lines.clone(), stop);
    let end = run(request, context, &mut report).await;
    // Whoever does not listen any more is told nothing.
    let _ = lines.send(Output::End(end.clone())).await;
    end
}

async fn run(request: Request, context: &JobContext, report: &mut Report) -> Completion {
    match try_run(request, context, report).await {
        Ok(end) => end,
        Err(JobError::Stopped) => Completion::Stopped,
        Err(error) => Completion::Failed(error.to_string()),
    }
}

async fn try_run(
    request: Request,
    context: &JobContext,
    report: &mut Report,
) -> Result<Completion, JobError> {
    match request {
        Request::Preflight => return look::preflight(context, report).await,
        Request::List => look::list(context, report).await?,
        Request::Status => look::status(context, report).await?,
        Request::Create(ensure) => create::run(&ensure, context, report).await?,
        Request::DropOld(drop_old) => drop_old::run(&drop_old, context, report).await?,
        Request::Drop(drop) => drop_old::drop_one(&drop, context, report).await?,
        Request::Copy(copy) => copy::run(&copy, context, report).await?,
        Request::DropInactive(drop_inactive) => {
            drop_inactive::run(&drop_inactive, context, report).await?
        }
        Request::FeedPut(put) => feed::put(put, context, report).await?,
        Request::FeedDelete(of) => feed::delete(of, context, report).await?,
        Request::FeedRepublish(of) => feed::republish(of, context, report).await?,
        Request::FeedList => feed::list(context, report).await?,
        Request::FeedTail(tail) => tail::run(tail, context, report).await?,
        Request::BroadcastList => feed::broadcasts(context, report).await?,
    }
    Ok(Completion::Done)
}
