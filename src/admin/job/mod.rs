//! What a command does to the store, in steps.

mod advice;
mod census;
mod copy;
mod drop_old;
mod drop_stale;
mod ensure;
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

use super::line::{End, Line};
use super::request::Request;
use super::site::Site;
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
    site: &Site,
    lines: mpsc::Sender<Line>,
    stop: watch::Receiver<bool>,
) -> End {
    let mut report = Report::new(lines.clone(), stop);
    let end = run(request, site, &mut report).await;
    // Whoever does not listen any more is told nothing.
    let _ = lines.send(Line::End(end.clone())).await;
    end
}

async fn run(request: Request, site: &Site, report: &mut Report) -> End {
    match try_run(request, site, report).await {
        Ok(end) => end,
        Err(JobError::Stopped) => End::Stopped,
        Err(error) => End::Failed(error.to_string()),
    }
}

async fn try_run(request: Request, site: &Site, report: &mut Report) -> Result<End, JobError> {
    match request {
        Request::Preflight => return look::preflight(site, report).await,
        Request::List => look::list(site, report).await?,
        Request::Status => look::status(site, report).await?,
        Request::Ensure(ensure) => ensure::run(&ensure, site, report).await?,
        Request::DropOld(drop_old) => drop_old::run(&drop_old, site, report).await?,
        Request::Drop(drop) => drop_old::drop_one(&drop, site, report).await?,
        Request::Copy(copy) => copy::run(&copy, site, report).await?,
        Request::DropStale(drop_stale) => drop_stale::run(&drop_stale, site, report).await?,
        Request::FeedPut(put) => feed::put(put, site, report).await?,
        Request::FeedDelete(of) => feed::delete(of, site, report).await?,
        Request::FeedRepublish(of) => feed::republish(of, site, report).await?,
        Request::FeedList => feed::list(site, report).await?,
        Request::FeedTail(tail) => tail::run(tail, site, report).await?,
        Request::BroadcastList => feed::broadcasts(site, report).await?,
    }
    Ok(End::Done)
}
