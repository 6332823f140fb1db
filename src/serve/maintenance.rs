//! What a server does by itself: tables ahead of the month, and a clock that stays right.

use std::time::Duration;

use actix::spawn;
use actix_web::web::Data;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::{Month, Span, Time};
use storage::{Store, StoreError};
use tokio::time::sleep;

use super::high_water::HighWater;
use super::machine_clock::MachineClock;
use crate::http::app::App;

/// How often.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// How long before a month its table is made.
const AHEAD: Span = Span::from_secs(24 * 60 * 60);

/// Corrections of the machine's clock that are followed.
const CORRECTION_MIN: Span = Span::from_secs(1);

/// Goes on as long as the process.
pub(super) fn start(app: Data<App>, machine: MachineClock, high_water: HighWater, rotation: bool) {
    spawn(async move {
        loop {
            high_water.keep_ahead(app.ids.time(app.clock.now()), &app.log);
            sleep(EVERY).await;
            follow(&app.clock, machine.now(), &app.log);
            if let Err(error) = make_months(&*app.store, app.clock.now(), rotation).await {
                warn!(app.log, "cannot make the message tables, will try again"; "error" => %error);
            }
        }
    });
}

/// Makes the tables of the last, this and, a day before it turns, the next month. Where rotation
/// is off, one table is enough.
pub(super) async fn make_months(
    store: &dyn Store,
    now: Time,
    rotation: bool,
) -> Result<(), StoreError> {
    let this = Month::of(now);
    if !rotation {
        return match store.months().await?.is_empty() {
            true => store.ensure_month(this).await,
            false => Ok(()),
        };
    }
    let months = store.months().await?;
    for month in [this.previous(), this, Month::of(now + AHEAD)] {
        if !months.contains(&month) {
            store.ensure_month(month).await?;
        }
    }
    Ok(())
}

/// Where rotation is off: the newest table, which stays in use.
pub(super) async fn frozen_month(
    store: &dyn Store,
    rotation: bool,
) -> Result<Option<Month>, StoreError> {
    Ok(if rotation { None } else { store.months().await?.last().copied() })
}

/// The clock runs by itself; when the machine's was set, it is set too.
fn follow(clock: &Clock, unix_now: Time, log: &Logger) {
    let shown = clock.now();
    let off = shown.since(unix_now).max(unix_now.since(shown));
    if off > CORRECTION_MIN {
        info!(log, "the machine's clock was set, following"; "off_ms" => off.0);
        clock.set(unix_now);
    }
}
