//! `kalends feed tail --url`: a feed's updates over HTTP, by long polling.

use std::io::Write;
use std::time::Duration;

use state_machine::Span;
use state_machine::backoff::Backoff;
use state_machine::feed::FeedPage;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::FeedCliError;
use super::args::Tail;
use super::remote::Remote;
use super::tail::remaining;
use crate::operate::admin::commands::FeedTail;
use crate::operate::admin::output::Output;
use crate::operate::admin::print::Printer;
use crate::system::https_client::ClientError;

/// How long the server may hold a request until there is an update.
const WAIT: Duration = Duration::from_secs(30);

/// The minimum interval between two requests without an update: a server may not wait at all.
const PAUSE: Duration = Duration::from_secs(1);

/// The wait before a failed request is repeated; it doubles up to [`RETRY_MAX`].
const RETRY: Span = Span(500);

/// The longest of these waits.
const RETRY_MAX: Span = Span::from_secs(30);

pub(super) async fn follow<W: Write>(
    args: &Tail,
    remote: &Remote,
    printer: &mut Printer<W>,
) -> Result<(), FeedCliError> {
    let (mut backoff, mut was_there) = (Backoff::new(RETRY, RETRY_MAX), false);
    loop {
        let (tail, began) = (remaining(args, printer), Instant::now());
        match fetch(remote, &tail).await {
            Ok(page) => {
                backoff.reset();
                was_there = true;
                if print(page, &tail, printer)? {
                    return Ok(());
                }
                if remaining(args, printer).after == tail.after {
                    sleep_until(began + PAUSE).await;
                }
            }
            Err(ClientError::Unreachable { why, .. }) if was_there && !args.tail.once => {
                let wait = Duration::from_millis(backoff.next().0);
                printer.eprint(&format!("{why}; trying again in {:.1} s", wait.as_secs_f64()));
                sleep(wait).await;
            }
            // At the first request most likely a wrong URL.
            Err(error) => return Err(error.into()),
        }
    }
}

async fn fetch(remote: &Remote, tail: &FeedTail) -> Result<FeedPage, ClientError> {
    let (remote, tail) = (remote.clone(), tail.clone());
    let wait = if tail.once { Duration::ZERO } else { WAIT };
    let fetched = spawn_blocking(move || remote.fetch(&tail.feed, tail.after, tail.count, wait));
    fetched.await.unwrap_or_else(|error| Err(ClientError::Refused(error.to_string())))
}

/// Prints a page. Whether it was the last one.
fn print<W: Write>(
    mut page: FeedPage,
    tail: &FeedTail,
    printer: &mut Printer<W>,
) -> Result<bool, FeedCliError> {
    let is_all = tail.once && page.is_last();
    let count = tail.count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    page.truncate(count);
    let is_enough = page.updates.len() == count;
    printer.print(Output::Page(page))?;
    Ok(is_enough || is_all)
}
