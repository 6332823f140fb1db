//! What the server tells the service manager: that it serves, that it stops, and that it is alive.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is sent.

use std::time::Duration;

use actors::Observe;
use actors::observe::RegistryState;
use sd_notify::NotifyState;
use slog::{Logger, warn};
use storage::upgrade::{Upgrade, UpgradeStep};
use tokio::time::{sleep, timeout};

use crate::push::app::AppState;

/// How long a start may be silent after a report of an upgrade, before the service manager ends it.
const UPGRADE_SILENCE_MAX: Duration = Duration::from_secs(120);

/// The ports listen. Notifies the watchdog from now on, until the process ends.
pub fn started(node: &AppState) {
    notify(&[NotifyState::Ready], &node.common.log);
    keep_watchdog(node.clone());
}

/// The store is upgraded, which may take longer than the unit allows for a start.
pub(super) fn upgrading(upgrade: &Upgrade, log: &Logger) {
    let status = match upgrade.step {
        // Without a text the service manager shows none.
        UpgradeStep::Done => String::new(),
        _ => format!("upgrading the store, {} %", upgrade.percent()),
    };
    let silence = NotifyState::ExtendTimeoutUsec(UPGRADE_SILENCE_MAX.as_micros() as u32);
    notify(&[silence, NotifyState::Status(&status)], log);
}

/// The shutdown has begun.
pub fn stopping(log: &Logger) {
    notify(&[NotifyState::Stopping], log);
}

/// Notifies the watchdog at half of the time that it waits, as long as the actors answer.
fn keep_watchdog(node: AppState) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let log = node.common.log.clone();
    actix::spawn(async move {
        watch(
            limit / 2,
            async || actors_answer(&node).await,
            |is_alive| match is_alive {
                true => notify(&[NotifyState::Watchdog], &log),
                false => warn!(log, "an actor does not answer, the watchdog is not notified"),
            },
        )
        .await;
    });
}

/// Reports in each period whether the check succeeded within half of it.
async fn watch(period: Duration, check: impl AsyncFn() -> bool, mut report: impl FnMut(bool)) {
    loop {
        sleep(period).await;
        report(timeout(period / 2, check()).await.unwrap_or(false));
    }
}

/// Whether the actors of the node handle their messages.
async fn actors_answer(node: &AppState) -> bool {
    let publisher = node.common.feeds.observe().await.is_ok();
    let registry = match &node.connections {
        Some(connections) => {
            connections.clients.registry.send(Observe::<RegistryState>::new()).await.is_ok()
        }
        None => true,
    };
    publisher && registry
}

fn notify(states: &[NotifyState<'_>], log: &Logger) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(log, "cannot notify the service manager"; "error" => %error);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::pending;

    use super::*;

    #[actix_web::test]
    async fn the_watchdog_is_notified_only_while_the_actors_answer() {
        tokio::time::pause();
        let (checks, reports) = (Cell::new(0), RefCell::new(Vec::new()));
        let check = async || {
            checks.set(checks.get() + 1);
            match checks.get() {
                1 | 4 => true,
                2 => false,
                _ => pending().await,
            }
        };
        let watched = watch(Duration::from_secs(10), check, |is_alive| {
            reports.borrow_mut().push(is_alive);
        });
        // The third check ends 5 seconds late.
        let _ = timeout(Duration::from_secs(46), watched).await;
        assert_eq!(*reports.borrow(), [true, false, false, true]);
    }
}
