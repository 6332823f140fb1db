//! `kalends feed tail --url`: a feed's updates over HTTP, by requests that wait.

use std::io::Write;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use url::Url;

use super::FeedCliError;
use super::args::TailWhat;
use super::remote::{Failure, Remote};
use super::tail::{finish, interrupted, left, printer, unless_nobody_reads};
use crate::admin::feed::{FeedTail, Page};
use crate::admin::output::Output;
use crate::admin::print::Printer;
use crate::dev::ToolError;

/// How long a server is asked to wait for an update.
const WAIT: Duration = Duration::from_secs(30);

/// The least time between two requests where there is nothing: a server may not want to wait at all.
const PAUSE: Duration = Duration::from_secs(1);

/// How long is waited before a request that failed is repeated; it doubles up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(500);

/// The longest of these waits.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Prints until there were as many as were asked for, or until it is interrupted.
pub fn run(what: &TailWhat, url: &Url) -> Result<(), FeedCliError> {
    let remote = Remote::at(url)?;
    let mut printer = printer(what)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut stop = interrupted();
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => Ok(()),
            ended = follow(what, &remote, &mut printer) => ended,
        }
    });
    // A request that is under way is left alone.
    runtime.shutdown_background();
    let ended = unless_nobody_reads(ended);
    finish(&printer, what, ended.is_ok());
    ended
}

async fn follow<W: Write>(
    what: &TailWhat,
    remote: &Remote,
    printer: &mut Printer<W>,
) -> Result<(), FeedCliError> {
    let (mut retry, mut was_there) = (RETRY, false);
    loop {
        let (tail, began) = (left(what, printer), Instant::now());
        match fetch(remote, &tail).await {
            Ok(page) => {
                (retry, was_there) = (RETRY, true);
                if take(page, &tail, printer)? {
                    return Ok(());
                }
                if left(what, printer).after == tail.after {
                    sleep_until(began + PAUSE).await;
                }
            }
            Err(Failure::Lost(why)) if was_there && !what.once => {
                let text = format!("{why}; asking again in {:.1} s", retry.as_secs_f64());
                printer.eprint(&text);
                sleep(retry).await;
                retry = (retry * 2).min(RETRY_MAX);
            }
            // More likely a wrong URL than a server that will come back.
            Err(Failure::Lost(why)) => {
                return Err(ToolError::Unreachable { url: remote.url().to_owned(), why }.into());
            }
            Err(Failure::Refused(why)) => return Err(ToolError::Refused(why).into()),
        }
    }
}

async fn fetch(remote: &Remote, tail: &FeedTail) -> Result<Page, Failure> {
    let (remote, feed, after, limit) =
        (remote.clone(), tail.feed.0.clone(), tail.after, tail.count);
    let wait = if tail.once { Duration::ZERO } else { WAIT };
    let fetched = spawn_blocking(move || remote.fetch(&feed, after, limit, wait)).await;
    fetched.unwrap_or_else(|error| Err(Failure::Refused(error.to_string())))
}

/// Prints a page; whether that was the last.
fn take<W: Write>(
    mut page: Page,
    tail: &FeedTail,
    printer: &mut Printer<W>,
) -> Result<bool, FeedCliError> {
    page.cut(tail.count.unwrap_or(u64::MAX));
    let is_enough = tail.count.is_some_and(|count| page.updates.len() as u64 >= count);
    let is_all = tail.once && page.is_last();
    for part in page.parts() {
        printer.print(Output::Page(part))?;
    }
    Ok(is_enough || is_all)
}
