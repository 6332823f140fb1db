//! `kalends feed tail --url`: a feed's updates over HTTP, by long polling.

use std::io::Write;
use std::time::Duration;

use state_machine::Span;
use state_machine::backoff::Backoff;
use state_machine::feed::FeedPage;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::remote::Remote;
use super::update_printer::{Remaining, UpdatePrinter, restarts};
use crate::command::CommandError;
use crate::system::https_client::ClientError;

/// How long the server may hold a request until there is an update.
const WAIT: Duration = Duration::from_secs(30);

/// The minimum interval between two requests without an update: a server may not wait at all.
const PAUSE: Duration = Duration::from_secs(1);

/// The wait before a failed request is repeated; it doubles up to [`RETRY_MAX`].
const RETRY: Span = Span(500);

/// The longest of these waits.
const RETRY_MAX: Span = Span::from_secs(30);

pub async fn follow<W: Write>(
    remote: &Remote,
    printer: &mut UpdatePrinter<W>,
) -> Result<(), CommandError> {
    let (mut backoff, mut was_there) = (Backoff::new(RETRY, RETRY_MAX), false);
    loop {
        let (tail, began) = (printer.remaining(), Instant::now());
        match fetch(remote, &tail).await {
            Ok(page) => {
                backoff.reset();
                was_there = true;
                if print(page, &tail, printer)? {
                    return Ok(());
                }
                if printer.remaining().after == tail.after {
                    sleep_until(began + PAUSE).await;
                }
            }
            Err(ClientError::Unreachable { why, .. }) if was_there && !printer.once => {
                let wait = Duration::from_millis(backoff.next().0);
                printer
                    .printer
                    .eprint(&format!("{why}; trying again in {:.1} s", wait.as_secs_f64()));
                sleep(wait).await;
            }
            Err(ClientError::Gone(_)) if printer.restart_if_gone && tail.after > 0 => {
                printer.printer.eprint(&restarts(&tail.feed, tail.after));
                printer.restart()?;
            }
            // At the first request most likely a wrong URL.
            Err(error) => return Err(error.into()),
        }
    }
}

async fn fetch(remote: &Remote, tail: &Remaining) -> Result<FeedPage, ClientError> {
    let (remote, tail) = (remote.clone(), tail.clone());
    let wait = if tail.once { Duration::ZERO } else { WAIT };
    let fetched = spawn_blocking(move || remote.fetch(&tail.feed, tail.after, tail.count, wait));
    fetched.await.unwrap_or_else(|error| Err(ClientError::Refused(error.to_string())))
}

/// Prints a page. Whether it was the last one.
fn print<W: Write>(
    mut page: FeedPage,
    tail: &Remaining,
    printer: &mut UpdatePrinter<W>,
) -> Result<bool, CommandError> {
    let is_all = tail.once && page.is_last();
    let count = tail.count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    page.truncate(count);
    let is_enough = page.updates.len() == count;
    printer.page(&page)?;
    Ok(is_enough || is_all)
}
