//! Counts the messages that wait in the store, for metrics. The count is up to [`EVERY`] old, and takes about a
//! microsecond for each user agent for which messages wait.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use actix::spawn;
use actix_web::web::Data;
use slog::warn;
use storage::maintenance::WaitingPage;
use storage::{StoreAdmin, StoreError};
use tokio::time::sleep;

use crate::push::app::SharedState;

/// Time between two counts.
const EVERY: Duration = Duration::from_secs(60);

/// Runs until the store is closed. Of an engine that cannot count, nothing is known.
pub(super) fn start(store: Arc<dyn StoreAdmin>, common: Data<SharedState>) {
    spawn(async move {
        loop {
            match count(&*store).await {
                Ok(counted) => {
                    *common.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
                }
                Err(StoreError::Closed | StoreError::Unsupported(_)) => return,
                Err(error) => {
                    warn!(common.log, "cannot count the waiting messages, retrying"; "error" => %error);
                }
            }
            sleep(EVERY).await;
        }
    });
}

/// Counts the messages of all months.
async fn count(store: &dyn StoreAdmin) -> Result<WaitingPage, StoreError> {
    let mut all = WaitingPage::default();
    for month in store.months().await? {
        let mut after = None;
        loop {
            let page = store.waiting_page(month, after).await?;
            (all.messages, all.bytes) = (all.messages + page.messages, all.bytes + page.bytes);
            after = page.next;
            if after.is_none() {
                break;
            }
            // Each page is read on this thread.
            tokio::task::yield_now().await;
        }
    }
    Ok(all)
}
