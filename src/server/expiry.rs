//! Deletes expired messages of all user agents at intervals (`expiry_interval_s`), and writes the receipts of those that
//! have expired (`feed_sweep_s`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::spawn;
use actix_web::web::Data;
use slog::{debug, warn};
use state_machine::Span;
use state_machine::log_limiter::LogLimiter;
use storage::{StoreAdmin, StoreError};
use tokio::time::sleep;

use crate::push::app::SharedState;

/// Minimum time between two log lines of failures.
const LOG_EVERY: Span = Span::from_secs(60);

/// Writes the receipts of expired messages, and removes receipt subscriptions that have ended, until the store is closed.
/// Every node with endpoints does so: a receipt is written once.
pub(super) fn start_receipts(
    interval_s: u64,
    store: Arc<dyn StoreAdmin>,
    common: Data<SharedState>,
) {
    let mut log_limiter = LogLimiter::new(LOG_EVERY);
    spawn(async move {
        let SharedState { clock, log, feeds, .. } = &**common;
        loop {
            let expired = store.expire_receipts(clock.now()).await;
            let is_more = match expired {
                Ok(expired) => {
                    feeds.publish(&expired.subscriptions);
                    if expired.receipts + expired.ended > 0 {
                        debug!(log, "messages with receipts have expired";
                            "receipts" => expired.receipts, "subscriptions_ended" => expired.ended);
                    }
                    expired.is_more
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    if let Some(suppressed) = log_limiter.allow(clock.now()) {
                        warn!(log, "cannot write the receipts of expired messages, retrying";
                            "error" => %error, "failures" => suppressed + 1);
                    }
                    false
                }
            };
            if !is_more {
                sleep(Duration::from_secs(interval_s)).await;
            }
        }
    });
}

/// Runs until the store is closed. Without an interval nothing runs.
pub(super) fn start(interval_s: u64, store: Arc<dyn StoreAdmin>, common: Data<SharedState>) {
    if interval_s == 0 {
        return;
    }
    let mut log_limiter = LogLimiter::new(LOG_EVERY);
    spawn(async move {
        let SharedState { clock, log, .. } = &**common;
        loop {
            sleep(Duration::from_secs(interval_s)).await;
            match store.delete_expired(clock.now()).await {
                Ok(0) => {}
                Ok(messages) => {
                    common.messages_expired.fetch_add(messages, Ordering::Relaxed);
                    debug!(log, "deleted expired messages"; "messages" => messages);
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    if let Some(suppressed) = log_limiter.allow(clock.now()) {
                        warn!(log, "cannot delete expired messages, retrying";
                            "error" => %error, "failures" => suppressed + 1);
                    }
                }
            }
        }
    });
}
