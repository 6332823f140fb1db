//! Periodic work of a server: message tables ahead of the month, corrections of the clock, the floor of message ids, and
//! the reports of limits.

use std::sync::Arc;
use std::time::Duration;

use actix::spawn;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::{Span, Time};
use storage::SlowWrites;
use tokio::time::sleep;

use super::disk_watch::DiskWatch;
use super::message_id_floor::IdFloor;
use crate::limits::Limits;
use crate::push::app::{AppState, SharedState};
use crate::settings::store::message_tables::MonthTables;
use crate::system::clock::SystemClock;

/// Period of all of it.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// Period in which the limits report what they refused.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Smallest correction of the system clock that is followed.
const CORRECTION_MIN: Span = Span::from_secs(1);

/// What is kept up to date in the store.
pub(super) struct Upkeep {
    pub(super) tables: MonthTables,
    /// None of a node that gives no message ids.
    pub(super) id_floor: Option<IdFloor>,
}

/// Runs until the process ends.
pub(super) fn start(node: AppState, system_clock: SystemClock, upkeep: Upkeep) {
    let Upkeep { mut tables, id_floor } = upkeep;
    report_refusals(Arc::clone(&node.common.limits));
    spawn(async move {
        let SharedState { store, clock, log, .. } = &**node.common;
        let mut disk_watch = DiskWatch::default();
        loop {
            sleep(EVERY).await;
            follow(clock, system_clock.now(), log);
            if let Some(id_floor) = &id_floor {
                id_floor.raise(clock.now(), log).await;
            }
            if let Some(SlowWrites { count, longest_ms }) = store.take_slow_writes() {
                warn!(log, "the disk is slow, writes waited for it"; "commits" => count, "longest_ms" => longest_ms);
            }
            if let Some(disk) = store.disk_space() {
                disk_watch.look(disk, log);
            }
            if let Err(error) = tables.make(&**store, clock.now()).await {
                warn!(log, "cannot create the message tables, retrying"; "error" => %error);
            }
        }
    });
}

/// Logs the rest of a flood that limits refused. Runs until the process ends.
fn report_refusals(limits: Arc<Limits>) {
    spawn(async move {
        loop {
            sleep(REPORT_EVERY).await;
            limits.report();
        }
    });
}

/// The server's clock advances by itself; when the system clock was set, it is set too.
fn follow(clock: &Clock, unix_now: Time, log: &Logger) {
    let shown = clock.now();
    let off = shown.since(unix_now).max(unix_now.since(shown));
    if off > CORRECTION_MIN {
        info!(log, "the system clock was set, following it"; "off_ms" => off.0);
        clock.set(unix_now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tokio::task::{LocalSet, yield_now};
    use tokio::time::advance;

    use super::*;
    use crate::settings::Settings;
    use crate::system::telemetry;

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_flood_is_logged_once_without_a_further_refusal() {
        let (clock, (log, lines)) = (Clock::starting_at(Time(1_000_000)), telemetry::counted());
        let settings = Settings { connects_per_second_max: 1, ..Settings::default() };
        let limits = Limits::new(&settings, clock, log);
        let agent = limits.of_agent(None).expect("no address, no limit");
        let refused = (0..10).filter(|_| agent.hello(None).is_err()).count();
        assert_eq!((refused, lines.load(Ordering::Relaxed)), (9, 1));
        let local = LocalSet::new();
        let watched = local.run_until(async {
            report_refusals(limits);
            yield_now().await;
            for _ in 0..5 {
                advance(REPORT_EVERY).await;
                yield_now().await;
            }
        });
        watched.await;
        assert_eq!(lines.load(Ordering::Relaxed), 2);
    }
}
